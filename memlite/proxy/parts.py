"""Several requests of a client, or one for several keys, in parts that are handled in C.

These classes do the same as `Batch` and `MultiGet`, which serve where the C module was not built,
and which explain their handling of requests in more detail.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from memlite.protocol import replies
from memlite.proxy.framing import NATIVE
from memlite.proxy.requests import MultiGet, Origin, Request, without_items

__all__ = ["SPLIT", "SPLIT_KEYS", "JoinedBatch", "JoinedMultiGet", "Part"]

Part: Final[Any] = None if NATIVE is None else NATIVE.Part
"""Receives the replies of a node; None without the C module."""
SPLIT: Final[Any] = None if NATIVE is None else NATIVE.split
"""Returns gets and small sets by their nodes.

Its arguments are the input, the nodes by line, the nodes by key, the maximum number of requests to
find, the maximum length of a value, and the type of nodes. It returns None unless it finds two or
more requests, else the bytes and the number of requests for each node, the index of the node of
each request, where the requests found end, and whether they change nothing.
"""
SPLIT_KEYS: Final[Any] = None if NATIVE is None else NATIVE.split_keys
"""Does the same with the keys of a multi-get, if all are ordinary; it omits the last two values."""
JoinedBatch: Final[Any] = None if NATIVE is None else NATIVE.Batch
"""Requests whose replies are sent together; see `Batch`. None without the C module.

Its arguments are the client's executor and the index of the node of each request. The method
`part`, given how many of them the next node has, returns the receiver of that node's replies.
"""


class JoinedMultiGet(MultiGet):
    """A get of keys that several nodes have; see `MultiGet`.

    Args:
        executor: the client's.
        found: the nodes' parts of the request, from `SPLIT_KEYS`.
        order: the index of the node of each key, from `SPLIT_KEYS`.
        strict: whether it fails if a node fails.

    Attributes:
        order: as above.
        answered_by_all: called once all nodes have answered, with the reply, and with whether one
            of them failed; None for nothing.
    """

    __slots__ = ("_found", "_odd", "_shares", "answered_by_all", "order")

    def __init__(
        self,
        executor: Origin,
        found: Sequence[tuple[Any, bytes, int]],
        order: bytes,
        *,
        strict: bool,
    ) -> None:
        self._executor = executor
        self.reply = None
        self.observer = None
        self.closes = False
        self.answered_by_all: Callable[[bytes, bool], object] | None = None
        self._missing = len(found)
        self._failed = 0
        self._strict = strict
        self._found = found
        self.order = order
        self._odd = False  # whether any reply is not of the usual form
        self._shares: list[Any] = [
            Part(self, index, count, True, request)
            for index, (_, request, count) in enumerate(found)
        ]
        self._replies = []

    @property
    def held(self) -> int:
        """The bytes of the replies received so far."""
        if self.reply is not None:
            return len(self.reply)
        found: int = sum([part.held() for part in self._shares])
        return found + sum(map(len, self._replies))

    def discard(self) -> None:
        """Forget the replies received so far: their keys become misses."""
        Request.discard(self)
        self._replies = without_items(self._replies)
        for part in self._shares:
            part.discard()

    def part(self, index: int) -> Any:
        """Return the receiver for one of the nodes."""
        return self._shares[index]

    def part_done(self) -> None:
        """Note that a node's reply has arrived, with an item for each key that it has."""
        self._missing -= 1
        if not self._missing:
            self._finish()

    def take_reply(self, index: int, reply: bytes, failed: bool) -> None:
        """Take a node's reply that is not of the usual form."""
        if not self._replies:
            self._replies = [replies.END] * len(self._found)
        self._replies[index] = reply
        self._odd = True
        self._missing -= 1
        if failed:
            self._failed += 1
            self._executor.count_failure()
        if not self._missing:
            self._finish()

    def _finish(self) -> None:
        self.reply = reply = self.combined()
        self._executor.answered()
        self._shares, self._found = [], ()  # as in `JoinedBatch`
        if self.answered_by_all is not None:
            self.answered_by_all(reply, self._failed > 0)
            self.answered_by_all = None  # it may refer to this object

    def combined(self) -> bytes:
        """Return the items in the order of the keys."""
        if not self._odd:
            return bytes(NATIVE.join(self.order, self._shares, 0, replies.END)[0])
        nodes = [node for node, _, _ in self._found]
        self._keys = [request[4:-2].split(b" ") for _, request, _ in self._found]
        self._parts = dict(zip(nodes, self._keys, strict=True))
        self._nodes = [nodes[index] for index in self.order]
        self._items = [part.pieces() if part.have else None for part in self._shares]
        self.merger = self._executor.merger
        return super().combined()
