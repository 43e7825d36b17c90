"""Requests whose replies are due, and how the nodes' replies become the client's."""

from collections.abc import Sequence
from typing import Protocol

from memlite.protocol import replies
from memlite.proxy.merge import merge
from memlite.server.execution.command_set import CommandObserver

__all__ = [
    "Flush",
    "MultiGet",
    "MultiTouch",
    "Origin",
    "Quiet",
    "QuietRead",
    "Read",
    "Replaced",
    "Request",
    "Silent",
]


class Origin(Protocol):
    """The executor that a request comes from."""

    def answered(self) -> None:
        """Note that a request was answered."""

    def count_failure(self) -> None:
        """Count a request, or a part of one, that failed."""

    def count_failed_shards(self, number: int) -> None:
        """Count parts of a retrieval whose keys are misses because a node failed."""


class Request:
    """A request of a client; the node's reply is the client's.

    Args:
        executor: the client's.

    Attributes:
        reads: whether it changes nothing.
        reply: the reply; None while there is none; empty if none is to be sent.
        observer: is told of its progress; None if it is not observed.
        closes: whether the connection is to be closed after it.
    """

    __slots__ = ("_executor", "closes", "observer", "reply")

    reads = False

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


class Read(Request):
    """A request that changes nothing."""

    __slots__ = ()

    reads = True


class Silent(Request):
    """A request with ``noreply``. It is forwarded without, so that the node's replies can be told
    apart whatever happens; the client gets none.
    """  # noqa: D205 - one sentence

    __slots__ = ()

    def answer(self, reply: bytes) -> None:
        """Discard the reply."""
        super().answer(b"")

    def fail(self, error: bytes) -> None:
        """Discard the error."""
        super().fail(b"")


class Quiet(Request):
    """A meta request with ``q``, which is forwarded without, as `Silent`.

    Args:
        executor: the client's.
        hidden: what replies begin with that the client does not want.
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
    """What one node was asked for a request that concerns several."""

    __slots__ = ("_index", "_whole")

    def __init__(self, whole: "_Whole", index: int) -> None:
        self._whole = whole
        self._index = index

    @property
    def reads(self) -> bool:
        return self._whole.reads

    def answer(self, reply: bytes) -> None:
        self._whole.take(self._index, reply, failed=False)

    def fail(self, error: bytes) -> None:
        self._whole.take(self._index, error, failed=True)


class _Whole(Request):
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

    def part(self, index: int) -> _Part:
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

    def combined(self) -> bytes:
        """Return the client's reply."""
        raise NotImplementedError


class MultiGet(_Whole):
    """A retrieval of keys that several nodes have.

    Args:
        executor: the client's.
        nodes: how many nodes.
        keys: each key with the number of its node's part, in order.
        strict: whether it fails if a node fails. Otherwise the keys of that node are misses, unless
            all nodes fail.
    """

    __slots__ = ("_keys", "_strict")

    reads = True

    def __init__(
        self, executor: Origin, nodes: int, keys: Sequence[tuple[bytes, int]], *, strict: bool
    ) -> None:
        super().__init__(executor, nodes)
        self._keys = keys
        self._strict = strict

    def combined(self) -> bytes:
        """Return the items in the order of the keys."""
        found = [reply.startswith((b"VALUE ", b"END\r\n")) for reply in self._replies]
        if not any(found) or (self._strict and not all(found)):
            return self._replies[found.index(False)]
        if not all(found):
            self._executor.count_failed_shards(len(found) - sum(found))
        return merge(self._keys, self._replies)


class MultiTouch(MultiGet):
    """A retrieval of keys that several nodes have, with a new exptime for them."""

    __slots__ = ()

    reads = False


class Flush(_Whole):
    """A command for all nodes."""

    __slots__ = ()

    def combined(self) -> bytes:
        """Return the first reply that is not ``OK``, or that."""
        return next((reply for reply in self._replies if reply != replies.OK), replies.OK)
