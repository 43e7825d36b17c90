"""A node: one pipelined connection, opened again when it is lost."""

import asyncio
import contextlib
import random
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

from memlite.client import FENCE, LoginRefusedError, TextLogin, open_transport
from memlite.cluster.membership.lease import Lease
from memlite.cluster.topology import Node as NodeAddress
from memlite.protocol.replies import END, STORED
from memlite.proxy.batch import BatchPart
from memlite.proxy.expected import Asked, shown
from memlite.proxy.framing import NATIVE, split_gets
from memlite.proxy.link import NodeLostError
from memlite.proxy.native_link import NativeLink
from memlite.proxy.node_recovery import NodeRecovery
from memlite.proxy.parts import Part
from memlite.proxy.requests import KeysPart
from memlite.proxy.single_requests import HAND_OUT
from memlite.proxy.timing import Timing
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import LatencyHistogram

__all__ = ["MAX_IN_BATCH", "TOO_LATE", "Access", "Node", "Receiver", "Surroundings"]

MAX_IN_BATCH: Final = 64
# First bytes of the usual replies: items, misses, and STORED.
_V: Final = ord("V")
_E: Final = ord("E")
_S: Final = ord("S")
# Replies to gets of at most this many bytes are searched for their ends in Python: with long
# values, the search takes longer than finding one end after the other.
_MAX_SEARCHED: Final = 16 * 1024 if NATIVE is None else 2**62

# Limits on the requests waiting for a node; further ones are refused. While fewer than half as many
# wait, and the node accepts data, nothing is counted before the next write.
_MAX_PENDING: Final = 16_384
_MANY_PENDING: Final = _MAX_PENDING // 2
_MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
_FIRST_PAUSE: Final = 0.05
# Checks for expired deadlines per deadline: one is noticed up to a tenth of it late. Requests have
# no timestamps of their own.
_STEPS: Final = 10
# Minimum seconds between two timed writes: timing every write takes a twentieth of the time of a
# small request. It applies to all nodes together, or more nodes would mean more timing.
_BETWEEN_TIMES: Final = 0.001
# The same for one node, regardless of the others: when all nodes are written to at the same moment,
# only the first node's write would be timed.
_BETWEEN_ITS_TIMES: Final = 0.1
_monotonic: Final = time.monotonic
_PARTS: Final[Any] = (BatchPart,) if Part is None else (BatchPart, Part)
"""Receivers that take several replies."""
TOO_LATE: Final = b"SERVER_ERROR not sent: the cluster's nodes may have changed meanwhile\r\n"
"""The reply to a request that has waited for too long."""


class Receiver(Protocol):
    """Takes the reply to a request. Exactly one of its methods is called, once.

    Attributes:
        reads: whether the request changes nothing, so that it does not matter if it is missed.
    """

    @property
    def reads(self) -> bool: ...  # noqa: D102 - see the class

    def answer(self, reply: bytes) -> None:
        """Take the reply, as the node has sent it."""

    def fail(self, error: bytes) -> None:
        """Take the ``SERVER_ERROR`` line that stands for the reply."""


@dataclass(frozen=True, slots=True)
class Access:
    """How nodes are reached.

    Attributes:
        deadline: seconds within which a request must be answered.
        tls: encrypts connections; None for plain text.
        login: is carried out first; None for none.
        lease: how long the known state of the cluster is valid.
        timing: holds the times of requests, and when the next one is measured.
    """

    deadline: float
    tls: ssl.SSLContext | None = None
    login: TextLogin | None = None
    lease: Lease = field(default_factory=Lease.unlimited)
    timing: Timing = field(default_factory=Timing)


class Surroundings(Protocol):
    """Reacts to a node going down and coming back.

    Attributes:
        longest_pause: maximum seconds between two attempts to reach it.
    """

    @property
    def longest_pause(self) -> float: ...  # noqa: D102 - see the class

    def went_down(self, node: "Node") -> None:
        """Note that it is down."""

    def came_back(self, node: "Node") -> None:
        """Note that it is up again."""

    def stand_in(self, node: "Node", request: bytes, receiver: Receiver) -> bool:
        """Let another node serve a request while it is down; return whether one does."""


