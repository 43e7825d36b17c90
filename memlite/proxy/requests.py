"""Clients' requests in progress, and how the nodes' replies become the client's reply."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from memlite.protocol import replies
from memlite.proxy.framing import interleave
from memlite.proxy.merge import ITEMS, Merger
from memlite.server.execution.command_set import CommandObserver

__all__ = [
    "Flush",
    "KeysPart",
    "MultiGet",
    "MultiTouch",
    "Origin",
    "Quiet",
    "QuietRead",
    "Read",
    "Replaced",
    "Request",
    "Silent",
    "Whole",
]


class Origin(Protocol):
    """The executor that a request comes from."""

    def answered(self) -> None:
        """Note that a request was answered."""

    def count_failure(self) -> None:
        """Count a request, or a part of one, that failed."""

    def count_failed_shards(self, number: int) -> None:
        """Count parts of a retrieval whose keys are misses because a node failed."""

    def progressed(self) -> None:
        """Note that some of the replies to a batch have arrived."""

    @property
    def merger(self) -> Merger:
        """Finds the items in replies."""


class Request:
    """A request of a client; the node's reply is the client's.

    Args:
        executor: the client's.

    Attributes:
        reads: whether it changes nothing.
        reply: the reply; None while there is none; empty if none is to be sent.
        observer: notified of its progress; None if it is not observed.
        closes: whether the connection is to be closed after it.
        count: how many requests it stands for.
        waits: whether it stands for several, some of which have a reply not sent yet.
    """

    __slots__ = ("_executor", "closes", "observer", "reply")

    reads = False
    count = 1
    waits = False

    def __init__(self, executor: Origin) -> None:
        self._executor = executor
        self.reply: bytes | None = None
        self.observer: CommandObserver | None = None
        self.closes = False

    def answer(self, reply: bytes) -> None:
        """Take the reply."""
        self.reply = reply
        self._executor.answered()

    def fail(self, error: bytes) -> None:
        """Take the error that stands for the reply."""
        self._executor.count_failure()
        Request.answer(self, error)

    def available(self) -> bytes:
        """Return the replies that can be sent before the others arrive; see `Batch`."""
        return b""

    @property
    def held(self) -> int:
        """The bytes of the replies received so far."""
        return len(self.reply or b"")

    def discard(self) -> None:
        """Forget the replies received so far."""
        if self.reply:
            self.reply = b""


class Read(Request):
    """A request that changes nothing."""

    __slots__ = ()

    reads = True


class Silent(Request):
    """A request with ``noreply``. It is forwarded without it, so that the node's replies can always
    be matched to requests; the client gets no reply.
    """  # noqa: D205 - one sentence

    __slots__ = ()

    def answer(self, reply: bytes) -> None:
        """Discard the reply."""
        super().answer(b"")

    def fail(self, error: bytes) -> None:
        """Discard the error."""
        super().fail(b"")


class Quiet(Request):
    """A meta request with ``q``, which is forwarded without it, like `Silent`.

    Args:
        executor: the client's.
        hidden: the prefixes of replies that the client does not want.
    """

    __slots__ = ("_hidden",)

    def __init__(self, executor: Origin, hidden: tuple[bytes, ...]) -> None:
        super().__init__(executor)
        self._hidden = hidden

    def answer(self, reply: bytes) -> None:
        """Take the reply, or discard it."""
        super().answer(b"" if reply.startswith(self._hidden) else reply)


class QuietRead(Quiet):
    """A meta request with ``q`` that changes nothing."""

    __slots__ = ()

    reads = True


class Replaced(Request):
    """A request that is sent in place of the client's.

    Args:
        executor: the client's.
        instead: the reply, unless the node fails.
    """

    __slots__ = ("_instead",)

    def __init__(self, executor: Origin, instead: bytes) -> None:
        super().__init__(executor)
        self._instead = instead

    def answer(self, reply: bytes) -> None:
        """Answer the client."""
        super().answer(self._instead)


class _Part:
    """One node's part of a request that concerns several."""

    __slots__ = ("_index", "_whole")

    def __init__(self, whole: "Whole", index: int) -> None:
        self._whole = whole
        self._index = index

    @property
    def reads(self) -> bool:
        return self._whole.reads

    def answer(self, reply: bytes) -> None:
        self._whole.take(self._index, reply, failed=False)

    def fail(self, error: bytes) -> None:
        self._whole.take(self._index, error, failed=True)


class Whole(Request):
    """A request that concerns several nodes.

    Args:
        executor: the client's.
        nodes: how many.
    """

    __slots__ = ("_failed", "_missing", "_replies")

    def __init__(self, executor: Origin, nodes: int) -> None:
        super().__init__(executor)
        self._missing = nodes
        self._replies = [b""] * nodes
        self._failed = 0

    def part(self, index: int) -> Any:
        """Return the receiver for one of the nodes."""
        return _Part(self, index)

    def take(self, index: int, reply: bytes, *, failed: bool) -> None:
        """Take a node's reply."""
        self._replies[index] = reply
        self._missing -= 1
        if failed:
            self._failed += 1
            self._executor.count_failure()
        if not self._missing:
            self.answer(self.combined())

    @property
    def held(self) -> int:
        """The bytes of the replies received so far."""
        return len(self.reply or b"") + sum(map(len, self._replies))

    def combined(self) -> bytes:
        """Return the client's reply."""
        raise NotImplementedError


