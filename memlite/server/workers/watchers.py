"""``watch``: events of all workers reach a watcher of any of them."""

from collections.abc import Callable, Sequence

from memlite.server.admin.watchers import STREAMS, Watcher, Watchers
from memlite.server.interfaces import Client
from memlite.server.workers.board import Cell, Topic
from memlite.server.workers.member import Member

__all__ = ["WorkerWatchers"]


class WorkerWatchers(Watchers):
    """Sends lines also to other workers that have watchers, and takes theirs.

    A line is a datagram of the number of its stream and the line. `join` has to be called first.
    """

    _member: Member

    def join(self, member: Member) -> None:
        """Exchange events with other workers."""
        self._member = member

    def add(self, words: Sequence[bytes], client: Client) -> bytes:
        """Make a connection a watcher, and have others send their events before it is told."""
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
        """Take notice of what clients of other workers watch."""
        self._update_subscriptions()

    def _count(self) -> int:
        board, number = self._member.board, self._member.number
        return len(self._watchers) + sum(
            board.read(one, Cell.WATCHERS) for one in board.others(number)
        )

    def _watchers_for(self, kind: str) -> list[Watcher]:
        board, number = self._member.board, self._member.number
        place = STREAMS.index(kind)
        return [
            *super()._watchers_for(kind),
            *(
                _Elsewhere(kind, self._sender(one, place))
                for one in board.others(number)
                if board.read(one, Cell.WATCHED) >> place & 1
            ),
        ]

    def _sender(self, worker: int, place: int) -> Callable[[bytes], None]:
        def send(line: bytes) -> None:
            self.sent -= 1  # the other counts to how many it is sent
            if not self._member.board.send(worker, bytes([place]) + line):
                self.skipped += 1

        return send

    def _next_event(self, last: int) -> int:
        # Unique among all workers, and each one's ascend.
        member = self._member
        return max(last + member.board.workers, member.board.workers + member.number)

    def receive(self, message: bytes) -> None:
        """Send local watchers a line of another worker."""
        kind, line = STREAMS[message[0]], message[1:]
        for watcher in self._watchers:
            if kind not in watcher.kinds:
                continue
            if watcher.has_room:
                watcher.put(line)
                self.sent += 1
            else:
                watcher.skipped += 1
                self.skipped += 1
        self._flush_soon()


class _Elsewhere(Watcher):
    """The watchers of another worker."""

    has_room = True

    def __init__(self, kind: str, send: Callable[[bytes], None]) -> None:
        self.kinds = {kind}
        self.skipped = 0
        self._send = send

    def put(self, line: bytes) -> None:
        """Send a line."""
        self._send(line)