class _NullReceiver:
    """Discards a reply."""

    reads = True

    def answer(self, reply: bytes) -> None:
        pass

    def fail(self, error: bytes) -> None:
        pass


class Node:
    """Sends requests to a node and hands out its replies.

    Requests of one iteration of the event loop are sent with one write. A request is never sent
    twice: without its reply, there is no telling whether the node has carried it out.

    A node is up once it has replied to a first request of the proxy's own. A lost connection is
    opened again at once; if that fails, or if the node had stopped answering, requests are refused
    until it is up again.

    Args:
        node: its name and address.
        scheduler: runs the attempts to connect.
        access: how it is reached.
        delivered: called after replies were handed out.
        surroundings: notified when it goes down or comes back.
        returning: knows what must happen before it is up.

    Attributes:
        name: its name.
        address: where it listens.
        returning: as above.
        failed: how many requests have failed, refused ones included.
        refused: how many were refused because too many were waiting.
        timeouts: how often the deadline has passed.
        connects: how often a connection was opened.
        service: the time from a write to the reply to its last request, for one write at a time,
            and one per millisecond to all nodes together, or one per tenth of a second to this
            node.
        ip: the IP address at which it was last reached; empty if never, or if by a UNIX socket.
        error: why it is down; empty while it is up, or being connected for the first time.
    """

    __slots__ = (
        "_access", "_again", "_answered", "_asked", "_deadline", "_delivered", "_flush_due",
        "_flusher", "_in_batches", "_interval", "_last_sent", "_last_timed", "_lease", "_limited",
        "_link", "_looked", "_next_timed", "_pending", "_put_at", "_queue", "_queued", "_refusal",
        "_retired", "_scheduler", "_surroundings", "_taken", "_task", "_timed", "_timer", "_timing",
        "_unsent", "_until", "address", "connects", "error", "failed", "ip", "name", "refused",
        "returning", "service", "timeouts",
    )  # fmt: skip

    def __init__(
        self,
        node: NodeAddress,
        scheduler: Scheduler,
        access: Access,
        delivered: Callable[[], None],
        surroundings: Surroundings,
        returning: NodeRecovery,
    ) -> None:
        self.name = node.name
        self.address = node.address
        self._scheduler = scheduler
        self._access = access
        self._deadline = access.deadline
        self._delivered = delivered
        self._surroundings = surroundings
        self.returning = returning
        self._refusal = b""
        self._again = asyncio.Event()
        self._link: Any = None
        self._task: asyncio.Task[None] | None = None
        # The receivers of the replies; a part of a batch takes several.
        self._pending: deque[Receiver] = deque()
        self._answered = 0  # requests, failed ones included
        self._asked = Asked()  # the requests that were sent and await replies
        self._queue: list[bytes] = []
        self._queued = 0  # bytes in the queue, while limited
        self._in_batches = 0  # requests in the queue beyond one for each of its entries
        self._last_sent = 0  # the number of the last request that was written
        self._flush_due = False
        # Sends the queue; in C, unless more has to be done.
        self._flusher: Any = self._flush if NATIVE is None else NATIVE.Flusher(self)
        # Whether `send` must make further checks: the node is down, or many requests are waiting.
        self._limited = True
        self._lease = access.lease
        self._until = 0.0  # until when the requests in the queue may be sent
        self._interval = access.deadline / _STEPS
        # The number of requests at each check, and when they are overdue; the last check's time.
        self._taken: deque[tuple[int, float]] = deque()
        self._looked = 0.0
        self._timer: asyncio.TimerHandle | None = None
        # The timed write: its time in nanoseconds, or 0, and the number of its last request.
        self._timed = self._last_timed = 0
        self._next_timed = 0.0
        # Requests in the queue that are traced in C; None for none.
        self._unsent: Any = None
        # When a timed wait in the queue began, in nanoseconds; 0 if none is timed.
        self._put_at = 0
        self._timing = access.timing
        self.service = LatencyHistogram()
        self._retired = False
        self.failed = self.refused = self.timeouts = self.connects = 0
        self.error = self.ip = ""

    @property
    def state(self) -> str:
        """``up``, ``down`` or ``connecting``."""
        if self._link is not None:
            return "up"
        return "down" if self.error else "connecting"

    @property
    def down(self) -> bool:
        """Whether requests are refused at once."""
        return bool(self._refusal)

    @property
    def refusal(self) -> bytes:
        """The reply to all requests while it is down, else nothing."""
        return self._refusal

    @property
    def requests(self) -> int:
        """How many requests were accepted for it."""
        return self._last_sent + len(self._queue) + self._in_batches

    @property
    def waiting(self) -> int:
        """How many requests are yet to be written."""
        return len(self._queue) + self._in_batches

    @property
    def answered(self) -> int:
        """How many requests have been answered."""
        return self._answered

    @property
    def pending(self) -> int:
        """How many requests have no reply yet."""
        return self.requests - self._answered

    @property
    def _sent(self) -> int:
        """How many requests were written and have no reply yet."""
        return self._last_sent - self._answered

    def start(self) -> None:
        """Begin to connect."""
        self._task = self._scheduler.loop.create_task(self._stay_connected())

    def stop(self) -> None:
        """Close the connection; requests without a reply fail."""
        if self._task is not None:
            self._task.cancel()
        reason = "has left the cluster" if self._retired else "the proxy is stopping"
        self._retired = False
        self._refusal = _error_line(self.name, reason)
        self._lose(reason, down=False)
        self.returning.stop()

    def retire(self) -> None:
        """Stop once all requests are answered; there must be no more."""
        parting = self.returning.parting()
        if parting is not None and self._link is not None:
            self.send(parting, _NullReceiver())
        self._retired = True
        if not self._pending:
            self.stop()

    def try_again(self) -> None:
        """Try at once to reach it, if it is down."""
        self._again.set()

    def take_out(self, reason: str) -> None:
        """Treat it as down, if it is up, until it has been prepared again."""
        if self._link is not None:
            self._leave_link()
            self._lose(reason, down=True)

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request soon.

        Args:
            request: its bytes. It must have exactly one reply.
            receiver: takes the reply; it may have been notified of a failure when this returns.
        """
        if self._limited:
            self._send_limited(request, receiver)
            return
        queue = self._queue
        if not queue:
            self._flush_next()
        queue.append(request)
        self._pending.append(receiver)

    def _send_limited(self, request: bytes, receiver: Receiver) -> None:
        if self._refusal:
            self._refuse(request, receiver)
            return
        if self.pending >= _MAX_PENDING or self._queued >= _MAX_QUEUED_BYTES:
            self.refused += 1
            self.failed += 1
            receiver.fail(_error_line(self.name, "too many requests are pending"))
            return
        self._pending.append(receiver)
        self._queue.append(request)
        self._queued += len(request)
        self._flush_soon()

    def _flush_next(self) -> None:
        self._until = self._lease.until
        if self._timing.waits:
            self._time_wait()
        self._scheduler.call_together(self._flusher)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            if len(self._queue) == 1:
                self._until = self._lease.until
                if self._timing.waits:
                    self._time_wait()
            self._scheduler.call_together(self._flusher)

    def _time_wait(self) -> None:
        self._timing.waits = False
        self._put_at = time.monotonic_ns()

    @property
    def takes_batches(self) -> bool:
        """Whether `send_batch` can be used now."""
        if not self._limited:
            return True
        room = self.pending < _MAX_PENDING - MAX_IN_BATCH
        return room and self._queued < _MAX_QUEUED_BYTES and not self._refusal

    def send_batch(self, requests: bytes, part: "BatchPart | Any") -> None:
        """Send several requests, if `takes_batches`.

        Args:
            requests: their bytes.
            part: takes their replies; `MAX_IN_BATCH` at most.
        """
        queue = self._queue
        self._pending.append(part)
        self._in_batches += part.missing - 1
        if self._limited:
            queue.append(requests)
            self._queued += len(requests)
            self._flush_soon()
            return
        if not queue:  # as in `send`
            self._flush_next()
        queue.append(requests)

    def _refuse(self, request: bytes, receiver: Receiver) -> None:
        self.returning.failed((receiver,))
        if not self._surroundings.stand_in(self, request, receiver):
            self.failed += 1
            receiver.fail(self._refusal)

    def _flush(self) -> None:
        self._flush_due = False
        queue = self._queue
        if not queue:
            return
        if self._timer is None:
            self._watch_deadline()
        link = self._link
        if link is None or link.paused:
            self._limit()
            return
        now = _monotonic()
        if now >= self._until:
            self._refuse_unsent()
            return
        data = queue[0] if len(queue) == 1 else b"".join(queue)
        if self._put_at:
            self._timing.written(self._put_at, len(queue) + self._in_batches)
            self._put_at = 0
        self._last_sent = last = self._last_sent + len(queue) + self._in_batches
        self._asked.extend(queue)
        queue.clear()
        self._queued = self._in_batches = 0
        self._limited = last - self._answered > _MANY_PENDING
        if (now >= self._timing.due or now >= self._next_timed) and not self._timed:
            self._timed, self._last_timed = time.monotonic_ns(), last
            timing = self._timing
            timing.due = now + _BETWEEN_TIMES
            timing.waits = timing.thinks = True
            self._next_timed = now + _BETWEEN_ITS_TIMES
        if self._unsent is not None:
            self._note_sent()
        link.write(data)

    def _note_sent(self) -> None:
        now = time.monotonic_ns()
        for traced in self._unsent:
            traced.sent = now
        self._unsent = None

    def _limit(self) -> None:
        if not self._limited:
            self._limited = True
            self._queued = sum(map(len, self._queue))

    def _refuse_unsent(self) -> None:
        """Refuse requests not sent in time: the process was stopped, or the node read nothing.

        Their keys may have moved to other nodes by now.
        """
        unsent = self.requests - self._last_sent
        self._queue.clear()
        self._queued = self._in_batches = 0
        last = self._last_sent
        self._unsent, self._put_at = None, 0
        self._taken = deque((min(number, last), overdue) for number, overdue in self._taken)
        self.refused += unsent
        self.failed += unsent
        receivers = []
        while unsent > 0:
            receiver = self._pending.pop()
            receivers.append(receiver)
            unsent -= receiver.missing if isinstance(receiver, _PARTS) else 1
        for receiver in reversed(receivers):
            receiver.fail(TOO_LATE)
        self._handed_out()

    # Deadlines

    def _watch_deadline(self) -> None:
        loop = self._scheduler.loop
        self._looked = loop.time()
        self._timer = loop.call_later(self._interval, self._check_deadline)

    def _check_deadline(self) -> None:
        taken, answered = self._taken, self._answered
        now = self._scheduler.loop.time()
        late = now - self._looked - self._interval
        if late > self._interval:
            # The process was stopped. The node's replies may have arrived but not been read yet.
            taken = self._taken = deque((number, overdue + late) for number, overdue in taken)
        taken.append((self.requests, now + self._deadline))
        while taken and taken[0][0] <= answered:
            taken.popleft()
        if not taken:
            self._timer = None
        elif taken[0][1] <= now:
            self._timer = None
            self.timeouts += 1
            self._leave_link()
            self._lose(f"no reply in {self._deadline:g} s", down=True)
        else:
            self._watch_deadline()

    # Connecting

    async def _stay_connected(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            link = NativeLink(self)
            try:
                await self._open(link)
                await self._prepare(link)
            except (OSError, TimeoutError, NodeLostError, LoginRefusedError) as error:
                link.close()
                self._lose(_reason(error), down=True)
                # Random, or all proxies would connect at the same time.
                await self._wait(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
                pause = min(pause * 2, self._surroundings.longest_pause)
                continue
            except BaseException:
                link.close()
                raise
            pause = _FIRST_PAUSE
            self._serve(link)
            await link.ended

    async def _wait(self, seconds: float) -> None:
        self._again.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._again.wait()

    async def _open(self, link: Any) -> None:
        access = self._access
        async with asyncio.timeout(self._deadline):
            await open_transport(lambda: link, self.address, tls=access.tls, login=access.login)
            await link.ask(FENCE, b"VERSION ")

    async def _prepare(self, link: Any) -> None:
        """Make sure that nothing stale is served."""
        returning = self.returning
        await returning.settle(self._deadline)
        await returning.prepare(link, self._deadline, self._refuse_no_more)
        if link.transport.is_closing():
            raise NodeLostError("the connection was closed")

    def _refuse_no_more(self) -> None:
        self._refusal = b""

    def _serve(self, link: Any) -> None:
        self.connects += 1
        self._link = link
        self.ip = link.ip()
        was_down = bool(self.error)
        self.error, self._refusal = "", b""
        if was_down:
            self._surroundings.came_back(self)
        self._limited = False
        self._flush()

    def _leave_link(self) -> None:
        """Give up the connection, on which the node may still carry out requests."""
        link, sent = self._link, self._sent
        if link is not None and sent:
            self._link = None
            self.returning.overdue(link, sent)

    def _lose(self, reason: str, *, down: bool) -> None:
        """Give up the connection and all requests waiting for it.

        Args:
            reason: why.
            down: whether to refuse requests until the node has answered again.
        """
        link, self._link = self._link, None
        if link is not None:
            link.close()
        went_down = down and not self.error and not self._retired
        if down:
            self.error = reason
            self._refusal = _error_line(self.name, f"down: {reason}")
        if went_down:
            self._surroundings.went_down(self)
        pending, self._pending = self._pending, deque()
        self._last_sent = self.requests
        self._queue.clear()
        self._asked.clear()
        self._queued = self._in_batches = 0
        self._limited = True
        self._unsent, self._put_at = None, 0
        self._taken.clear()
        self._timed = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.failed += self._last_sent - self._answered
        self._answered = self._last_sent
        self.returning.failed(pending)
        error = _error_line(self.name, reason)
        for receiver in pending:
            receiver.fail(error)
        self._delivered()
        if self._retired:
            self.stop()

    # Called by the connection

    def usual_received(self, data: bytes) -> int:
        """Hand out replies of the usual kinds; see `LinkOwner`."""
        first, pending = data[0], self._pending
        if pending and (first == _V or first == _E or first == _S):  # noqa: SIM109
            kind = type(pending[0])
            if HAND_OUT is not None and kind is not KeysPart and kind is not BatchPart:
                return self._hand_out(data)
        if pending and (first == _V or first == _E):  # noqa: SIM109 - takes half the time
            if kind is KeysPart:
                return self._take_items(data)
            if len(data) > _MAX_SEARCHED and kind is not BatchPart:
                return 0
            replies, size = split_gets(data)
            if replies:
                self.replies_received(replies, bare=True)
            return size
        if first == _S:
            count = len(data) // len(STORED)
            if data == STORED * count:
                self.replies_received([STORED] * count)
                return len(data)
        return 0

    def _hand_out(self, data: bytes) -> int:
        """Hand out replies, as below, in C."""
        timed = self._last_timed if self._timed else 0
        taken: int = HAND_OUT(
            self, data, self._pending, self._answered, self._last_sent, timed, BatchPart
        )
        if taken:
            self._handed_out()
        return taken

    def _handed_out(self) -> None:
        self._delivered()
        if self._retired and not self._pending:
            self.stop()

    def _take_some(self, part: BatchPart, replies: list[bytes]) -> int:
        """Hand the first replies to a part of a batch; return how many it took."""
        some = replies[: part.missing]
        part.take(some, bare=False)
        if part.missing:
            self._pending.appendleft(part)
            part.batch.progressed()
        return len(some)

    def replies_received(self, replies: list[bytes], *, bare: bool = False) -> None:
        """Hand out replies.

        Args:
            replies: the replies, in the order of the requests.
            bare: whether they are replies to gets, without the ``END`` that ends each of them.
        """
        fitting = self._fitting(replies, bare=bare)
        unexpected = replies[fitting] + (END if bare else b"") if fitting < len(replies) else b""
        if unexpected:
            del replies[fitting:]
        answered = self._answered + fitting
        if self._timed and answered >= self._last_timed:
            self._note_time()
        self._answered = answered
        next_receiver = self._pending.popleft
        following = iter(replies)
        for reply in following:
            receiver = next_receiver()
            if type(receiver) is BatchPart:
                receiver.take([reply, *islice(following, receiver.missing - 1)], bare=bare)
                if receiver.missing:
                    self._pending.appendleft(receiver)
                    receiver.batch.progressed()
            elif Part is not None and type(receiver) is Part:
                part: Any = receiver
                self._answer_part(part, [reply, *islice(following, part.missing - 1)], bare)
            else:
                receiver.answer(reply + END if bare else reply)
        if unexpected:
            self._unexpected(unexpected)
        else:
            self._handed_out()

    def _fitting(self, replies: list[bytes], *, bare: bool) -> int:
        """Return how many replies match the requests, up to the first that does not."""
        found, most = 0, min(len(replies), self._sent)
        for receiver in self._pending:
            missing = receiver.missing if isinstance(receiver, _PARTS) else 1
            while missing:
                if found == most:
                    return found
                reply = replies[found] + END if bare else replies[found]
                missing -= 1
                if not self._asked.take(reply, missing > 0):
                    return found
                found += 1
        return found

    def _unexpected(self, reply: bytes) -> None:
        """Give up the connection: later replies cannot be matched to requests."""
        self._lose(f"unexpected reply {shown(reply)}", down=True)

    def _answer_part(self, part: Any, replies: list[bytes], bare: bool) -> None:
        for reply in replies:
            part.answer(reply + END if bare else reply)
        if part.missing:
            self._pending.appendleft(part)
            part.progressed()

    def _take_items(self, data: bytes) -> int:
        """Hand out replies to retrievals of several keys, if `data` begins with them."""
        pending, position = self._pending, 0
        while pending and type(part := pending[0]) is KeysPart and self._answered < self._last_sent:
            end = part.take_items(data, position)
            if not end:
                break
            position = end
            pending.popleft()
            self._asked.skip()
            self._answered += 1
        if position:
            if self._timed and self._answered >= self._last_timed:
                self._note_time()
            self._handed_out()
        return position

    def _note_time(self) -> None:
        took = time.monotonic_ns() - self._timed
        self.service.record(took)
        self._timing.service.record(took)
        self._timed = 0

    def link_lost(self, reason: str, *, down: bool) -> None:
        """Note that the connection can no longer be used."""
        self._lose(reason, down=down)

    def resumed(self) -> None:
        """Resume sending."""
        self._flush()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not error.args:  # not the system's
        return "no reply"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _error_line(name: str, reason: str) -> bytes:
    text = f"SERVER_ERROR node {name}: {reason}"
    return text.encode("ascii", "backslashreplace").translate(None, b"\r\n") + b"\r\n"


if NATIVE is not None:
    NATIVE.know(
        Node, NativeLink, deque, BatchPart, KeysPart, Timing, Lease, Scheduler,
        LatencyHistogram, _monotonic, time.monotonic_ns, _MANY_PENDING, _BETWEEN_TIMES,
        _BETWEEN_ITS_TIMES,
    )  # fmt: skip
