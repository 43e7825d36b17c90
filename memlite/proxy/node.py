"""A node: one pipelined connection, opened again when it is lost."""

import asyncio
import contextlib
import random
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from memlite.client import FENCE, LoginRefusedError, TextLogin, open_transport
from memlite.cluster.topology import Node as NodeAddress
from memlite.proxy.link import Link, NodeLostError
from memlite.proxy.returning import Returning
from memlite.server.scheduler import Scheduler

__all__ = ["Access", "Node", "Receiver", "Surroundings"]

# What may wait for a node; requests beyond are refused.
_MOST_PENDING: Final = 16_384
_MOST_QUEUED_BYTES: Final = 64 * 1024 * 1024
_FIRST_PAUSE: Final = 0.05
# Deadlines are kept for groups of requests: one is noticed late by up to this share of it.
_COARSENESS: Final = 0.1


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
    """

    deadline: float
    tls: ssl.SSLContext | None = None
    login: TextLogin | None = None


class Surroundings(Protocol):
    """What a node's being down matters to.

    Attributes:
        longest_pause: seconds between two attempts to reach it, at most.
    """

    @property
    def longest_pause(self) -> float: ...  # noqa: D102 - see the class

    def went_down(self, node: "Node") -> None:
        """Note that it is down."""

    def came_back(self, node: "Node") -> None:
        """Note that it is up again."""

    def stand_in(self, node: "Node", request: bytes, receiver: Receiver) -> bool:
        """Have a request for it served by another while it is down; return whether that is so."""


class Node:
    """Sends requests to a node and hands out its replies.

    Requests of one iteration of the event loop are sent with one write. A request is never sent
    twice: if its reply does not come, nobody knows whether the node has carried it out.

    A node is up from its reply to a first request of the proxy's own. When its connection is lost,
    it is opened again at once; if that fails, or if the node had stopped to answer, requests are
    refused until it is up again.

    Args:
        node: its name and address.
        scheduler: runs the attempts to connect.
        access: how it is reached.
        delivered: called after replies were handed out.
        surroundings: are told when it is down.
        returning: knows what must happen before it is up.

    Attributes:
        name: its name.
        address: where it listens.
        returning: as above.
        requests: how many requests were taken for it.
        failed: how many of those, or of those that were refused, have failed.
        refused: how many were refused because too many were waiting.
        timeouts: how often the deadline has passed.
        connects: how often a connection was opened.
        ip: the IP address at which it was reached last; empty if it was not yet, or by a path.
        error: why it is down; empty while it is up, or being connected for the first time.
    """

    def __init__(
        self,
        node: NodeAddress,
        scheduler: Scheduler,
        access: Access,
        delivered: Callable[[], None],
        surroundings: Surroundings,
        returning: Returning,
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
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._pending: deque[Receiver] = deque()
        self._queue: list[bytes] = []
        self._queued = 0  # bytes
        self._flush_due = False
        # Groups of requests: the number of the last one, and when the group is overdue.
        self._groups: deque[tuple[int, float]] = deque()
        self._group_ends = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._retired = False
        self.requests = self.failed = self.refused = self.timeouts = self.connects = 0
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
    def pending(self) -> int:
        """How many requests have no reply yet."""
        return len(self._pending)

    def start(self) -> None:
        """Begin to connect."""
        self._task = self._scheduler.loop.create_task(self._stay_connected())

    def stop(self) -> None:
        """Close the connection; requests without a reply fail."""
        if self._task is not None:
            self._task.cancel()
        self._retired = False
        self._refusal = _error_line(self.name, "the proxy stops")
        self._lose("the proxy stops", down=False)
        self.returning.stop()

    def retire(self) -> None:
        """Stop once all requests are answered; there must be no more."""
        self._retired = True
        if not self._pending:
            self.stop()

    def try_again(self) -> None:
        """Try at once to reach it, if it is down."""
        self._again.set()

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request soon.

        Args:
            request: its bytes. It must have exactly one reply.
            receiver: takes the reply; it may have been told of a failure when this returns.
        """
        if self._refusal:
            self._refuse(request, receiver)
            return
        pending = self._pending
        if len(pending) >= _MOST_PENDING or self._queued >= _MOST_QUEUED_BYTES:
            self.refused += 1
            self.failed += 1
            receiver.fail(_error_line(self.name, "too many requests are waiting for it"))
            return
        pending.append(receiver)
        self.requests += 1
        self._queue.append(request)
        self._queued += len(request)
        if not self._flush_due:
            self._flush_due = True
            self._scheduler.loop.call_soon(self._flush)

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
        self._note_deadline()
        link = self._link
        if link is None or link.paused:
            return
        data = queue[0] if len(queue) == 1 else b"".join(queue)
        queue.clear()
        self._queued = 0
        link.transport.write(data)

    # Deadlines

    def _note_deadline(self) -> None:
        now = self._scheduler.loop.time()
        if self._groups and now < self._group_ends:
            self._groups[-1] = self.requests, self._groups[-1][1]
            return
        self._group_ends = now + self._deadline * _COARSENESS
        overdue = self._group_ends + self._deadline
        self._groups.append((self.requests, overdue))
        if self._timer is None:
            self._timer = self._scheduler.loop.call_at(overdue, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        answered = self.requests - len(self._pending)
        groups = self._groups
        while groups and groups[0][0] <= answered:
            groups.popleft()
        if not groups:
            return
        overdue = groups[0][1]
        if overdue <= self._scheduler.loop.time():
            self.timeouts += 1
            self._leave_link()
            self._lose(f"no reply in {self._deadline:g} s", down=True)
        else:
            self._timer = self._scheduler.loop.call_at(overdue, self._check_deadline)

    # Connecting

    async def _stay_connected(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            link = Link(self)
            try:
                await self._open(link)
                await self._prepare(link)
            except (OSError, TimeoutError, NodeLostError, LoginRefusedError) as error:
                link.close()
                self._lose(_reason(error), down=True)
                # At random, or all proxies would come at the same time.
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

    async def _open(self, link: Link) -> None:
        access = self._access
        async with asyncio.timeout(self._deadline):
            await open_transport(lambda: link, self.address, tls=access.tls, login=access.login)
            await link.ask(FENCE, b"VERSION ")

    async def _prepare(self, link: Link) -> None:
        """See to it that nothing stale is served."""
        returning = self.returning
        await returning.settle(self._deadline)
        if returning.must_empty:
            await returning.empty(link, self._deadline)
        if returning.must_empty:
            # A request was refused meanwhile. Now that the node is known to obey, requests wait.
            self._refusal = b""
            await returning.empty(link, self._deadline)
        if link.transport.is_closing():
            raise NodeLostError("the connection was closed")

    def _serve(self, link: Link) -> None:
        self.connects += 1
        self._link = link
        self.ip = link.ip()
        was_down = bool(self.error)
        self.error, self._refusal = "", b""
        if was_down:
            self._surroundings.came_back(self)
        self._flush()

    def _leave_link(self) -> None:
        """Give up the connection, on which the node may still carry out requests."""
        link, sent = self._link, len(self._pending) - len(self._queue)
        if link is not None and sent:
            self._link = None
            self.returning.overdue(link, sent)

    def _lose(self, reason: str, *, down: bool) -> None:
        """Give up the connection and everything that waits for it.

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
        self._queue.clear()
        self._queued = 0
        self._groups.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.failed += len(pending)
        self.returning.failed(pending)
        error = _error_line(self.name, reason)
        for receiver in pending:
            receiver.fail(error)
        self._delivered()
        if self._retired:
            self.stop()

    # Called by the connection

    def replies_received(self, replies: list[bytes]) -> None:
        """Hand out replies."""
        pending = self._pending
        if len(replies) > len(pending):
            self._lose("more replies than requests", down=True)
            return
        for reply in replies:
            pending.popleft().answer(reply)
        self._delivered()
        if self._retired and not pending:
            self.stop()

    def link_lost(self, reason: str, *, down: bool) -> None:
        """Note that the connection can no longer be used."""
        self._lose(reason, down=down)

    def resumed(self) -> None:
        """Continue to send."""
        self._flush()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not error.args:  # not the system's
        return "it does not answer"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _error_line(name: str, reason: str) -> bytes:
    text = f"SERVER_ERROR node {name}: {reason}"
    return text.encode("ascii", "backslashreplace").translate(None, b"\r\n") + b"\r\n"
