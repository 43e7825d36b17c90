"""A measured connection of the built-in client, for every kind of operation."""

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from memlite.client.replies import END, FENCE, Item, ReplyError, ReplyReader, Shape
from memlite.loadtest.clients.measured import MeasuredConnection, Owner
from memlite.loadtest.clients.scanners import scanner_of
from memlite.loadtest.clients.settings import Check
from memlite.loadtest.clients.thinking import Thinking
from memlite.loadtest.dialects import Dialect

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation

__all__ = ["Answer", "Batch", "Sender", "TextConnection", "TextOwner"]

# Reply lines of commands that were carried out, even if not with the desired outcome.
_FINE = frozenset(
    (b"STORED", b"NOT_STORED", b"EXISTS", b"NOT_FOUND", b"DELETED", b"TOUCHED", b"OK")
)

Answer = int | tuple[Item, ...] | bytes
"""The items of a retrieval, or their number; for any other reply, its line."""


@runtime_checkable
class Sender(Protocol):
    """A sender of requests at given times: a connection, or a client with several.

    Attributes:
        connected: whether it is connected.
    """

    connected: bool

    def send(self, operations: "list[Operation]", intended: int) -> None:
        """Send requests."""


class TextOwner(Owner, Protocol):
    """The additional interface that the connection needs from the clients that own it.

    Attributes:
        take: returns the given number of operations, fewer when they run out.
    """

    take: "Callable[[int], list[Operation]]"

    @property
    def open_loop(self) -> bool:
        """Whether requests are sent at given times."""

    def freed(self, connection: Sender, count: int) -> None:
        """Reuse slots in a connection's pipeline, in open loop, as requests complete."""

    def dropped(self, count: int) -> None:
        """Note that requests have failed together with their connection, in open loop."""

    def think(self, resume: Callable[[], None]) -> None:
        """Call `resume` after the think time."""


class Batch:
    """Requests that were sent together.

    Attributes:
        operations: the operations that get a reply, in order.
        silent: those without a reply; they are done when the fence after them is answered.
        intended: when they were due to be sent, in nanoseconds.
        sent: when they were sent.
        left: the number of outstanding replies.
        answered: how many of the operations that get a reply have received it.
    """

    __slots__ = ("answered", "intended", "left", "operations", "sent", "silent")

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
        self.answered = 0


