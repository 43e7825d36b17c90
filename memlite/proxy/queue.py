"""The queue of requests for which all workers are busy, and the record of each request."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from memlite.memory import Part
from memlite.proxy.cluster import Cluster, Target
from memlite.proxy.node import Receiver
from memlite.proxy.rerouting import rerouted
from memlite.proxy.turns import Turns
from memlite.server.execution.command_set import CommandObserver
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import LatencyHistogram
from memlite.telemetry.spans import SpanName

__all__ = ["RequestQueue", "Sends", "Ticket", "Tracer", "Tracers"]

# Limits on the requests waiting for a worker; further ones are refused.
_MAX_WAITING: Final = 16_384
_MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
_FULL: Final = b"SERVER_ERROR not sent: too many requests are waiting for a worker\r\n"

Sends = Sequence[tuple[Target, bytes, Receiver]]
"""The parts of a request: the target, the bytes to send, and the receiver of the reply."""


class Tracer(Protocol):
    """Takes requests."""

    def begin(self, ticket: "Ticket") -> None:
        """Take a request that is about to be sent."""

    def record(self, ticket: "Ticket") -> None:
        """Take a request whose reply has been given to the client's connection."""


class Tracers:
    """Several tracers as one."""

    def __init__(self, tracers: Sequence[Tracer]) -> None:
        self._tracers = tracers

    def begin(self, ticket: "Ticket") -> None:
        """Take a request that is about to be sent."""
        for tracer in self._tracers:
            tracer.begin(ticket)

    def record(self, ticket: "Ticket") -> None:
        """Take a finished request."""
        for tracer in self._tracers:
            tracer.record(ticket)


class Client(Protocol):
    """The executor that a request comes from.

    Attributes:
        gone: whether the client has disconnected.
        number: the connection's number.
        peer: the client's address.
        replied: when the last reply was given to the connection, in nanoseconds; 0 for never.
    """

    gone: bool
    number: int
    peer: str
    replied: int


class Ticket:
    """A request in progress; also the observer that is told when its reply is sent.

    All times are `time.monotonic_ns`; 0 stands for "did not happen".

    Args:
        client: the executor it comes from.
        sends: its parts.
        reads: whether it changes nothing.
        observer: the request's own observer, if any.

    Attributes:
        client: as above.
        sends: as above.
        reads: as above.
        ahead: how many requests were waiting when it arrived.
        routes: the cluster's `routes` when it was routed, if it had to wait.
        arrival: when the event loop had read it, with others of the same iteration.
        enqueued: when it was put into the queue.
        dequeued: when a worker took it.
        sent: when it was handed to the nodes' connections, with others of the same iteration.
        received: when the last node had replied.
        replied: when the reply was given to the client's connection.
        watches: whether it receives the nodes' replies on behalf of the request's parts.
        worker: the number of the worker; -1 if there is no limit, or it was not sent.
        failed: whether it failed at a node, or in the queue.
        reply: the reply as the client gets it.
        span: the name of its span; None if it has none.
        parent: the name of the client's span; None if unknown.
    """

    __slots__ = (
        "_observer", "ahead", "arrival", "client", "dequeued", "enqueued", "failed", "missing",
        "parent", "queue", "reads", "received", "replied_at", "reply", "routes", "sends", "sent",
        "span", "watches", "worker",
    )  # fmt: skip

    def __init__(
        self,
        queue: "RequestQueue",
        client: Client,
        sends: Sends,
        observer: CommandObserver | None,
        *,
        reads: bool,
    ) -> None:
        self.queue = queue
        self.client = client
        self.sends = sends
        self.reads = reads
        self._observer = observer
        self.missing = len(sends)
        self.watches = True
        self.ahead = self.routes = 0
        self.arrival = self.enqueued = self.dequeued = self.sent = 0
        self.received = self.replied_at = 0
        self.worker = -1
        self.failed = False
        self.reply = b""
        self.span: SpanName | None = None
        self.parent: SpanName | None = None

    def awaits(self, request: Any) -> None:
        """Have a `JoinedMultiGet` say when all nodes have answered: C code takes their replies."""
        self.watches = False
        self.missing = 1
        request.answered_by_all = lambda _reply, failed: self.part_done(failed)

    def part_done(self, failed: bool) -> None:
        """Note that a node has answered its part, or failed."""
        self.failed = self.failed or failed
        self.missing -= 1
        if not self.missing:
            self.queue.done(self)

    def ready(self) -> None:
        """See `CommandObserver`."""
        if self._observer is not None:
            self._observer.ready()

    def replied(self, replies: Sequence[Part]) -> None:
        """Note that the reply is sent."""
        if self._observer is not None:
            self._observer.replied(replies)
        self.replied_at = self.client.replied = time.monotonic_ns()
        tracer = self.queue.tracer
        if tracer is not None:
            self.reply = b"".join(replies)
            tracer.record(self)


