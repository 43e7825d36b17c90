"""A connection for plain gets and sets: what most measurements consist of, at half the cost."""

from time import perf_counter_ns
from typing import TYPE_CHECKING

from memlite.errors import ProtocolViolation
from memlite.loadtest.clients.link import Link
from memlite.loadtest.plain import PlainOperations
from memlite.protocol.client import Reply, ReplyReader, outliner

if TYPE_CHECKING:
    from memlite.loadtest.clients.text import TextClients

__all__ = ["PlainConnection"]


class PlainConnection(Link):
    """Sends requests, and the next when all of them are answered.

    Replies that come as they were hoped for, which is nearly always, are counted all at once.

    Args:
        clients: whose connection it is.
        operations: what is sent.
    """

    def __init__(self, clients: "TextClients", operations: PlainOperations) -> None:
        super().__init__(clients)
        self._take = operations.take
        self._pipeline = clients.settings.pipeline
        self._outline = outliner(operations.size, lite=clients.settings.lite)
        self._reader = ReplyReader()
        # Of what is under way: the replies hoped for, a letter each; when it was sent, in
        # nanoseconds; and how many replies have come, if they did not come as hoped for.
        self._hoped = b""
        self._sent = 0
        self._come = 0
        self._parted = False

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return bool(self._hoped)

    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been waited for since `moment`, in nanoseconds, or longer."""
        return bool(self._hoped) and self._sent < moment

    def _forget(self) -> int:
        left = len(self._hoped) - self._come
        self._hoped = b""
        return left

    def fill(self) -> None:
        """Make as many requests as may be under way."""
        clients = self._clients
        if not clients.stopped and self.connected:
            requests, self._hoped = self._take(self._pipeline)
            if requests:
                self._recorder.counts.sent += len(requests)
                self._sent = perf_counter_ns()
                self._transport.write(requests)
                return
        self._hoped = b""
        clients.settle()

    def data_received(self, data: bytes) -> None:
        """Write down what has come, and go on."""
        now = perf_counter_ns()
        recorder = self._recorder
        if now >= recorder.turn:
            recorder.next_second(now)
        recorder.last = now
        counts = recorder.counts
        counts.received += len(data)
        hoped, count = self._hoped, len(self._hoped)
        letters = self._outline(data)
        found = b"".join(letters)
        # A miss is as good an answer as a hit; anything else takes the long way.
        as_hoped = found == hoped or found.replace(b"E", b"V") == hoped
        if self._parted or len(letters) != count or not as_hoped:
            self._one_by_one(data, now)
            return
        counts.operations += count
        microseconds = (now - self._sent) // 1000
        gets = hoped.count(b"V")
        if gets:
            hits = found.count(b"V")
            counts.hits += hits
            counts.misses += gets - hits
            tally = recorder.response["get"]
            tally[microseconds] = tally.get(microseconds, 0) + gets
        if gets != count:
            tally = recorder.response["set"]
            tally[microseconds] = tally.get(microseconds, 0) + count - gets
        self.fill()

    def _one_by_one(self, data: bytes, now: int) -> None:
        self._parted = True
        try:
            replies = self._reader.feed(data)
        except ProtocolViolation as error:
            self.give_up(str(error))
            return
        for reply in replies:
            if self._come == len(self._hoped):
                self.give_up("a reply too many")
                return
            self._note(self._hoped[self._come], reply, now)
            self._come += 1
        if replies and self._come == len(self._hoped):
            self._parted = self._reader.pending
            self._come = 0
            self.fill()

    def _note(self, letter: int, reply: Reply, now: int) -> None:
        recorder = self._recorder
        counts = recorder.counts
        kind = "get" if letter == _V else "set"
        if letter == _V and (reply == 0 or reply == 1):
            counts.hits += reply
            counts.misses += 1 - reply
        elif letter == _V or reply != b"STORED":
            text = reply.decode("latin-1") if type(reply) is bytes else "a value too many"
            self._clients.failed(text[:100])
            return
        counts.operations += 1
        tally = recorder.response[kind]
        microseconds = (now - self._sent) // 1000
        tally[microseconds] = tally.get(microseconds, 0) + 1


_V = ord("V")
