"""Executors that count clients' commands by class and result, for ``--http`` and ``--otlp``.

Replies are counted as clients get them, regardless of how many nodes a request is sent to.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from memlite.memory import Part
from memlite.protocol import replies as lines
from memlite.proxy.batch import Batch, BatchPart
from memlite.proxy.binary import BinaryProxyExecutor
from memlite.proxy.cluster import Target
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.merge import Merger
from memlite.proxy.queued_executors import QueuedBinaryExecutor, QueuedTextExecutor
from memlite.proxy.requests import MultiGet, Replaced, Request, Whole
from memlite.proxy.tally import NO_REPLY, QUIET, Counts, head_of, status_of
from memlite.server.execution.command_set import CommandObserver

__all__ = [
    "CountedBinaryExecutor",
    "CountedQueuedBinaryExecutor",
    "CountedQueuedTextExecutor",
    "CountedTextExecutor",
]

_GET: Final = b"get"
_SET: Final = b"set"
_HIT: Final = b"VAL"
_MISS: Final = b"END"
_STORED: Final = b"STO"
_PLAIN: Final = frozenset((_HIT, _MISS, _STORED))
"""The beginnings of most replies, for which `head_of` returns the same."""
_ITEMS: Final = (b"VALUE ", lines.END)
_first_three: Final = itemgetter(slice(3))
_answer: Final = ProxyExecutor.answer  # `super` takes longer

if TYPE_CHECKING:
    _Base = ProxyExecutor
else:
    _Base = object


class _Counted(_Base):
    """Counts commands, each when its reply arrives.

    Args:
        counts: where to count.
        others: the other arguments of the executor.
    """

    def __init__(self, counts: Counts, *others: object) -> None:
        super().__init__(*others)  # type: ignore[arg-type]
        self.writes_lone = False  # `answer` counts replies, and writes them
        self._counts = counts
        self._gets = counts[_GET]
        # The first bytes of a request that has no object of its own, unless it is of a usual kind.
        self._lone = b""
        self._kind = b""  # the kind of the request being forwarded
        self._keys: list[bytes] = []  # the keys of that request, if it has several
        self._observers: dict[bytes, CommandObserver] = {}

    def _take_others(self, data: bytes) -> int:
        if self._queue or self.lone.alone:
            return super()._take_others(data)
        self._lone = data[:3]
        taken = super()._take_others(data)
        if not self.lone.alone:
            self._lone = b""
        return taken

    def answer(self, reply: bytes) -> None:
        """Take the reply to a request that came alone; see `OrderedReplies`."""
        if self._lone or not self.lone.reads:
            self._counts[self._lone or _SET][head_of(reply)] += 1
            self._lone = b""
        else:  # known by its line
            self._gets[reply[:3]] += 1
        _answer(self, reply)

    def _forward(self, node: Target, data: bytes, request: Request) -> None:
        self._kind = b"set" if type(request) is Replaced else self._kind_of(data)
        super()._forward(node, data, request)
        self._kind = b""

    def _forward_all(self, whole: Whole | Any, parts: Sequence[tuple[Target, bytes]]) -> None:
        self._kind = parts[0][1][:3] if parts else b""
        super()._forward_all(whole, parts)
        self._kind = b""

    def _retrieve_several(
        self,
        name: str,
        keys: list[bytes],
        nodes: list[Target],
        command: bytes,
        data: bytes,
    ) -> None:
        self._keys = keys
        super()._retrieve_several(name, keys, nodes, command, data)
        self._keys = []

    def _begin(self, request: Request) -> None:
        super()._begin(request)
        if not self._kind:
            return
        if self._keys:
            request.observer = _OfKeys(
                self._counts, self._kind, self._keys, request, self.merger, request.observer
            )
        else:
            request.observer = self._observer_of(self._kind, request.observer)

    def _forward_batch(self, requests: list[bytes], targets: list[Target], *, reads: bool) -> bool:
        done = super()._forward_batch(requests, targets, reads=reads)
        if done:
            batch = self._queue[-1]
            if isinstance(batch, Batch):
                kinds = () if reads else tuple(map(_first_three, requests))
                batch.observer = _OfBatch(self._counts, kinds, targets, batch.parts, batch.observer)
        return done

    def _kind_of(self, data: bytes) -> bytes:
        return data[:3]

    def _observer_of(self, kind: bytes, inner: CommandObserver | None) -> CommandObserver:
        """Return an observer that counts a command; without `inner`, one is shared per kind."""
        if inner is not None:
            return _One(self._counts, kind, inner)
        found = self._observers.get(kind)
        if found is None:
            found = self._observers[kind] = _One(self._counts, kind, None)
        return found


class _CountedBinary(_Counted):
    """Counts binary commands."""

    def _kind_of(self, data: bytes) -> bytes:
        # TOUCH, or GAT of a key in base64; none of these flags could be in the key.
        touches = data.startswith(b"mg ") and (b" f T" in data or b" v T" in data)
        return b"tou" if touches else data[:3]

    def _observer_of(self, kind: bytes, inner: CommandObserver | None) -> CommandObserver:
        return _OnePacket(self._counts, kind, inner)


class CountedTextExecutor(_Counted, ProxyExecutor):
    """Forwards a text client's commands, and counts them."""


