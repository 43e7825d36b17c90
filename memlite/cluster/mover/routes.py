"""Which keys move, and between which nodes."""

from collections.abc import Callable
from typing import Final

from memlite.cluster.topology import Node, Topology

__all__ = ["Routes"]


class Routes:
    """The nodes of keys before and after a move.

    Args:
        before: the topology before it.
        after: the one after it.

    Attributes:
        before: the nodes before it.
        after: those after it.
    """

    def __init__(self, before: Topology, after: Topology) -> None:
        self.before: Final = before.nodes
        self.after: Final = after.nodes
        self._old = before.router().index
        self._new = after.router().index

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
