"""Finished moves of keys between nodes, while their requests are still in progress."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from memlite.proxy.changes import Changes
from memlite.proxy.moving import Moving
from memlite.proxy.moving_flush import AfterFlush
from memlite.proxy.node import Receiver
from memlite.proxy.resend import Target

__all__ = ["FinishedMoves"]

_MAX_WAITING: Final = 4096
_MAX_BYTES: Final = 64 * 1024 * 1024
_FULL: Final = b"SERVER_ERROR too many requests wait for keys that have moved\r\n"


class FinishedMoves:
    """Delays requests that would overtake earlier ones that a finished move is still serving.

    A finished move gets no further requests, so that its last request ends within a few
    deadlines, however busy a key is. A later one would miss the effects of other moves, and copies
    on other nodes. Delayed requests are sent in order of arrival.

    Args:
        find: returns the target of a key.
        forget: forgets which nodes keys have, so that `target` is asked.
        delivered: called after replies were handed out.
        changes: the changes in progress of keys that have copies.

    Attributes:
        active: whether there is such a move.
    """

    def __init__(
        self,
        find: Callable[[bytes], Target],
        forget: Callable[[], None],
        delivered: Callable[[], None],
        changes: Changes,
    ) -> None:
        self.active = False
        self._find = find
        self._forget = forget
        self._delivered = delivered
        self._changes = changes
        self._moves: list[Moving] = []
        self._missing = 0  # ends of requests in progress
        self._waiting: list[Callable[[], None]] = []
        self._keys: set[bytes] = set()  # of requests that wait
        self._all_wait = False  # for a request that concerns all keys
        self._bytes = 0

    def begin(self, moving: Moving) -> None:
        """Note that a move is over."""
        ends = moving.ends()
        if not ends:
            return
        self.active = True
        self._moves.append(moving)
        self._missing += len(ends)
        for end in ends:
            end.add_done_callback(self._ended)

    def _ended(self, _end: "asyncio.Future[None]") -> None:
        self._missing -= 1
        if self._missing:
            return
        self.active = False
        waiting, self._waiting = self._waiting, []
        self._moves.clear()
        self._keys.clear()
        self._all_wait = False
        self._bytes = 0
        for carry_out in waiting:
            carry_out()
        self._delivered()

    def target(self, key: bytes) -> Target | None:
        """Return the target of requests for a key; None for its usual target."""
        if self._changes.resuming:
            return None  # the request waited for a change, and came before those that wait here
        waiting = _Waiting(self, key, partial(self._find, key))
        for moving in self._moves:
            if moving.flushes:
                return AfterFlush(moving.flushing, waiting)
        known = self._all_wait or key in self._keys
        return waiting if known or any(moving.uses(key) for moving in self._moves) else None

    def everyone(self, find: Callable[[], Target]) -> Target:
        """Return the target of a request for all nodes; `find` is called after the wait."""
        return _Waiting(self, None, find)

    def send(
        self, key: bytes | None, find: Callable[[], Target], request: bytes, receiver: Receiver
    ) -> None:
        """Queue a request, or send it if there is nothing left to wait for."""
        if not self.active:
            find().send(request, receiver)
            return
        if key is None:
            for moving in self._moves:
                if moving.flushes:  # after the requests that wait for that flush
                    moving.flushing.wait(partial(self.send, None, find, request, receiver))
                    return
        if len(self._waiting) >= _MAX_WAITING or self._bytes + len(request) > _MAX_BYTES:
            receiver.fail(_FULL)
            return
        self._bytes += len(request)
        if key is None:
            self._all_wait = True
            self._forget()
        else:
            self._keys.add(key)
        self._waiting.append(lambda: find().send(request, receiver))


class _Waiting:
    """The target of requests that wait for those of a finished move."""

    __slots__ = ("_find", "_key", "_moves")

    def __init__(self, moves: FinishedMoves, key: bytes | None, find: Callable[[], Target]) -> None:
        self._moves = moves
        self._key = key
        self._find = find

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; see `Node.send`."""
        self._moves.send(self._key, self._find, request, receiver)
