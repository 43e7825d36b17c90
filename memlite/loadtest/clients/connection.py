"""One connection of the built-in client: requests out, replies in, written down."""

from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from memlite.errors import ProtocolViolation
from memlite.loadtest.clients.link import Link
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
    """

    __slots__ = ("intended", "left", "operations", "sent", "silent")

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


class Connection(Link):
    """A connection for every kind of operation, in closed loop and in open loop.

    Args:
        clients: whose connection it is.

    Attributes:
        window: batches under way, in order.
    """

    def __init__(self, clients: "TextClients") -> None:
        super().__init__(clients)
        self.window: deque[_Batch] = deque()
        self._thinking = False
        self._reader = ReplyReader(keep=clients.settings.keep, lite=clients.settings.lite)

    @property
    def busy(self) -> bool:
        """Whether something is under way, or will be after a pause."""
        return bool(self.window) or self._thinking

    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been waited for since `moment`, in nanoseconds, or longer."""
        return bool(self.window) and self.window[0].sent < moment

    def _forget(self) -> int:
        lost = sum(batch.left for batch in self.window)
        self.window.clear()
        return lost

    # Requests

    def fill(self) -> None:
        """Make as many requests as may be under way."""
        self._thinking = False
        clients = self._clients
        if not clients.stopped and self.connected:
            operations = clients.take(clients.settings.pipeline)
            if operations:
                self.send(operations, 0)
                return
        clients.settle()

    def send(self, operations: "list[Operation]", intended: int) -> None:
        """Send requests.

        Args:
            operations: which.
            intended: when they were to be, in nanoseconds; 0 for now.
        """
        now = perf_counter_ns()
        data = b"".join([operation.request for operation in operations])
        silent = [operation for operation in operations if not operation.replies]
        if silent:
            # Something has to tell that they are done.
            data += _BARRIER
            operations = [operation for operation in operations if operation.replies]
        batch = _Batch(operations, silent, intended or now, now)
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
        if now >= recorder.turn:
            recorder.next_second(now)
        recorder.last = now
        window, freed = self.window, 0
        for reply in replies:
            if not window:
                self.give_up("a reply too many")
                return
            batch = window[0]
            self._take_one(batch, reply, now)
            if not batch.left:
                window.popleft()
                freed += 1
        if freed:
            self._go_on(freed)

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
        tally = recorder.response[operation.kind]
        microseconds = (now - batch.intended) // 1000
        tally[microseconds] = tally.get(microseconds, 0) + 1
        if self._clients.open_loop:
            tally = recorder.service[operation.kind]
            microseconds = (now - batch.sent) // 1000
            tally[microseconds] = tally.get(microseconds, 0) + 1

    def _check(self, reply: Reply) -> None:
        check = self._clients.settings.check
        if check is not None and isinstance(reply, list):
            for value in reply:
                if not check(value.key, value.value):
                    self._clients.failed("wrong value")