class CountedBinaryExecutor(_CountedBinary, BinaryProxyExecutor):
    """Forwards a binary client's commands, and counts them."""


class CountedQueuedTextExecutor(_Counted, QueuedTextExecutor):
    """Forwards a text client's commands through the queue, and counts them."""


class CountedQueuedBinaryExecutor(_CountedBinary, QueuedBinaryExecutor):
    """Forwards a binary client's commands through the queue, and counts them."""


class _Counting:
    """Observes a command for another observer as well."""

    __slots__ = ("_counts", "_inner")

    def __init__(self, counts: Counts, inner: CommandObserver | None) -> None:
        self._counts = counts
        self._inner = inner

    def ready(self) -> None:
        """See `CommandObserver`."""
        if self._inner is not None:
            self._inner.ready()

    def replied(self, replies: Sequence[Part]) -> None:
        """Count."""
        if self._inner is not None:
            self._inner.replied(replies)
        self._count(bytes(replies[0]) if replies else b"")

    def _count(self, reply: bytes) -> None:
        raise NotImplementedError


class _One(_Counting):
    """Counts text commands of one kind."""

    __slots__ = ("_kind",)

    def __init__(self, counts: Counts, kind: bytes, inner: CommandObserver | None) -> None:
        super().__init__(counts, inner)
        self._kind = kind

    def _count(self, reply: bytes) -> None:
        self._counts[self._kind][head_of(reply) if reply else NO_REPLY] += 1


class _OnePacket(_One):
    """Counts binary commands of one kind."""

    __slots__ = ()

    def _count(self, reply: bytes) -> None:
        self._counts[self._kind][status_of(reply) if reply else QUIET] += 1


class _OfKeys(_One):
    """Counts the keys of a retrieval of several.

    Args:
        counts: where to count.
        kind: the kind of the command.
        keys: the keys.
        request: the request.
        merger: finds the items in a reply.
        inner: another observer.
    """

    __slots__ = ("_keys", "_merger", "_request")

    def __init__(
        self,
        counts: Counts,
        kind: bytes,
        keys: list[bytes],
        request: Request,
        merger: Merger,
        inner: CommandObserver | None,
    ) -> None:
        super().__init__(counts, kind, inner)
        self._keys = keys
        self._request: Request | None = request
        self._merger = merger

    def _count(self, reply: bytes) -> None:
        request, self._request = self._request, None  # which refers to this object
        if not reply.startswith(_ITEMS):
            self._counts[self._kind][head_of(reply)] += len(self._keys)
            return
        if isinstance(request, MultiGet):
            missing = request.missing_keys
        else:
            missing = self._merger.items(self._keys, reply)[0].count(b"")
        self._counts[self._kind][_HIT] += len(self._keys) - missing
        self._counts[self._kind][_MISS] += missing


class _OfBatch:
    """Counts several requests that arrived together, and observes them for another observer.

    Args:
        counts: where to count.
        kinds: the kinds of the requests, in order; none if all of them are gets.
        nodes: the node of each.
        parts: the replies of each node, in order.
        inner: another observer.
    """

    __slots__ = ("_counts", "_inner", "_kinds", "_nodes", "_parts")

    def __init__(
        self,
        counts: Counts,
        kinds: Sequence[bytes],
        nodes: Sequence[object],
        parts: Mapping[object, BatchPart],
        inner: CommandObserver | None,
    ) -> None:
        self._counts = counts
        self._kinds = kinds
        self._nodes = nodes
        self._parts = parts
        self._inner = inner

    def ready(self) -> None:
        """See `CommandObserver`."""
        if self._inner is not None:
            self._inner.ready()

    def replied(self, replies: Sequence[Part]) -> None:
        """Count."""
        if self._inner is not None:
            self._inner.replied(replies)
        parts, self._parts = self._parts, {}  # they refer to this object
        if self._kinds:
            self._count_others(parts)
            return
        gets = self._counts[_GET]
        for part in parts.values():
            if part.bare:
                missing = part.replies.count(b"")
                gets[_HIT] += len(part.replies) - missing
                gets[_MISS] += missing
            else:
                for head in map(_first_three, part.replies):
                    gets[head] += 1

    def _count_others(self, parts: Mapping[object, BatchPart]) -> None:
        heads: dict[object, list[bytes]] = {}
        for node, part in parts.items():
            part.complete()
            heads[node] = list(map(_first_three, part.replies))
        counts = self._counts
        if all(map(_PLAIN.issuperset, heads.values())):
            # The usual case: these replies identify the command as well.
            for of_node in heads.values():
                counts[_GET][_HIT] += of_node.count(_HIT)
                counts[_GET][_MISS] += of_node.count(_MISS)
                counts[_SET][_STORED] += of_node.count(_STORED)
            return
        in_order = {node: map(head_of, part.replies) for node, part in parts.items()}
        for kind, node in zip(self._kinds, self._nodes, strict=True):
            counts[kind][next(in_order[node])] += 1
