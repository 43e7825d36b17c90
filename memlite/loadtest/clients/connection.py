"""One connection of the built-in client: requests out, replies in, written down."""

import asyncio
from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from memlite.errors import ProtocolViolation
from memlite.loadtest.recorder import Tally
from memlite.protocol.client import Reply, ReplyReader

if TYPE_CHECKING:
    from memlite.loadtest.clients.text import TextClients
    from memlite.loadtest.operations import Operation

__all__ = ["Connection"]

# What says that a command was carried out, if not always with the outcome hoped for.
_FINE = frozenset(
    (b"STORED", b"NOT_STORED", b"EXISTS", b"NOT_FOUND", b"DELETED", b"TOUCHED", b"OK")
)
_BARRIER = b"version\r\n"


class _Batch:
    """Requests that were sent together.

    Attributes:
        operations: those that bring a reply, in order.
        silent: those that bring none, and are done when the barrier behind them is answered.
        intended: when they were to be sent, in nanoseconds.
        sent: when they were.
        left: how many replies are still to come.
        whole: whether all are, and each is an operation's.
        kinds: of the operations, if they have no second steps; else empty.
        keys: each asks for; empty likewise.
    """

    __slots__ = ("intended", "keys", "kinds", "left", "operations", "sent", "silent", "whole")

    def __init__(
        self,
        operations: "list[Operation]",
        silent: "Sequence[Operation]",
        intended: int,
        sent: int,
    ) -> None:
        self.operations = operations
        self.silent = silent
        self.intended = intended
        self.sent = sent
        self.left = len(operations) + bool(silent)
        self.whole = not silent
        self.kinds: Sequence[str] = ()
        self.keys: Sequence[int] = ()


