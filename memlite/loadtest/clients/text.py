"""The built-in client: connections on the event loop, speaking the text protocol."""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING

from memlite.client.address import Address
from memlite.client.transport import open_transport
from memlite.loadtest.clients.admission import Admission
from memlite.loadtest.clients.connection import Sender, TextConnection
from memlite.loadtest.clients.measured import MeasuredClient, MeasuredConnection
from memlite.loadtest.clients.plain import PlainConnection
from memlite.loadtest.clients.settings import Settings
from memlite.loadtest.limits import what_failed
from memlite.loadtest.plain import PlainOperations
from memlite.loadtest.recorder import Recorder

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation

__all__ = ["TextClients"]

_LOOK_SECONDS = 0.1
_RECONNECT_SECONDS = 0.1
# The event loop's timers have a resolution of a millisecond. For arrivals that are due sooner than
# this, in nanoseconds, the client polls.
_NEAR = 2_000_000
# Requests may become due faster than they can be recorded. After handling at most this many,
# the client checks for replies and for the end of the run.
_AT_ONCE = 100


class TextClients:
    """A worker's connections to one server, or to several proxies of the same nodes.

    Implements `memlite.loadtest.clients.connection.TextOwner`.

    Args:
        settings: the number of connections, and how they behave.
        take: returns the given number of operations, fewer when they run out.
        recorder: takes the measurements.
        plain: the source of operations in place of `take`, in closed loop only.
    """

    def __init__(
        self,
        settings: Settings,
        take: "Callable[[int], list[Operation]]",
        recorder: Recorder,
        plain: PlainOperations | None = None,
    ) -> None:
        self.settings = settings
        self.take = take
        self._plain = plain
        self.recorder = recorder
        self._occupancy = recorder.occupancy
        self.open_loop = False
        self.stopped = False
        self._loop = asyncio.get_running_loop()
        self._admission = Admission(settings.login, settings.dialect)
        self._addresses = itertools.cycle((settings.address, *settings.extra_addresses))
        self._connections: list[MeasuredClient] = []
        self._reconnecting: set[asyncio.Task[None]] = set()
        self._some_idle: asyncio.Event = asyncio.Event()
        self._arrivals: Iterator[int] = iter(())
        self._next = 0
        self._began = 0
        # The time of the last poll that found no arrival due, and at that time, the processor time
        # used and the time of the last reply; or the time at which it went to sleep until shortly
        # before the next arrival. All in nanoseconds.
        self._polled = 0
        self._used = 0
        self._seen = 0
        self._asleep = 0
        self._ended = 0  # when it was told to stop, in nanoseconds
        self._waiting: deque[int] = deque()
        self._free: deque[Sender] = deque()
        self._watch: asyncio.TimerHandle | None = None

    async def connect(self) -> None:
        """Open all connections; on return, each has received a reply from the server.

        Raises:
            RefusedError: the server does not serve a connection.
            OSError: a connection cannot be opened.
            TimeoutError: it took too long.
        """
        for _ in range(self.settings.connections):
            await self._connect()
        self._check_timeouts()

    async def _connect(self) -> MeasuredClient:
        settings = self.settings
        async with asyncio.timeout(settings.timeout):
            return await open_transport(
                self._new, self._address(), tls=settings.tls, login=self._admission
            )

    def _address(self) -> Address:
        """Return where the next connection goes."""
        return Address.of(next(self._addresses))

    def _new(self) -> MeasuredConnection:
        return TextConnection(self) if self._plain is None else PlainConnection(self, self._plain)

    # Closed loop

    def start(self) -> None:
        """Let every connection send requests, and more whenever its replies have arrived."""
        for one in self._connections:
            one.fill()

    # Open loop

    def start_at(self, arrivals: Iterator[int], began: int) -> None:
        """Send requests at the times of `arrivals`, counted from `began`, in nanoseconds."""
        self.open_loop = True
        able = [one for one in self._connections if isinstance(one, Sender)]
        self._free.extend(able * self.settings.pipeline)
        self._arrivals, self._began = arrivals, began
        if self._has_next():
            self._dispatch()

    def _has_next(self) -> bool:
        """Advance to the next arrival; stop if there is none."""
        following = next(self._arrivals, None)
        if following is None:
            self._end_arrivals()
            self.idle()
            return False
        self._next = self._began + following
        return True

    def _dispatch(self) -> None:
        if self.stopped:
            return
        now = perf_counter_ns()
        self._note_idleness(now)
        for _ in range(_AT_ONCE):
            if self._next > now:
                break
            intended = self._next
            self._occupancy.arrived(intended)
            one = self._free_connection()
            if one is None:
                self._waiting.append(intended)
            else:
                self._note_lateness(now - intended)
                if not self._send_one(one, intended):
                    return
                now = perf_counter_ns()
            if not self._has_next():
                return
        left = self._next - now
        if left > _NEAR:
            self._asleep = now
            self._loop.call_later((left - _NEAR / 2) / 1e9, self._dispatch)
        else:
            self._polled, self._seen = now, self.recorder.last
            self._used = process_time_ns()
            self._loop.call_soon(self._dispatch)

    def _note_idleness(self, now: int) -> None:
        """Count the time since the last poll for arrivals, if there was nothing to do."""
        if self._polled and self._next > now and self._seen == self.recorder.last:
            self.recorder.polled += now - self._polled
            self.recorder.spun += process_time_ns() - self._used
        elif self._asleep:
            self.recorder.slept += now - self._asleep
        self._polled = self._asleep = 0

    def _end_arrivals(self) -> None:
        self.stopped = True
        self.recorder.until = perf_counter_ns()

    def _free_connection(self) -> Sender | None:
        while self._free:
            one = self._free.popleft()
            if one.connected:
                return one
        return None

    def _send_one(self, one: Sender, intended: int) -> bool:
        operations = self.take(1)
        if operations:
            one.send(operations, intended)
        else:
            # There is nothing left to send, so nothing has arrived.
            for moment in (intended, *self._waiting):
                self._occupancy.left(moment)
            self._end_arrivals()
            self._waiting.clear()
            self.idle()
        return bool(operations)

    def _note_lateness(self, nanoseconds: int) -> None:
        lateness = self.recorder.lateness
        microseconds = nanoseconds // 1000
        lateness[microseconds] = lateness.get(microseconds, 0) + 1

    def freed(self, connection: Sender, count: int) -> None:
        """Reuse slots in a connection's pipeline, in open loop, as requests complete."""
        self._occupancy.left(self.recorder.last, count)
        self._reuse(connection, count)

    def dropped(self, count: int) -> None:
        """Note that requests have failed together with their connection, in open loop."""
        self._occupancy.left(perf_counter_ns(), count)

    def _reuse(self, connection: Sender, count: int) -> None:
        for _ in range(count):
            if not self._waiting or not self._send_one(connection, self._waiting.popleft()):
                self._free.append(connection)

    # The end

    def stop(self) -> None:
        """Make no more requests than are due; give up those not sent within the timeout."""
        self._end_arrivals()
        self._ended = self.recorder.until

    async def drained(self) -> None:
        """Return once no request is outstanding or waiting to be sent."""
        while self._busy():
            self._some_idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._some_idle.wait()

    def _busy(self) -> bool:
        if self.open_loop and not self.stopped:
            return True
        return bool(self._waiting or self._reconnecting) or any(
            one.busy for one in self._connections
        )

    def think(self, resume: Callable[[], None]) -> None:
        """Call `resume` after the think time."""
        self._loop.call_later(self.settings.think_time, resume)

    def idle(self) -> None:
        """Note that a connection has nothing outstanding."""
        self._some_idle.set()

    async def close(self) -> None:
        """Close all connections."""
        self.stopped = True
        if self._watch is not None:
            self._watch.cancel()
        for task in self._reconnecting:
            task.cancel()
        for one in self._connections:
            one.close()
        await asyncio.sleep(0)

    # Errors

    def failed(self, kind: str, count: int = 1) -> None:
        """Count errors."""
        errors = self.recorder.counts.errors
        errors[kind] = errors.get(kind, 0) + count
        self.recorder.last = perf_counter_ns()

    def _check_timeouts(self) -> None:
        """Give up connections whose requests take too long, now and periodically."""
        overdue = perf_counter_ns() - int(self.settings.timeout * 1e9)
        for one in self._connections:
            if one.waiting_since(overdue):
                one.give_up("timeout")
        if self._waiting and 0 < self._ended < overdue:
            # An overloaded server might take many times the measured duration to answer them.
            self._fail_waiting("timeout")
        self._watch = self._loop.call_later(_LOOK_SECONDS, self._check_timeouts)

    def _fail_waiting(self, kind: str) -> None:
        """Count requests that are still waiting to be sent as failed."""
        self.failed(kind, len(self._waiting))
        self.dropped(len(self._waiting))
        self._waiting.clear()

    def gained(self, connection: MeasuredClient) -> None:
        """Note that a connection can be used."""
        self._connections.append(connection)

    def lost(self, connection: MeasuredClient) -> None:
        """Replace a connection."""
        self._connections.remove(connection)
        task = self._loop.create_task(self._reconnect())
        self._reconnecting.add(task)
        task.add_done_callback(self._reconnecting.discard)

    async def _reconnect(self) -> None:
        while not self.stopped or self._waiting:
            try:
                one = await self._connect()
            except OSError as error:
                self.failed(what_failed(error), 1)
                if self._waiting and not self._connections:
                    # There is no connection left to send them on.
                    self._fail_waiting("no connection")
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            if self.open_loop and isinstance(one, Sender):
                self._reuse(one, self.settings.pipeline)
            else:
                one.fill()
            return
