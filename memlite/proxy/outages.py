"""What follows from nodes being down: for the others, and for requests for their keys."""

from collections.abc import Sequence
from typing import Final

from memlite.proxy.absences import Absences
from memlite.proxy.gutter import Gutter
from memlite.proxy.node import Node, Receiver

__all__ = ["Outages"]

_MAX_PAUSE: Final = 5.0
_MAX_PAUSE_IF_MOST_ARE_DOWN: Final = 0.25


class Outages:
    """Sees which nodes are down.

    If most are, it is likelier that the proxy's network fails than that the nodes do: they are
    tried again at once, and then more often.

    Attributes:
        absences: is told as well; None for nobody.
        longest_pause: seconds between two attempts to reach a node, at most.
    """

    def __init__(self) -> None:
        self._nodes: Sequence[Node] = ()
        self._gutter: Gutter | None = None
        self._most = False
        self.absences: Absences | None = None
        self.longest_pause = _MAX_PAUSE

    def watch(self, nodes: Sequence[Node], gutter: Gutter | None = None) -> None:
        """Set the nodes, and what serves keys of those that are down."""
        self._nodes, self._gutter = nodes, gutter
        self._count()

    def went_down(self, node: Node) -> None:
        """Note that a node is down."""
        self._count()
        if self._gutter is not None:
            self._gutter.open(node)
        if self.absences is not None:
            self.absences.went_down(node)

    def came_back(self, node: Node) -> None:
        """Note that a node is up again."""
        self._count()
        if self._gutter is not None:
            self._gutter.close(node)

    def stand_in(self, node: Node, request: bytes, receiver: Receiver) -> bool:
        """Have a request for a node that is down served by another, if there is one for it."""
        return self._gutter is not None and self._gutter.send(node, request, receiver)

    def _count(self) -> None:
        most = 2 * sum(node.down for node in self._nodes) > len(self._nodes)
        self.longest_pause = _MAX_PAUSE_IF_MOST_ARE_DOWN if most else _MAX_PAUSE
        if most and not self._most:
            for node in self._nodes:
                node.try_again()
        self._most = most