class Connection(asyncio.Protocol):
    """A connection, and the requests under way on it.

    In closed loop without pipelining there is one request at a time, which is most of what a load
    tester does: that one is kept in `_alone`, on a path of its own, at two thirds of the cost.

    Args:
        clients: whose connection it is.

    Attributes:
        window: batches under way, in order.
        connected: whether it is.
    """

    def __init__(self, clients: "TextClients") -> None:
        self.window: deque[_Batch] = deque()
        self.connected = False
        self._thinking = False
        self._closing = False
        self._clients = clients
        self._recorder = clients.recorder
        self._take = clients.take
        settings = clients.settings
        self._reader = ReplyReader(keep=settings.keep)
        self._single = settings.pipeline == 1 and not (settings.keep or settings.think_time)
        self._alone: Operation | None = None
        self._alone_sent = 0

    _transport: asyncio.Transport

    @property
    def busy(self) -> bool:
        """Whether something is under way, or will be after a pause."""
        return bool(self.window) or self._alone is not None or self._thinking

    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been waited for since `moment`, in nanoseconds, or longer."""
        if self._alone is not None:
            return self._alone_sent < moment
        return bool(self.window) and self.window[0].sent < moment

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready."""
        self._transport = transport  # type: ignore[assignment]
        self.connected = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Count what was under way as failed, and be replaced."""
        self.connected = False
        if not self._closing:
            self._abandon("connection reset" if exc else "connection closed")

    def give_up(self, kind: str) -> None:
        """Close the connection: what is under way has failed."""
        self._abandon(kind)
        self._transport.abort()

    def _abandon(self, kind: str) -> None:
        self._closing = True
        self.connected = False
        clients = self._clients
        lost = sum(batch.left for batch in self.window) + (self._alone is not None)
        clients.failed(kind, max(1, lost))
        self.window.clear()
        self._alone = None
        clients.lost(self)
        clients.settle()

    def close(self) -> None:
        """Close it."""
        self._closing = True
        self.connected = False
        self._transport.abort()

    # Requests

    def fill(self) -> None:
        """Make as many requests as may be under way."""
        self._thinking = False
        clients = self._clients
        if not clients.stopped and self.connected:
            operations = self._take(clients.settings.pipeline)
            if operations:
                operation = operations[0]
                if self._single and operation.replies and operation.follow is None:
                    self._send_alone(operation)
                else:
                    self.send(operations, 0)
                return
        clients.settle()

    def _send_alone(self, operation: "Operation") -> None:
        self._alone = operation
        data = operation.request
        self._recorder.counts.sent += len(data)
        self._alone_sent = perf_counter_ns()
        self._transport.write(data)

    def send(self, operations: "list[Operation]", intended: int) -> None:
        """Send requests.

        Args:
            operations: which.
            intended: when they were to be, in nanoseconds; 0 for now.
        """
        now = perf_counter_ns()
        if len(operations) == 1 and operations[0].replies:
            data = operations[0].request
            batch = _Batch(operations, (), intended or now, now)
        else:
            # Column by column: of sixteen operations one costs little more than of one.
            requests, kinds, keys, replies, follows = zip(*operations, strict=True)
            if 0 in replies:
                silent = [operation for operation in operations if not operation.replies]
                operations = [operation for operation in operations if operation.replies]
                # Something has to tell that they are done.
                data = b"".join((*requests, _BARRIER))
                batch = _Batch(operations, silent, intended or now, now)
            else:
                data = b"".join(requests)
                batch = _Batch(operations, (), intended or now, now)
                if follows.count(None) == len(follows):
                    batch.kinds, batch.keys = kinds, keys
        self.window.append(batch)
        self._recorder.counts.sent += len(data)
        self._transport.write(data)

    # Replies

    def data_received(self, data: bytes) -> None:
        """Write down what has come, and go on."""
        recorder = self._recorder
        recorder.counts.received += len(data)
        try:
            replies = self._reader.feed(data)
        except ProtocolViolation as error:
            self.give_up(str(error))
            return
        if not replies:
            return
        now = perf_counter_ns()
        if now >= recorder.turn and recorder.measuring:
            recorder.next_second(now)
        recorder.last = now
        if self._alone is not None and self._end_alone(self._alone, replies, now):
            return
        window, position, freed = self.window, 0, 0
        while position < len(replies):
            if not window:
                self.give_up("a reply too many")
                return
            batch = window[0]
            if batch.whole and batch.left <= len(replies) - position:
                # All of it at once, as is usual.
                some = replies[position : position + batch.left]
                self._note_all(batch, some, now)
                position += batch.left
                batch.left = 0
            else:
                batch.whole = False
                self._take_one(batch, replies[position], now)
                position += 1
            if not batch.left:
                window.popleft()
                freed += 1
        if freed:
            self._go_on(freed)

    def _end_alone(self, operation: "Operation", replies: list[Reply], now: int) -> bool:
        """Write down what is usual and go on; leave anything else to the way of batches."""
        recorder = self._recorder
        counts = recorder.counts
        reply = replies[0]
        if isinstance(reply, int) and len(replies) == 1:
            keys = operation.keys
            counts.operations += keys
            counts.hits += reply
            if reply < keys:
                counts.misses += keys - reply
        elif reply == b"STORED" and len(replies) == 1:
            counts.operations += 1
        else:
            self.window.append(_Batch([operation], (), self._alone_sent, self._alone_sent))
            self._alone = None
            return False
        tally = recorder.response.get(operation.kind)
        if tally is None:
            tally = recorder.response[operation.kind] = {}
        microseconds = (now - self._alone_sent) // 1000
        tally[microseconds] = tally.get(microseconds, 0) + 1
        self._alone = None
        self.fill()
        return True

    def _go_on(self, freed: int) -> None:
        clients = self._clients
        if clients.open_loop:
            clients.freed(self, freed)
            if not self.window:
                clients.settle()
        elif self.window:
            return  # second steps
        elif clients.settings.think_time and not clients.stopped:
            self._thinking = True
            clients.think(self.fill)
        else:
            self.fill()

    def _take_one(self, batch: _Batch, reply: Reply, now: int) -> None:
        operations = batch.operations
        number = len(operations) + bool(batch.silent) - batch.left
        if number < len(operations):
            self._note(operations[number], batch, reply, now)
        elif type(reply) is bytes and reply.startswith(b"VERSION "):
            for operation in batch.silent:
                self._note(operation, batch, b"OK", now)
        else:
            # Errors are told even to those who want no reply.
            text = reply.decode("latin-1") if type(reply) is bytes else "a reply too many"
            self._clients.failed(text[:100])
            return
        batch.left -= 1

    def _note_all(self, batch: _Batch, replies: list[Reply], now: int) -> None:
        """Write down replies that came together, the usual ones in one go."""
        numbers = [reply for reply in replies if isinstance(reply, int)]
        stored = len(replies) - len(numbers)
        keys, kinds = batch.keys, batch.kinds
        usual = bool(kinds) and keys.count(0) == stored == replies.count(b"STORED")
        if not usual:
            for operation, reply in zip(batch.operations, replies, strict=True):
                self._note(operation, batch, reply, now)
            return
        recorder = self._recorder
        counts = recorder.counts
        hits, asked = sum(numbers), sum(keys)
        counts.operations += asked + stored
        counts.hits += hits
        counts.misses += asked - hits
        for kind in set(kinds):
            count = kinds.count(kind)
            self._tally(recorder.response, kind, (now - batch.intended) // 1000, count)
            if self._clients.open_loop:
                self._tally(recorder.service, kind, (now - batch.sent) // 1000, count)

    def _note(self, operation: "Operation", batch: _Batch, reply: Reply, now: int) -> None:
        recorder = self._recorder
        counts = recorder.counts
        if isinstance(reply, bytes):
            if reply not in _FINE and not reply.isdigit():
                self._clients.failed(reply.decode("latin-1")[:100])
                return
            counts.operations += 1
        else:
            self._check(reply)
            if operation.follow is not None:
                unique = reply[0].unique if type(reply) is list and reply else None
                second = operation._replace(request=operation.follow(unique), keys=0, follow=None)
                self.send([second], batch.intended)
                return
            hits = reply if isinstance(reply, int) else len(reply)
            counts.hits += hits
            counts.misses += operation.keys - hits
            counts.operations += operation.keys
        self._tally(recorder.response, operation.kind, (now - batch.intended) // 1000, 1)
        if self._clients.open_loop:
            self._tally(recorder.service, operation.kind, (now - batch.sent) // 1000, 1)

    @staticmethod
    def _tally(tallies: dict[str, Tally], kind: str, microseconds: int, count: int) -> None:
        tally = tallies.get(kind)
        if tally is None:
            tally = tallies[kind] = {}
        tally[microseconds] = tally.get(microseconds, 0) + count

    def _check(self, reply: Reply) -> None:
        check = self._clients.settings.check
        if check is not None and isinstance(reply, list):
            for value in reply:
                if not check(value.key, value.value):
                    self._clients.failed("wrong value")
