"""Which keys move, and between which nodes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from memlite.cluster.topology import Node, Topology
from memlite.core.errors import ConfigError
from memlite.routing import Ketama

__all__ = ["Routes", "check_without"]


class Routes:
    """The nodes of keys before and after a move.

    Args:
        topology: the nodes, and the move between them.

    Attributes:
        before: the nodes before it.
        after: those after it.
    """

    def __init__(self, topology: Topology) -> None:
        move = topology.move
        assert move is not None  # noqa: S101 - the caller has looked
        self.before: Final = topology.nodes
        self.after: Final = move.nodes
        self._old = topology.router().index
        self._new = topology.next_router().index
        self._begun = topology.begun_router().index
        self._to_lost = [node in move.lost for node in move.begun]
        self.any_lost: Final = bool(move.lost)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, each once."""
        return tuple({node.name: node for node in (*self.before, *self.after)}.values())

    def source(self, key: bytes) -> str:
        """Return the name of the node that has a key before the move."""
        return self.before[self._old(key)].name

    def destination(self, key: bytes) -> str:
        """Return the name of the node that has it afterwards."""
        return self.after[self._new(key)].name

    def leave(self, name: str) -> Callable[[bytes], bool]:
        """Return what tells whether a key moves away from a node."""
        return lambda key: self.source(key) == name != self.destination(key)

    def arrive(self, name: str) -> Callable[[bytes], bool]:
        """Return what tells whether a key moves to a node."""
        return lambda key: self.destination(key) == name != self.source(key)

    def inherit(self, name: str) -> Callable[[bytes], bool]:
        """Return what tells whether a key moves to a node in place of one that is gone."""
        arrives = self.arrive(name)
        return lambda key: self._to_lost[self._begun(key)] and arrives(key)

    def stay(self, name: str) -> Callable[[bytes], bool]:
        """Return what tells whether a key stays at a node, as the one it was to move to is gone."""

        def stays(key: bytes) -> bool:
            return self._to_lost[self._begun(key)] and self.source(key) == name == self.destination(
                key
            )

        return stays


def check_without(topology: Topology) -> None:
    """Check that only keys of nodes that are gone get other nodes.

    Raises:
        ConfigError: the hash does not promise that.
    """
    move = topology.move
    assert move is not None  # noqa: S101 - the caller has looked
    left = _points(topology, tuple(node for node in move.begun if node not in move.lost))
    begun = _points(topology, move.begun)
    names = {node.name for node in move.lost}
    if left is None or begun is None or left != [one for one in begun if one[1] not in names]:
        raise ConfigError("without it, keys would also move between the nodes that are left")


def _points(topology: Topology, nodes: tuple[Node, ...]) -> list[tuple[int, str]] | None:
    """Return the points of a ring with their owners; None if there is no ring."""
    router = replace(topology, nodes=nodes, move=None).router()
    if not isinstance(router, Ketama):
        return None
    ring = router.ring
    return [(point, nodes[at].name) for point, at in zip(ring.points, ring.owners, strict=True)]
