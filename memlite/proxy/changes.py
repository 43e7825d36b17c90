"""Changes of keys that have copies: held first, then made at the primary, then released.

See docs/decisions/0039-copies-are-held-while-a-key-changes.md for why nothing stale is read.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from memlite.proxy.absences import Absence, Absences, may_skip
from memlite.proxy.answers import Answer
from memlite.proxy.leftover_holds import builds_on_item, remove_leftover
from memlite.proxy.node import Node, Receiver
from memlite.proxy.replica_requests import (
    HELD,
    Key,
    copied,
    drop,
    fill,
    hold,
    is_read,
    number,
    state,
)

__all__ = ["Change", "Changes", "Primary"]

_MAX_WAITING: Final = 16_384  # requests that wait for one key, or for a flush
_MAX_BYTES: Final = 64 * 1024 * 1024  # of changes in progress and all waiting requests
# The beginnings of replies if the primary has not made the change.
_UNCHANGED: Final = (
    *(b"NOT_STORED", b"EXISTS", b"NOT_FOUND", b"NS", b"EX", b"NF", b"EN"),
    *(b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR"),
)


class Changes:
    """The changes in progress: one for each key, and requests that wait for them.

    Args:
        hold_seconds: seconds after which a hold that is not released expires.
        over_after: seconds after which a change that has placed a hold is over; None if that is not
            known.
        clock: returns seconds that never decrease.

    Attributes:
        hold_seconds: as above.
        absences: the notes about nodes that miss changes; None if no node can miss any.
        newest_left: the most seconds that a hold can have left if its change must be over.
        now: the clock.
        holds: how many copies were held.
        left: how many holds were left to expire: another proxy has changed the key meanwhile, or
            it is not known whether the change was made.
        replica_reads: how many requests were sent to copies other than the primary.
        fills: how many copies were filled after a read.
    """

    def __init__(
        self,
        hold_seconds: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        over_after: float | None = None,
    ) -> None:
        self.hold_seconds = hold_seconds
        self.absences: Absences | None = None
        # Nodes report the time left in whole seconds.
        self.newest_left = -1.0 if over_after is None else hold_seconds - over_after - 1
        self._changed_until = 0.0
        self.now = clock
        self.busy: dict[bytes, deque[Callable[[], None]]] = {}
        self.filling: set[bytes] = set()
        self._behind_flush: deque[Callable[[], None]] | None = None
        self._flush: Callable[[], None] | None = None
        self._bytes = 0
        self._entered = False  # whether a read has its turn at all of its keys
        self._resuming = False
        self.reset()

    def reset(self) -> None:
        """Start counting from zero."""
        self.holds = self.left = self.replica_reads = self.fills = 0

    def nodes_changed(self) -> None:
        """Note that keys have other primaries from now on, which may have holds.

        Other proxies may learn of the change later, and place holds there until then.
        """
        self._changed_until = self.now() + 2 * self.hold_seconds

    @property
    def may_have_leftovers(self) -> bool:
        """Whether there may be holds at the primaries of keys."""
        return self.now() < self._changed_until

    @property
    def idle(self) -> bool:
        """Whether no request has to wait."""
        return not self.busy and self._behind_flush is None

    @property
    def resuming(self) -> bool:
        """Whether the request being sent has waited for a change, and so came before any flush."""
        return self._resuming

    def waits(self, key: bytes) -> bool:
        """Return whether a request for a key would have to wait."""
        return key in self.busy or self._behind_flush is not None

    def wait(
        self, keys: Sequence[bytes], again: Callable[[], None], receiver: Receiver, size: int = 0
    ) -> bool:
        """Queue a request, if it must wait for its turn.

        Args:
            keys: its keys; a request with several must be a read.
            again: sends the request again.
            receiver: receives an error if too many requests wait, or too large ones.
            size: the size of the request, in bytes.

        Returns:
            False if the request need not wait, and may be sent.
        """
        queue = self._behind_flush
        if queue is None:
            if self._entered:
                return False
            queue = next((self.busy[key] for key in keys if key in self.busy), None)
        if size and self._bytes + size > _MAX_BYTES:  # reads are never too large
            receiver.fail(b"SERVER_ERROR too many large changes are in progress\r\n")
            return True
        if queue is None:
            return False
        if len(queue) >= _MAX_WAITING:
            receiver.fail(b"SERVER_ERROR too many requests wait for a change of the same key\r\n")
        elif len(keys) == 1 or queue is self._behind_flush:
            self._bytes += size
            queue.append(partial(self._resume, again, size))
        else:
            self._reserve(dict.fromkeys(keys), again)
        return True

    def _resume(self, again: Callable[[], None], size: int) -> None:
        self._bytes -= size
        again()

    def begin(self, key: bytes, size: int) -> None:
        """Note that a change begins; `size` is the size of its request in bytes."""
        self.busy[key] = deque()
        self._bytes += size

    def end(self, key: bytes, size: int) -> None:
        """Note that a change is over; see `finished`."""
        self._bytes -= size
        self.finished(key)

    def _reserve(self, keys: Iterable[bytes], read: Callable[[], None]) -> None:
        """Queue a read for all of its keys at once, so that no later request overtakes it."""
        keys = list(keys)
        missing = len(keys)

        def turn_at(key: bytes) -> None:
            nonlocal missing
            self.busy[key] = deque()
            missing -= 1
            if missing:
                return
            self._entered = True
            read()
            self._entered = False
            for one in keys:
                self.finished(one)

        for key in keys:
            if key in self.busy:
                self.busy[key].append(partial(turn_at, key))
            else:
                turn_at(key)

    def finished(self, key: bytes) -> None:
        """Note that a change is over, and send the requests that wait for it."""
        waiting = self.busy.pop(key)
        # Requests that wait for the key came before a flush that waits for it as well.
        behind, self._behind_flush = self._behind_flush, None
        outermost, self._resuming = not self._resuming, True
        while waiting and key not in self.busy:
            waiting.popleft()()
        if waiting:
            self.busy[key].extendleft(reversed(waiting))
        self._behind_flush = behind
        if not outermost:
            return
        self._resuming = False
        if self._flush is not None and not self.busy:
            flush, self._flush = self._flush, None
            flush()

    def flush(self, begin: Callable[[], None], again: Callable[[], None]) -> None:
        """Begin a flush when the changes in progress are over; later requests wait for its end.

        Args:
            begin: begins the flush.
            again: requests it again, if another is in progress.
        """
        if self._behind_flush is not None:
            self._behind_flush.append(again)
            return
        self._behind_flush = deque()
        if self.busy:
            self._flush = begin
        else:
            begin()

    def flushed(self) -> None:
        """Note that the flush is over."""
        waiting, self._behind_flush = self._behind_flush, None
        for again in waiting or ():
            again()


class Primary(Protocol):
    """The authority for a key: a node, or the two between which the key moves.

    Attributes:
        name: the name for messages.
        down: whether it refuses requests at once.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see the class

    @property
    def down(self) -> bool: ...  # noqa: D102 - see the class

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; see `Node.send`."""


class _Copy:
    """A copy during a change.

    Attributes:
        node: the node that has it.
        unique: the cas unique of the hold, if nothing else has come in between; else 0.
        until: when the hold that this one has replaced expires; 0 if there was none.
    """

    __slots__ = ("node", "present", "unique", "until")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.unique = 0
        self.until = 0.0
        self.present = False


class Change:
    """A change of one key.

    Args:
        changes: the changes in progress.
        key: the key.
        request: the client's request.
        receiver: takes the reply.
        primary: carries out the request.
        replicas: the nodes that have copies.
        write: what the reply waits for: ``all``, ``majority`` or ``primary``.
        fills: whether copies get the new item at once, or are dropped.
    """

    def __init__(
        self,
        changes: Changes,
        key: Key,
        request: bytes,
        receiver: Receiver,
        primary: Primary,
        replicas: Sequence[Node],
        write: str,
        *,
        fills: bool = True,
    ) -> None:
        self._changes = changes
        self._key = key
        self._request = request
        self._receiver = receiver
        self._primary = primary
        self._copies = [_Copy(node) for node in replicas]
        self._away: list[Node] = []  # replicas that are down
        self._skips: Sequence[Absence] = ()
        self._fills = fills
        size = len(replicas) + 1
        self._needed = {"all": size, "majority": size // 2 + 1, "primary": 1}[write]
        self._pending = 0
        self._error = b""  # why the change cannot be made
        self._missed = b""  # why a copy lacks the change
        self._reply: bytes | None = None
        self._done = 0

    def start(self, busy: bytes) -> None:
        """Begin.

        Args:
            busy: the name of the key in `Changes`.
        """
        self._busy = busy
        self._changes.begin(busy, len(self._request))
        if self._primary.down:
            self._primary.send(self._request, self._receiver)  # which refuses it
            self._changes.end(busy, len(self._request))
            return
        self._pending = len(self._copies)
        for copy in self._copies:
            self._hold(copy)

    # Holding

    def _hold(self, copy: _Copy) -> None:
        """Hold a copy, and see whether another proxy's hold was there.

        Such a hold may protect a change that is still to be made. It is restored after this
        change.
        """
        seconds = self._changes.hold_seconds
        self._changes.holds += 1

        def added(reply: bytes, failed: bool) -> None:
            copy.unique = 0 if failed else number(reply, b"c") or 0
            copy.present = not failed and reply.startswith(b"NS")
            if not failed and not copy.present and not copy.unique:
                self._cannot_hold(copy, reply)

        def seen(reply: bytes, failed: bool) -> None:
            if failed or not copy.present:
                self._held(copy, reply, failed)
                return
            unique = number(reply, b"c") or 0
            if not unique:
                copy.node.send(hold(self._key, seconds), Answer(forced))
                return
            lasts = seconds
            if number(reply, b"f") == HELD:
                left = number(reply, b"t")
                left = seconds if left is None or left < 0 else left + 1
                copy.until = self._changes.now() + left
                lasts = max(left, seconds)
            copy.node.send(hold(self._key, lasts, unique=unique), Answer(replaced))

        def replaced(reply: bytes, failed: bool) -> None:
            if failed or reply.startswith(b"HD"):
                copy.unique = 0 if failed else number(reply, b"c") or 0
                self._held(copy, reply, failed)
            else:
                copy.node.send(hold(self._key, seconds), Answer(forced))

        def forced(reply: bytes, failed: bool) -> None:
            if not failed and not reply.startswith(b"HD"):
                self._cannot_hold(copy, reply)
            self._held(copy, reply, failed)

        copy.node.send(hold(self._key, seconds, only_if_absent=True), Answer(added))
        copy.node.send(state(self._key), Answer(seen, reads=True))

    def _cannot_hold(self, copy: _Copy, reply: bytes) -> None:
        """Note that a node has refused a hold: it may keep a copy, so the change is not made."""
        self._error = self._error or _error_of(copy.node, reply)

    def _held(self, copy: _Copy, reply: bytes, failed: bool) -> None:
        if failed:
            # A node that is down is emptied before it serves again. Any other node would keep
            # its copy.
            self._missed = self._missed or _error_of(copy.node, reply)
            if copy.node.down:
                self._away.append(copy.node)
            else:
                self._error = self._error or _error_of(copy.node, reply)
            self._copies = [other for other in self._copies if other is not copy]
        self._pending -= 1
        if not self._pending:
            self._execute()

    def _execute(self) -> None:
        error = self._error
        if not error and 1 + len(self._copies) < self._needed:
            error = self._missed
        if error:
            self._refuse(error)
        elif self._changes.may_have_leftovers and builds_on_item(self._request):
            newest = self._changes.newest_left
            remove_leftover(self._primary, self._key, newest, self._without_leftover)
        else:
            self._without_leftover(b"")

    def _without_leftover(self, error: bytes) -> None:
        if error:
            self._refuse(error)
        elif self._away and self._changes.absences is not None:
            absences = [node.returning.absence for node in self._away]
            self._skips = [absence for absence in absences if absence is not None]
            may_skip(self._skips, self._noted)
        else:
            self._primary.send(self._request, Answer(self._executed))

    def _noted(self, error: bytes) -> None:
        """Have the primary make the change, unless a node that was to miss it is back."""
        back = [node for node in self._away if not node.down]
        if error:
            self._refuse(error)
        elif back:
            self._away = [node for node in self._away if node.down]
            self._skips = ()
            copies = [_Copy(node) for node in back]
            self._copies += copies
            self._pending = len(copies)
            for copy in copies:
                self._hold(copy)
        else:
            for node in self._away:
                node.returning.missed = True  # it may have been back, and emptied, meanwhile
            for absence in self._skips:
                absence.skips += 1
            self._primary.send(self._request, Answer(self._executed))

    def _refuse(self, error: bytes) -> None:
        self._answer(error, failed=True)
        self._release(None)

    # Releasing

    def _executed(self, reply: bytes, failed: bool) -> None:
        for absence in self._skips:
            absence.skips -= 1
        if failed:
            # The change may still be made. The holds must outlast it.
            self._changes.left += len(self._copies)
            self._answer(reply, failed=True)
            self._changes.end(self._busy, len(self._request))
            return
        self._reply = reply
        self._has(None)
        self._release(copied(self._request, reply) if self._fills else None)

    def _release(self, item: tuple[bytes, bytes, bytes] | None) -> None:
        self._pending = len(self._copies)
        if not self._pending:
            self._end()
        for copy in list(self._copies):
            if copy.unique:
                copy.node.send(self._request_of(copy, item), Answer(self._releasing(copy)))
            else:
                self._changes.left += 1
                self._released(copy, b"", False)

    def _request_of(self, copy: _Copy, item: tuple[bytes, bytes, bytes] | None) -> bytes:
        """Return the request that replaces a hold: by an earlier hold, the item or nothing."""
        left = math.ceil(copy.until - self._changes.now())
        if left > 0:
            self._changes.left += 1
            return hold(self._key, left, unique=copy.unique)
        if item is None:
            return drop(self._key, copy.unique)
        return fill(self._key, copy.unique, *item)

    def _releasing(self, copy: _Copy) -> Callable[[bytes, bool], None]:
        def released(reply: bytes, failed: bool) -> None:
            if failed or reply.startswith(b"HD"):
                self._released(copy, reply, failed)
                return
            # The hold is no longer there, or cannot be replaced: another hold is always safe.
            self._changes.left += 1
            request = hold(self._key, self._changes.hold_seconds)
            copy.node.send(request, Answer(lambda *taken: self._released(copy, *taken)))

        return released

    def _released(self, copy: _Copy, reply: bytes, failed: bool) -> None:
        if failed:
            self._missed = self._missed or _error_of(copy.node, reply)
        else:
            self._has(copy)
        self._pending -= 1
        if not self._pending:
            self._end()

    def _has(self, _copy: _Copy | None) -> None:
        """Count a node that has carried out the change."""
        self._done += 1
        if self._done == self._needed and self._reply is not None:
            self._answer(self._reply, failed=False)

    def _end(self) -> None:
        if self._reply is not None and self._done < self._needed:
            if self._reply.startswith(_UNCHANGED) and not is_read(self._request):
                self._answer(self._reply, failed=False)
            else:
                made = b"; the primary has made the change\r\n"
                self._answer(self._missed.removesuffix(b"\r\n") + made, failed=True)
        self._changes.end(self._busy, len(self._request))

    def _answer(self, reply: bytes, *, failed: bool) -> None:
        if failed:
            self._receiver.fail(reply)
        else:
            self._receiver.answer(reply)


def _error_of(node: Node, reply: bytes) -> bytes:
    text = reply.removeprefix(b"SERVER_ERROR ").removeprefix(b"node ").strip()
    name = node.name.encode("ascii", "backslashreplace")
    if text.startswith(name + b": "):
        text = text[len(name) + 2 :]
    return b"SERVER_ERROR replica %b: %b\r\n" % (name, text)