class TextConnection(MeasuredConnection):
    """A connection for every kind of operation, in closed loop and in open loop.

    Args:
        owner: the clients that it belongs to.

    Attributes:
        window: outstanding batches, in order.
    """

    def __init__(self, owner: TextOwner) -> None:
        super().__init__(owner)
        self._owner: TextOwner = owner
        self.window: deque[Batch] = deque()
        self._thinking = False
        # The number of batches just answered that have a second step.
        self._followed = 0
        self._think_times = Thinking()
        self._check = owner.settings.check
        self._pipeline = owner.settings.pipeline
        self._think_time = owner.settings.think_time
        dialect = owner.settings.dialect
        self._read = _item_reader(lite=dialect is Dialect.LITE)
        if not owner.settings.keep:
            self._read = scanner_of(dialect).feed

    @property
    def busy(self) -> bool:
        """Whether a request is outstanding, or will be made after the think time."""
        return bool(self.window) or self._thinking

    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been outstanding since `moment`, in nanoseconds, or longer."""
        return bool(self.window) and self.window[0].sent < moment

    def _forget(self) -> int:
        lost = sum(batch.left for batch in self.window)
        if self._owner.open_loop:
            self._owner.dropped(len(self.window))
        self.window.clear()
        return lost

    # Requests

    def fill(self) -> None:
        """Send requests until the pipeline is full."""
        self._thinking = False
        owner = self._owner
        if not owner.stopped and self.connected:
            operations = owner.take(self._pipeline)
            if operations:
                self.send(operations, 0)
                thought = self._think_times.ends(self.window[-1].sent, len(operations))
                self._recorder.thought += thought
                return
        owner.idle()

    def send(self, operations: "list[Operation]", intended: int) -> None:
        """Send requests.

        Args:
            operations: the requests.
            intended: when they were due to be sent, in nanoseconds; 0 for now.
        """
        now = perf_counter_ns()
        data = b"".join([operation.request for operation in operations])
        silent = [operation for operation in operations if not operation.replies]
        if silent:
            # Its reply shows that they are done.
            data += FENCE
            operations = [operation for operation in operations if operation.replies]
        batch = Batch(operations, silent, intended or now, now)
        self.window.append(batch)
        self._recorder.counts.sent += len(data)
        self._transport.write(data)

    # Replies

    def data_received(self, data: bytes) -> None:
        """Record the replies, and continue."""
        recorder = self._recorder
        recorder.counts.received += len(data)
        try:
            answers = self._read(data)
        except ReplyError as error:
            self.give_up(str(error))
            return
        if not answers:
            return
        now = perf_counter_ns()
        if now >= recorder.turn:
            recorder.next_interval(now)
        recorder.last = now
        window, freed = self.window, 0
        for answer in answers:
            if not window:
                self.give_up("an unexpected reply")
                return
            batch = window[0]
            self._take_one(batch, answer, now)
            if not batch.left:
                window.popleft()
                freed += 1
        if freed:
            self._continue(freed)

    def _continue(self, freed: int) -> None:
        owner = self._owner
        if owner.open_loop:
            done, self._followed = freed - self._followed, 0
            owner.freed(self, done)
            if not self.window:
                owner.idle()
        elif self.window:
            return  # second steps
        elif self._think_time and not owner.stopped:
            self._thinking = True
            owner.think(self.fill)
        else:
            self.fill()

    def _take_one(self, batch: Batch, answer: Answer, now: int) -> None:
        number = batch.answered
        if number < len(batch.operations):
            batch.answered = number + 1
            self._note(batch.operations[number], batch, answer, now)
        elif type(answer) is bytes and answer.startswith(b"VERSION "):
            for operation in batch.silent:
                self._note(operation, batch, b"OK", now)
        else:
            # Errors are reported even for noreply.
            text = answer.decode("latin-1") if type(answer) is bytes else "an unexpected reply"
            self._owner.failed(text[:100])
            return
        batch.left -= 1

    def _note(self, operation: "Operation", batch: Batch, answer: Answer, now: int) -> None:
        recorder = self._recorder
        counts = recorder.counts
        if type(answer) is bytes:
            if answer not in _FINE and not answer.isdigit():
                self._owner.failed(answer.decode("latin-1")[:100])
                return
            counts.operations += 1
        else:
            if self._check is not None and type(answer) is tuple:
                self._check_values(self._check, answer)
            if operation.follow is not None:
                unique = answer[0].unique if type(answer) is tuple and answer else None
                second = operation._replace(request=operation.follow(unique), keys=0, follow=None)
                self.send([second], batch.intended)
                self._followed += 1
                return
            hits = answer if isinstance(answer, int) else len(answer)
            counts.hits += hits
            counts.misses += operation.keys - hits
            counts.operations += operation.keys
        tally = recorder.response[operation.kind]
        microseconds = (now - batch.intended) // 1000
        tally[microseconds] = tally.get(microseconds, 0) + 1
        if self._owner.open_loop:
            tally = recorder.service[operation.kind]
            microseconds = (now - batch.sent) // 1000
            tally[microseconds] = tally.get(microseconds, 0) + 1
        else:
            self._think_times.replied(now)

    def _check_values(self, check: Check, items: tuple[Item, ...]) -> None:
        for item in items:
            if not check(item.head.split(b" ", 2)[1], item.value):
                self._owner.failed("wrong value")


def _item_reader(*, lite: bool) -> Callable[[bytes], Sequence[Answer]]:
    """Return a function that returns the replies completed by given bytes, with their items."""
    # A reply to anything but a retrieval is a single line, which this shape includes.
    feed = ReplyReader(default=Shape.ITEM if lite else Shape.ITEMS).feed

    def read(data: bytes) -> list[Answer]:
        answers: list[Answer] = []
        for reply in feed(data):
            parts = reply.parts
            if parts[-1] is END:
                answers.append(parts[:-1])  # type: ignore[arg-type]  # items, in this shape
            else:
                answers.append(reply.line)
        return answers

    return read
