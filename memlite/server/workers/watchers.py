"""``watch``: events of all workers reach a watcher of any of them."""

import asyncio
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from memlite.server.admin.watchers import EVICTIONS, STREAMS, Watcher, Watchers
from memlite.server.interfaces import Client
from memlite.server.workers.board import Board, Cell, Topic
from memlite.server.workers.member import Member

if TYPE_CHECKING:
    from memlite.engine.evicted import Evicted

__all__ = ["WorkerWatchers"]

_HEAD: Final = struct.Struct("<BII")
"""Header of each line sent to another worker: the index of its stream, how many lines of that
stream were dropped before it, and its length."""
# Bytes of lines in a datagram, unless one line is longer. The kernel queues ten unread datagrams.
_DATAGRAM: Final = 64 * 1024
# A whole segment of items is evicted at once. At most this many lines are produced per turn of the
# event loop.
_EVICTED_AT_ONCE: Final = 100
_EVICTED_SECONDS: Final = 0.01


class WorkerWatchers(Watchers):
    """Also sends lines to other workers that have watchers, and receives theirs.

    Call `join` first.
    """

    _member: Member
    _evicted: "Evicted | None" = None
    _look: asyncio.TimerHandle | None = None

    def join(self, member: Member, evicted: "Evicted | None") -> None:
        """Exchange events with other workers.

        Args:
            member: this worker.
            evicted: collects the items evicted from a table that the workers share; None without.
        """
        self._member = member
        self._evicted = evicted
        self._elsewhere: dict[int, _Outbox] = {}

    def add(self, words: Sequence[bytes], client: Client) -> bytes:
        """Make a connection a watcher; other workers send their events before it gets a reply."""
        reply = super().add(words, client)
        if not reply:
            self._publish()
        return reply

    def _remove(self, watcher: Watcher) -> None:
        super()._remove(watcher)
        self._publish()

    def _publish(self) -> None:
        kinds = {kind for one in self._watchers for kind in one.kinds}
        mask = sum(1 << place for place, kind in enumerate(STREAMS) if kind in kinds)
        board, number = self._member.board, self._member.number
        board.write(number, Cell.WATCHERS, len(self._watchers))
        if board.read(number, Cell.WATCHED) != mask:
            board.write(number, Cell.WATCHED, mask)
            self._member.ask(Topic.CONTROL)

    def update(self) -> None:
        """Update the streams that clients of other workers watch."""
        self._update_subscriptions()

    def _count(self) -> int:
        board, number = self._member.board, self._member.number
        return len(self._watchers) + sum(
            board.read(one, Cell.WATCHERS) for one in board.others(number)
        )

    def _update_subscriptions(self) -> None:
        board, number = self._member.board, self._member.number
        watching = [one for one in board.others(number) if board.read(one, Cell.WATCHED)]
        self._elsewhere = {
            one: self._elsewhere.get(one) or _Outbox(board, one, self._buffer_bytes)
            for one in watching
        }
        super()._update_subscriptions()
        if self._evicted is None:
            return
        wanted = EVICTIONS in self._watchers_of
        self._evicted.follow(wanted)
        if self._look is not None and not wanted:
            self._look.cancel()
            self._look = None
        elif self._look is None and wanted:
            self._look_soon(_EVICTED_SECONDS)

    def _watchers_for(self, kind: str) -> list[Watcher]:
        place = STREAMS.index(kind)
        return [
            *super()._watchers_for(kind),
            *(
                _RemoteWatchers(kind, place, outbox, self)
                for outbox in self._elsewhere.values()
                if outbox.wants(place)
            ),
        ]

    # Evictions, which are not reported while segments are locked

    def _look_soon(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(seconds, self._show_evicted)

    def _show_evicted(self) -> None:
        assert self._evicted is not None  # noqa: S101 - it is followed
        for key, item in self._evicted.take(_EVICTED_AT_ONCE):
            self.evicted(key, item)
        missed = self._evicted.missed
        for watcher in self._watchers_of[EVICTIONS]:
            watcher.skipped += missed
            self.skipped += missed
        self._look_soon(0 if self._evicted else _EVICTED_SECONDS)

    # Lines from and to other workers

    def _next_event(self, last: int) -> int:
        # Unique among all workers, and ascending within each.
        member = self._member
        return max(last + member.board.workers, member.board.workers + member.number)

    def _flush(self) -> None:
        super()._flush()
        for outbox in list(self._elsewhere.values()):
            if not outbox.watching:  # the other worker has ended
                self._update_subscriptions()
            elif not outbox.send():
                self._flush_soon()

    def receive(self, message: bytes) -> None:
        """Send the lines of another worker to local watchers."""
        at = 0
        while at < len(message):
            place, skipped, length = _HEAD.unpack_from(message, at)
            at += _HEAD.size
            self._show(STREAMS[place], skipped, message[at : at + length])
            at += length
        self._flush_soon()

    def _show(self, kind: str, skipped: int, line: bytes) -> None:
        for watcher in self._watchers:
            if kind not in watcher.kinds:
                continue
            watcher.skipped += skipped
            if watcher.has_room:
                watcher.put(line)
                self.sent += 1
            else:
                watcher.skipped += 1
                self.skipped += 1


class _Outbox:
    """Lines for the watchers of another worker.

    Args:
        board: transports them.
        worker: the number of that worker.
        limit: bytes that may wait. The line that exceeds it is the last to be accepted.
    """

    def __init__(self, board: Board, worker: int, limit: int) -> None:
        self._board = board
        self._worker = worker
        self._limit = limit
        self._lines: list[bytes] = []
        self._size = 0

    def wants(self, place: int) -> bool:
        """Return whether there are watchers of a stream."""
        return bool(self._board.read(self._worker, Cell.WATCHED) >> place & 1)

    @property
    def watching(self) -> bool:
        """Whether there are any watchers."""
        return self._board.read(self._worker, Cell.WATCHED) != 0

    @property
    def has_room(self) -> bool:
        """Whether it can take another line."""
        return self._size < self._limit

    def put(self, place: int, skipped: int, line: bytes) -> None:
        """Queue a line, after the given number of dropped ones."""
        self._lines.append(_HEAD.pack(place, skipped, len(line)) + line)
        self._size += len(line)

    def send(self) -> bool:
        """Send the queued lines; return False if the worker lags and some lines must wait."""
        while self._lines:
            size, count = 0, 0
            for line in self._lines:
                size += len(line)
                if count and size > _DATAGRAM:
                    break
                count += 1
            if not self._board.send(self._worker, b"".join(self._lines[:count])):
                return False
            del self._lines[:count]
        self._size = 0
        return True


class _RemoteWatchers(Watcher):
    """The watchers of a stream that are clients of another worker."""

    def __init__(self, kind: str, place: int, outbox: _Outbox, owner: Watchers) -> None:
        self.kinds = {kind}
        self.skipped = 0
        self._place = place
        self._outbox = outbox
        self._owner = owner

    @property
    def has_room(self) -> bool:
        """Whether it can take another line."""
        return self._outbox.has_room

    def put(self, line: bytes) -> None:
        """Queue a line; the other worker counts the watchers to which it is sent."""
        self._owner.sent -= 1
        self._outbox.put(self._place, self.skipped, line)
        self.skipped = 0
