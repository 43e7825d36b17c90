"""The gutter: nodes that serve the keys of nodes that are down, for a short time."""

import time
from collections.abc import Callable, Sequence

from memlite.protocol import replies
from memlite.proxy.gutter_requests import keys_of, rewritten, with_keys
from memlite.proxy.merge import Merger
from memlite.proxy.node import Node, Receiver
from memlite.proxy.node_recovery import FLUSH

__all__ = ["Gutter"]

_REFUSED = b"SERVER_ERROR not possible while the node is down: the gutter has no such command\r\n"


class Gutter:
    """Serves keys of nodes that are down.

    Items left in the gutter by an earlier outage would be stale. So each time a node goes down, the
    gutter is emptied before it serves that node's keys.

    Args:
        nodes: the nodes of the gutter.
        index: returns the index of the node that has a key.
        ttl: the longest time to live of items, in seconds.
        most: the most nodes that it stands in for at the same time.

    Attributes:
        nodes: as above.
        most: as above.
        requests: how many requests the gutter was sent.
    """

    def __init__(
        self, nodes: Sequence[Node], index: Callable[[bytes], int], ttl: int, most: int
    ) -> None:
        self.nodes = nodes
        self._index = index
        self._ttl = ttl
        self.most = most
        self._ready: dict[Node, _Emptied] = {}
        self.requests = 0

    def open(self, away: Node) -> None:
        """Prepare to serve the keys of a node that is down, unless too many are down."""
        if away not in self._ready and len(self._ready) < self.most:
            self._ready[away] = emptied = _Emptied()
            for node in self.nodes:
                emptied.has(node)

    def close(self, back: Node) -> None:
        """Note that a node is up again."""
        self._ready.pop(back, None)

    def send(self, away: Node, request: bytes, receiver: Receiver) -> bool:
        """Serve a request for a node that is down.

        Returns:
            False if the gutter cannot be used for it now, or is not meant for it.
        """
        keys = keys_of(request)
        if not keys:
            return False
        self.open(away)
        emptied = self._ready.get(away)
        nodes = [self.nodes[self._index(key)] for key in keys]
        if emptied is None or not all(emptied.has(node) for node in nodes):
            return False
        self.requests += 1
        absence = away.returning.absence
        if absence is None:
            self._serve(request, receiver, keys, nodes)
            return True

        def noted(error: bytes) -> None:
            if error:
                receiver.fail(error)
            elif not away.down:  # it is back
                away.send(request, receiver)
            else:
                self._serve(request, receiver, keys, nodes)

        absence.confirm(noted, reads=receiver.reads)
        return True

    def _serve(
        self, request: bytes, receiver: Receiver, keys: Sequence[bytes], nodes: Sequence[Node]
    ) -> None:
        changed = rewritten(request, self._ttl, time.time())
        if changed is None:
            receiver.fail(_REFUSED)
        elif len(set(nodes)) == 1:
            nodes[0].send(changed, receiver)
        else:
            _ask_several(changed, list(zip(keys, nodes, strict=True)), receiver)


class _Emptied:
    """The nodes of the gutter that were emptied since a node went down."""

    def __init__(self) -> None:
        self._done: set[Node] = set()
        self._asked: set[Node] = set()

    def has(self, node: Node) -> bool:
        """Return whether a node was emptied; if not, send it a flush once."""
        if node not in self._done and node not in self._asked:
            self._asked.add(node)
            absence = node.returning.absence
            send = node.send if absence is None else absence.empty
            send(FLUSH, _Emptying(self, node))
        return node in self._done

    def answered(self, node: Node, reply: bytes) -> None:
        self._asked.discard(node)
        if reply == replies.OK:
            self._done.add(node)


class _Emptying:
    """Receives the reply of a node to a flush."""

    reads = False

    def __init__(self, emptied: _Emptied, node: Node) -> None:
        self._emptied = emptied
        self._node = node

    def answer(self, reply: bytes) -> None:
        self._emptied.answered(self._node, reply)

    def fail(self, error: bytes) -> None:
        self._emptied.answered(self._node, error)


def _ask_several(request: bytes, owned: list[tuple[bytes, Node]], receiver: Receiver) -> None:
    """Send a retrieval of several keys to the nodes that have them."""
    nodes = list(dict.fromkeys(node for _, node in owned))
    whole = _Merging([(key, nodes.index(node)) for key, node in owned], len(nodes), receiver)
    for index, node in enumerate(nodes):
        asked = [key for key, owner in owned if owner is node]
        node.send(with_keys(request, asked), _Part(whole, index, receiver.reads))


class _Merging:
    """Merges the replies of several nodes; it fails if one of them does."""

    def __init__(self, keys: list[tuple[bytes, int]], nodes: int, receiver: Receiver) -> None:
        self._keys = keys
        self._receiver = receiver
        self._replies = [b""] * nodes
        self._missing = nodes
        self._error = b""

    def take(self, index: int, reply: bytes, error: bytes) -> None:
        self._replies[index] = reply
        self._error = self._error or error
        self._missing -= 1
        if self._missing:
            return
        if self._error:
            self._receiver.fail(self._error)
        else:
            self._receiver.answer(Merger().merge(self._keys, self._replies))


class _Part:
    """Receives one node's reply to a part of a retrieval."""

    def __init__(self, whole: _Merging, index: int, reads: bool) -> None:
        self._whole = whole
        self._index = index
        self.reads = reads

    def answer(self, reply: bytes) -> None:
        self._whole.take(self._index, reply, b"")

    def fail(self, error: bytes) -> None:
        self._whole.take(self._index, b"", error)
