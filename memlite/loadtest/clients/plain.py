"""A connection for plain gets and sets, the bulk of most measurements, at half the cost."""

from time import perf_counter_ns

from memlite.client.replies import ReplyError
from memlite.client.scanner import Outcome
from memlite.loadtest.clients.measured import MeasuredConnection, Owner
from memlite.loadtest.clients.scanners import matcher_of, scanner_of
from memlite.loadtest.plain import PlainOperations

__all__ = ["PlainConnection"]


class PlainConnection(MeasuredConnection):
    """Sends requests, and more when all of them are answered.

    Replies that arrive together and as expected, as nearly all do, are counted all at once.

    Args:
        owner: the clients that it belongs to.
        operations: the source of requests.
    """

    def __init__(self, owner: Owner, operations: PlainOperations) -> None:
        super().__init__(owner)
        self._take = operations.take
        self._pipeline = owner.settings.pipeline
        self._match = matcher_of(owner.settings.dialect, operations.size)
        self._scanner = scanner_of(owner.settings.dialect)
        # A letter for the expected reply to each outstanding request, and when they were sent, in
        # nanoseconds.
        self._expected = b""
        self._sent = 0
        # When replies are scanned one by one: how many have arrived, when the last one did, and
        # whether the scanner has the beginning of another.
        self._arrived = 0
        self._scanned = 0
        self._scanning = False

    @property
    def busy(self) -> bool:
        """Whether a request is outstanding."""
        return bool(self._expected)

    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been outstanding since `moment`, in nanoseconds, or longer."""
        return bool(self._expected) and self._sent < moment

    def _forget(self) -> int:
        left = len(self._expected) - self._arrived
        self._expected = b""
        return left

    def fill(self) -> None:
        """Send requests until the pipeline is full."""
        owner = self._owner
        if not owner.stopped and self.connected:
            requests, self._expected = self._take(self._pipeline)
            if requests:
                recorder = self._recorder
                recorder.counts.sent += len(requests)
                self._sent = now = perf_counter_ns()
                # This is called for the last reply, or at the start.
                recorder.thought += (now - recorder.last) * len(self._expected)
                self._transport.write(requests)
                return
        self._expected = b""
        owner.idle()

    def data_received(self, data: bytes) -> None:
        """Record the replies, and continue."""
        now = perf_counter_ns()
        recorder = self._recorder
        if now >= recorder.turn:
            recorder.next_interval(now)
        recorder.last = now
        counts = recorder.counts
        counts.received += len(data)
        expected, count = self._expected, len(self._expected)
        letters = self._match(data)
        found = b"".join(letters)
        # A miss may take the place of a hit; anything else is scanned.
        as_expected = found == expected or found.replace(b"E", b"V") == expected
        if self._scanning or len(letters) != count or not as_expected:
            self._scan(data, now)
            return
        counts.operations += count
        microseconds = (now - self._sent) // 1000
        gets = expected.count(b"V")
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

    def _scan(self, data: bytes, now: int) -> None:
        self._scanning = True
        # Answered requests wait for the rest.
        self._recorder.thought += (now - self._scanned) * self._arrived
        self._scanned = now
        try:
            replies = self._scanner.feed(data)
        except ReplyError as error:
            self.give_up(str(error))
            return
        for reply in replies:
            if self._arrived == len(self._expected):
                self.give_up("an unexpected reply")
                return
            self._note(self._expected[self._arrived], reply, now)
            self._arrived += 1
        if replies and self._arrived == len(self._expected):
            self._scanning = self._scanner.in_reply
            self._arrived = 0
            self.fill()

    def _note(self, letter: int, reply: Outcome, now: int) -> None:
        recorder = self._recorder
        counts = recorder.counts
        kind = "get" if letter == _V else "set"
        if letter == _V and (reply == 0 or reply == 1):
            counts.hits += reply
            counts.misses += 1 - reply
        elif letter == _V or reply != b"STORED":
            text = reply.decode("latin-1") if type(reply) is bytes else "an unexpected item"
            self._owner.failed(text[:100])
            return
        counts.operations += 1
        tally = recorder.response[kind]
        microseconds = (now - self._sent) // 1000
        tally[microseconds] = tally.get(microseconds, 0) + 1


_V = ord("V")