class _Watching:
    """Receives the reply to a part, and notifies the ticket."""

    __slots__ = ("_receiver", "_ticket", "reads")

    def __init__(self, receiver: Receiver, ticket: Ticket) -> None:
        self._receiver = receiver
        self._ticket = ticket
        self.reads = receiver.reads

    def answer(self, reply: bytes) -> None:
        self._receiver.answer(reply)
        self._ticket.part_done(False)

    def fail(self, error: bytes) -> None:
        self._receiver.fail(error)
        self._ticket.part_done(True)


class RequestQueue:
    """Limits how many requests are with the nodes at a time; others wait in order of arrival.

    A request for several keys, or for all nodes, occupies one worker until all nodes have answered.
    Requests are routed when they arrive, and again when they are sent if keys may have moved to
    other nodes meanwhile.

    Args:
        cluster: routes requests again, and delivers replies.
        scheduler: runs the timer.
        in_flight: the number of workers; None for no limit.
        deadline: maximum seconds that a request waits.
        tracer: takes finished requests; None for none.
        every: without a limit, one request in this many passes through the queue, to be traced;
            others go to the nodes at once.

    Attributes:
        tracer: as above.
        turns: decides which requests pass through the queue.
        length: how many requests are waiting.
        longest: the maximum of `length`.
        lengths: the sum of `length` as each request found it; divided by `arrivals`, the mean.
        arrivals: requests that arrived.
        refused: requests that were refused because too many were waiting.
        expired: requests that have waited for too long.
        dropped: reads that were not sent because the client had disconnected.
        queueing: the time in the queue, for requests that a worker took.
        service: the time from a worker's taking a request to the last node's reply.
        thinking: the time from a client's last reply to its next request, if it awaited the reply.
    """

    def __init__(
        self,
        cluster: Cluster,
        scheduler: Scheduler,
        *,
        in_flight: int | None,
        deadline: float,
        tracer: Tracer | None = None,
        every: int = 1,
    ) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self.in_flight = in_flight
        self._idle = [] if in_flight is None else list(range(in_flight - 1, -1, -1))
        self._deadline = int(deadline * 1e9)
        limit = f" (--in-flight {in_flight})"
        self._overdue = f"SERVER_ERROR not sent: no worker in {deadline:g} s{limit}\r\n".encode()
        self.tracer = tracer
        self.turns = Turns(every if in_flight is None else 1)
        self._waiting: deque[Ticket] = deque()
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pumping = False
        self._iteration = 0
        self._unsent: list[Ticket] = []
        self.reset()

    def reset(self) -> None:
        """Start counting from zero."""
        self.longest = self.lengths = self.arrivals = 0
        self.refused = self.expired = self.dropped = 0
        self.queueing, self.service = LatencyHistogram(), LatencyHistogram()
        self.thinking = LatencyHistogram()

    @property
    def length(self) -> int:
        """How many requests are waiting."""
        return len(self._waiting)

    @property
    def busy(self) -> int:
        """How many workers are busy; 0 if there is no limit."""
        return 0 if self.in_flight is None else self.in_flight - len(self._idle)

    def submit(self, ticket: Ticket, *, awaited: bool) -> None:
        """Send a request, now or later.

        Args:
            ticket: the request.
            awaited: whether its client has no other request in progress.
        """
        now = time.monotonic_ns()
        if not self._iteration:
            self._iteration = now
            self._scheduler.call_soon(self._next_iteration)
        ticket.arrival, ticket.enqueued = self._iteration, now
        waiting = self._waiting
        ticket.ahead = len(waiting)
        self.arrivals += 1
        self.lengths += ticket.ahead
        if awaited and ticket.client.replied and self.turns.every == 1:
            self.thinking.record(now - ticket.client.replied)
        if self.in_flight is None or (self._idle and not waiting and not self._pumping):
            self._dispatch(ticket, now)
            return
        if len(waiting) >= _MAX_WAITING or self._bytes >= _MAX_WAITING_BYTES:
            self.refused += 1
            _fail(ticket, _FULL)
            return
        waiting.append(ticket)
        self._bytes += _size(ticket)
        ticket.routes = self._cluster.routes
        self.longest = max(self.longest, len(waiting))
        if self._timer is None:
            self._set_timer(now)

    def done(self, ticket: Ticket) -> None:
        """Note that all nodes have answered a request."""
        if not ticket.dequeued:
            return  # it was not sent
        now = ticket.received = time.monotonic_ns()
        self.service.record(now - ticket.dequeued)
        if ticket.worker >= 0:
            self._idle.append(ticket.worker)
            self._pump()

    def _dispatch(self, ticket: Ticket, now: int) -> None:
        ticket.dequeued = now
        self.queueing.record(now - ticket.enqueued)
        if self.in_flight is not None:
            ticket.worker = self._idle.pop()
        if self.tracer is not None:
            self._unsent.append(ticket)
            self.tracer.begin(ticket)
        sends = ticket.sends
        if self.tracer is None:
            ticket.sends = ()  # the values are no longer needed
        for target, data, receiver in sends:
            target.send(data, _Watching(receiver, ticket) if ticket.watches else receiver)
        if self.tracer is not None and len(self._unsent) == 1:
            # Runs after the nodes' own calls, which send.
            self._scheduler.call_soon(self._note_sent)

    def _note_sent(self) -> None:
        now = time.monotonic_ns()
        for ticket in self._unsent:
            ticket.sent = ticket.sent or (0 if ticket.received else now)
        self._unsent.clear()

    def _next_iteration(self) -> None:
        self._iteration = 0

    def _pump(self) -> None:
        """Let idle workers take requests. A request that fails at once leaves its worker idle."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._waiting and self._idle:
                self._take(self._waiting.popleft(), time.monotonic_ns())
        finally:
            self._pumping = False

    def _take(self, ticket: Ticket, now: int) -> None:
        self._bytes -= _size(ticket)
        if ticket.client.gone and ticket.reads:
            self.dropped += 1
            for _, _, receiver in ticket.sends:
                receiver.answer(b"")  # the client's other requests may wait for it
        elif now - ticket.enqueued > self._deadline:
            self.expired += 1
            _fail(ticket, self._overdue)
        else:
            if ticket.routes != self._cluster.routes:
                ticket.sends = rerouted(self._cluster, ticket.sends)
            self._dispatch(ticket, now)

    # The deadline. The first request in the queue has waited longest.

    def _set_timer(self, now: int) -> None:
        left = self._waiting[0].enqueued + self._deadline - now
        self._timer = self._scheduler.call_later(max(left, 1_000_000) / 1e9, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = time.monotonic_ns()
        waiting = self._waiting
        while waiting and now - waiting[0].enqueued > self._deadline:
            self._take(waiting.popleft(), now)
        if waiting:
            self._set_timer(now)
        self._cluster.deliver()


def _size(ticket: Ticket) -> int:
    return sum(len(data) for _, data, _ in ticket.sends)


def _fail(ticket: Ticket, error: bytes) -> None:
    ticket.failed = True
    for _, _, receiver in ticket.sends:
        receiver.fail(error)
