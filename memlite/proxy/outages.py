"""The consequences of nodes being down, for other nodes and for requests for their keys."""

from collections.abc import Sequence
from typing import Final

from memlite.proxy.absences import Absences
from memlite.proxy.gutter import Gutter
from memlite.proxy.node import Node, Receiver

__all__ = ["Outages"]

_MAX_PAUSE: Final = 5.0
_MAX_PAUSE_IF_MOST_ARE_DOWN: Final = 0.25


class Outages:
    """Tracks which nodes are down.

    If most are, the proxy's network has more likely failed than the nodes: they are tried again at
    once, and then more often.

    Attributes:
        absences: notified as well; None for none.
        longest_pause: maximum seconds between two attempts to reach a node.
    """

    def __init__(self) -> None:
        self._nodes: Sequence[Node] = ()
        self._gutter: Gutter | None = None
        self._most = False
        self.absences: Absences | None = None
        self.longest_pause = _MAX_PAUSE

    def watch(self, nodes: Sequence[Node], gutter: Gutter | None = None) -> None:
        """Set the nodes, and the gutter that serves the keys of nodes that are down."""
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
        """Let the gutter, if there is one, serve a request for a node that is down."""
        return self._gutter is not None and self._gutter.send(node, request, receiver)

    def _count(self) -> None:
        most = 2 * sum(node.down for node in self._nodes) > len(self._nodes)
        self.longest_pause = _MAX_PAUSE_IF_MOST_ARE_DOWN if most else _MAX_PAUSE
        if most and not self._most:
            for node in self._nodes:
                node.try_again()
        self._most = most