class KeysPart:
    """One node's part of a retrieval of keys that several nodes have."""

    __slots__ = ("_index", "_keys", "_whole")

    def __init__(self, whole: "MultiGet", index: int, keys: list[bytes]) -> None:
        self._whole = whole
        self._index = index
        self._keys = keys

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self._whole.reads

    def answer(self, reply: bytes) -> None:
        """Take the node's reply."""
        self._whole.take(self._index, reply, failed=False)

    def fail(self, error: bytes) -> None:
        """Take the error that stands for the reply."""
        self._whole.take(self._index, error, failed=True)

    def take_items(self, data: bytes, position: int) -> int:
        """Take the reply if it is complete and of the usual form.

        Args:
            data: bytes received from the node.
            position: where the reply begins.

        Returns:
            Where it ends; 0 if it was not taken.
        """
        whole = self._whole
        find = whole.merger.items if ITEMS is None else ITEMS
        items, end = find(self._keys, data, position)
        if data[end : end + 5] != replies.END:
            return 0
        whole.take_items(self._index, items)
        return end + 5


class MultiGet(Whole):
    """A retrieval of keys that several nodes have.

    Args:
        executor: the client's.
        keys: the keys of each node, in order.
        nodes: the node of each key of the request.
        strict: whether it fails if a node fails. Otherwise the keys of that node are misses, unless
            all nodes fail.

    Attributes:
        merger: finds the items in replies.
    """

    __slots__ = ("_items", "_keys", "_nodes", "_parts", "_strict", "merger")

    reads = True

    def __init__(
        self,
        executor: Origin,
        keys: Mapping[Any, list[bytes]],
        nodes: list[Any],
        *,
        strict: bool,
    ) -> None:
        count = len(keys)
        # Same as the constructors above: calling them takes as long as finding two items.
        self._executor = executor
        self.reply = None
        self.observer = None
        self.closes = False
        self._missing = count
        self._replies = [replies.END] * count
        self._failed = 0
        self._keys = list(keys.values())
        self._parts = keys
        self._nodes = nodes
        self._strict = strict
        self._items: list[list[bytes] | None] = [None] * count
        self.merger = executor.merger

    def part(self, index: int) -> KeysPart:
        """Return the receiver for one of the nodes."""
        return KeysPart(self, index, self._keys[index])

    def take_items(self, index: int, items: list[bytes]) -> None:
        """Take a node's reply as one item for each of its keys, empty for those it lacks."""
        self._items[index] = items
        self._missing -= 1
        if not self._missing:
            self.answer(self.combined())

    @property
    def held(self) -> int:
        """The bytes of the replies received so far."""
        if self.reply is not None:
            return len(self.reply)
        found = sum([sum(map(len, items)) for items in self._items if items is not None])
        return found + sum(map(len, self._replies))

    def discard(self) -> None:
        """Forget the replies received so far: their keys become misses."""
        Request.discard(self)
        usual = (b"VALUE ", replies.END)
        self._replies = [replies.END if one.startswith(usual) else b"" for one in self._replies]
        self._items = [None] * len(self._items)

    def take_all(self, of_nodes: Sequence[list[bytes] | bytes]) -> None:
        """Take all nodes' replies, for `combined`: each as items, or as the node has sent it."""
        self._items = [None if isinstance(one, bytes) else one for one in of_nodes]
        self._replies = [one if isinstance(one, bytes) else replies.END for one in of_nodes]

    @property
    def missing_keys(self) -> int:
        """How many keys had no item, once `combined` has returned items."""
        return sum([items.count(b"") for items in self._items if items is not None])

    def combined(self) -> bytes:
        """Return the items in the order of the keys."""
        if None in self._items:
            found = [reply.startswith((b"VALUE ", replies.END)) for reply in self._replies]
            if not all(found):
                if not any(found) or self._strict:
                    return self._replies[found.index(False)]
                self._executor.count_failed_shards(len(found) - sum(found))
            self._find_items()
        of_nodes = dict(zip(self._parts, cast("list[list[bytes]]", self._items), strict=True))
        return interleave(self._nodes, of_nodes, b"", replies.END)

    def _find_items(self) -> None:
        """Find the items in replies that were not taken as items."""
        find = self.merger.items
        for index, items in enumerate(self._items):
            if items is None:
                self._items[index] = find(self._keys[index], self._replies[index])[0]


class MultiTouch(MultiGet):
    """A retrieval of keys that several nodes have, with a new exptime for each."""

    __slots__ = ()

    reads = False


class Flush(Whole):
    """A command for all nodes."""

    __slots__ = ()

    def combined(self) -> bytes:
        """Return the first reply that is not ``OK``, else ``OK``."""
        return next((reply for reply in self._replies if reply != replies.OK), replies.OK)
