"""Which keys move, and between which nodes."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from memlite.cluster.moving.copies import Copies
from memlite.cluster.topology import Node, Topology
from memlite.core.errors import ConfigError
from memlite.routing import Ketama

__all__ = ["Routes", "check_without"]


class Routes:
    """The nodes of keys before and after a move.

    Args:
        topology: the nodes, and the move between them.
        gone: the names of failed nodes, to which nothing is sent.
        takes_back: whether restored items go to their former nodes.

    Attributes:
        before: the nodes before the move.
        after: the nodes after it.
        gone: as above.
        replicated: whether items have copies.
        adds: whether there are new nodes.
    """

    def __init__(
        self, topology: Topology, gone: Collection[str] = (), *, takes_back: bool = False
    ) -> None:
        move = topology.move
        assert move is not None  # noqa: S101 - the caller has checked
        self.before: Final = topology.nodes
        self.after: Final = move.nodes
        self._old = topology.router().index
        self._new = topology.next_router().index
        self._begun = topology.begun_router().index
        self._to_lost = [node in move.lost for node in move.begun]
        self.any_lost: Final = bool(move.lost)
        self.gone: Final = gone
        self._takes_back = takes_back
        self._phase = move.phase
        self._copies = Copies(topology)
        self.replicated: Final = topology.replicas > 1
        known = {node.name for node in self.before}
        self.adds: Final = any(node.name not in known for node in self.after)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, each once."""
        return tuple({node.name: node for node in (*self.before, *self.after)}.values())

    def source(self, key: bytes) -> str:
        """Return the name of the key's node before the move."""
        return self.before[self._old(key)].name

    def destination(self, key: bytes) -> str:
        """Return the name of the key's node after the move."""
        return self.after[self._new(key)].name

    def leave(self, name: str) -> Callable[[bytes], bool]:
        """Return a test of whether a key moves away from a node."""
        gone = self.gone

        def leaves(key: bytes) -> bool:
            if self.source(key) != name:
                return False
            destination = self.destination(key)
            return destination != name and destination not in gone

        return leaves

    # Copies

    def copies(self, key: bytes) -> list[str]:
        """Return the names of the live nodes that have copies of a key now."""
        nodes = self._copies.during(key, self._phase)
        return [node.name for node in nodes if node.name not in self.gone]

    def decides(self, name: str) -> Callable[[bytes], bool]:
        """Return a test of whether a node decides on a key before anything has moved."""
        return lambda key: self.source(key) == name

    def foreign(self, name: str, replicas: int) -> Callable[[bytes], bool]:
        """Return a test of whether a key did not belong to a node before the move.

        Args:
            name: the node's.
            replicas: the number of nodes of each item then.
        """

        def is_foreign(key: bytes) -> bool:
            return all(node.name != name for node in self._copies.before(key)[:replicas])

        return is_foreign

    def stranded(self, name: str) -> Callable[[bytes], bool]:
        """Return a test of whether a key cannot leave a node because its new one has failed."""

        def is_stranded(key: bytes) -> bool:
            return self.source(key) == name != self.destination(key) in self.gone

        return is_stranded

    def orphans(self, name: str, lost: str) -> Callable[[bytes], bool]:
        """Return a test of whether a node has copies of a failed node's keys.

        Args:
            name: the node's.
            lost: the name of the failed node, which the keys move from or to.
        """

        def is_orphan(key: bytes) -> bool:
            source, destination = self.source(key), self.destination(key)
            if source == destination or lost != (destination if self._takes_back else source):
                return False
            return name in self.copies(key)

        return is_orphan

    def restored_to(self, key: bytes) -> str:
        """Return the name of the node to which a lost item is restored."""
        return self.source(key) if self._takes_back else self.destination(key)

    def arrive(self, name: str) -> Callable[[bytes], bool]:
        """Return a test of whether a key moves to a node."""
        return lambda key: self.destination(key) == name != self.source(key)

    def inherit(self, name: str) -> Callable[[bytes], bool]:
        """Return a test of whether a key moves to a node in place of a failed one."""
        arrives = self.arrive(name)
        return lambda key: self._to_lost[self._begun(key)] and arrives(key)

    def stay(self, name: str) -> Callable[[bytes], bool]:
        """Return a test of whether a key stays at a node because its new one has failed."""

        def stays(key: bytes) -> bool:
            return self._to_lost[self._begun(key)] and self.source(key) == name == self.destination(
                key
            )

        return stays


def check_without(topology: Topology) -> None:
    """Check that only keys of failed nodes get other nodes.

    Raises:
        ConfigError: the hash does not guarantee that.
    """
    move = topology.move
    assert move is not None  # noqa: S101 - the caller has checked
    left = _points(topology, tuple(node for node in move.begun if node not in move.lost))
    begun = _points(topology, move.begun)
    names = {node.name for node in move.lost}
    if left is None or begun is None or left != [one for one in begun if one[1] not in names]:
        raise ConfigError("without it, keys would also move between the remaining nodes")


def _points(topology: Topology, nodes: tuple[Node, ...]) -> list[tuple[int, str]] | None:
    """Return the points of a ring with their owners; None if there is no ring."""
    router = replace(topology, nodes=nodes, move=None).router()
    if not isinstance(router, Ketama):
        return None
    ring = router.ring
    return [(point, nodes[at].name) for point, at in zip(ring.points, ring.owners, strict=True)]
