"""The built-in client: connections on the event loop, speaking the text protocol."""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from memlite.loadtest.clients.connection import Connection
from memlite.loadtest.clients.link import Link
from memlite.loadtest.clients.plain import PlainConnection
from memlite.loadtest.login import Introduction, Login, LoginRefusedError
from memlite.loadtest.plain import PlainOperations
from memlite.loadtest.recorder import Recorder

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation

__all__ = ["Settings", "TextClients"]

_LOOK_SECONDS = 0.1
_RECONNECT_SECONDS = 0.1
# The event loop's timers are a millisecond coarse. Nearer arrivals than this are waited for by
# looking again and again.
_NEAR = 2_000_000

Check = Callable[[bytes, bytes], bool]


class Settings(NamedTuple):
    """How clients go about it.

    Attributes:
        address: host and port, or the path of a UNIX socket.
        connections: how many.
        pipeline: requests a connection may have under way.
        think_time: seconds between a reply and the next request.
        timeout: seconds after which a request counts as failed.
        check: tells whether a value is one that was stored under a key; None not to look.
        keep: whether replies' values are needed, for that or for what follows on them.
        login: who clients say they are; None for nobody.
        tls: what connections are made with; None for none.
        lite: whether they speak the lite dialect.
    """

    address: tuple[str, int] | str
    connections: int
    pipeline: int = 1
    think_time: float = 0.0
    timeout: float = 5.0
    check: Check | None = None
    keep: bool = False
    login: Login | None = None
    tls: ssl.SSLContext | None = None
    lite: bool = False


class TextClients:
    """A worker's connections to one server.

    Args:
        settings: how many, and how.
        take: returns so many operations, fewer when there are no more.
        recorder: what is written into.
        plain: gives operations instead, which must be closed loop's.
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
        self.open_loop = False
        self.stopped = False
        self._loop = asyncio.get_running_loop()
        self._connections: list[Link] = []
        self._reconnecting: set[asyncio.Task[None]] = set()
        self._idle: asyncio.Event = asyncio.Event()
        self._arrivals: Iterator[int] = iter(())
        self._next = 0
        self._began = 0
        self._waiting: deque[int] = deque()
        self._free: deque[Connection] = deque()
        self._watch: asyncio.TimerHandle | None = None

    async def connect(self) -> None:
        """Connect.

        Raises:
            OSError: that is not possible.
        """
        for _ in range(self.settings.connections):
            self._connections.append(await self._connect())
        self._look()

    async def _connect(self) -> Link:
        address, one = self.settings.address, self._new()
        login = self.settings.login
        first = one if login is None else Introduction(login, one)
        if isinstance(address, str):
            await self._loop.create_unix_connection(lambda: first, address)
        else:
            await self._loop.create_connection(lambda: first, *address, ssl=self.settings.tls)
        if isinstance(first, Introduction):
            async with asyncio.timeout(self.settings.timeout):
                await first.done
        return one

    def _new(self) -> Link:
        return Connection(self) if self._plain is None else PlainConnection(self, self._plain)

    # Closed loop

    def start(self) -> None:
        """Let every connection make requests, each when its replies have come."""
        for one in self._connections:
            one.fill()

    # Open loop

    def start_at(self, arrivals: Iterator[int], began: int) -> None:
        """Let requests be made at the times of `arrivals`, counted from `began`."""
        self.open_loop = True
        able = [one for one in self._connections if isinstance(one, Connection)]
        self._free.extend(able * self.settings.pipeline)
        self._arrivals, self._began = arrivals, began
        if self._has_next():
            self._dispatch()

    def _has_next(self) -> bool:
        """Look when the next arrival is; stop if there is none."""
        following = next(self._arrivals, None)
        if following is None:
            self.stopped = True
            self.settle()
            return False
        self._next = self._began + following
        return True

    def _dispatch(self) -> None:
        if self.stopped:
            return
        now = perf_counter_ns()
        while self._next <= now:
            intended = self._next
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
            self._loop.call_later((left - _NEAR / 2) / 1e9, self._dispatch)
        else:
            self._loop.call_soon(self._dispatch)

    def _free_connection(self) -> Connection | None:
        while self._free:
            one = self._free.popleft()
            if one.connected:
                return one
        return None

    def _send_one(self, one: Connection, intended: int) -> bool:
        operations = self.take(1)
        if operations:
            one.send(operations, intended)
        else:
            self.stopped = True
            self._waiting.clear()
            self.settle()
        return bool(operations)

    def _note_lateness(self, nanoseconds: int) -> None:
        lateness = self.recorder.lateness
        microseconds = nanoseconds // 1000
        lateness[microseconds] = lateness.get(microseconds, 0) + 1

    def freed(self, one: Connection, count: int) -> None:
        """Use places in a connection's pipeline again."""
        for _ in range(count):
            if not self._waiting or not self._send_one(one, self._waiting.popleft()):
                self._free.append(one)

    # The end

    def stop(self) -> None:
        """Make no more requests."""
        self.stopped = True

    async def drained(self) -> None:
        """Return once no request is under way or waits."""
        while self._busy():
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._idle.wait()

    def _busy(self) -> bool:
        if self.open_loop and not self.stopped:
            return True
        return bool(self._waiting or self._reconnecting) or any(
            one.busy for one in self._connections
        )

    def think(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` after a client's pause."""
        self._loop.call_later(self.settings.think_time, go_on)

    def settle(self) -> None:
        """Report that a connection has nothing under way."""
        self._idle.set()

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

    # What goes wrong

    def failed(self, kind: str, count: int = 1) -> None:
        """Count errors."""
        errors = self.recorder.counts.errors
        errors[kind] = errors.get(kind, 0) + count
        self.recorder.last = perf_counter_ns()

    def _look(self) -> None:
        """Give up requests that take too long."""
        overdue = perf_counter_ns() - int(self.settings.timeout * 1e9)
        for one in self._connections:
            if one.waiting_since(overdue):
                one.give_up("timeout")
        self._watch = self._loop.call_later(_LOOK_SECONDS, self._look)

    def lost(self, one: Link) -> None:
        """Replace a connection."""
        self._connections.remove(one)
        task = self._loop.create_task(self._reconnect())
        self._reconnecting.add(task)
        task.add_done_callback(self._reconnecting.discard)

    async def _reconnect(self) -> None:
        while not self.stopped or self._waiting:
            try:
                async with asyncio.timeout(self.settings.timeout):
                    one = await self._connect()
            except (OSError, TimeoutError) as error:
                self.failed(_connect_error(error), 1)
                if self._waiting and not self._connections:
                    # Nobody is there to send them.
                    self.failed("no connection", len(self._waiting))
                    self._waiting.clear()
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            self._connections.append(one)
            if self.open_loop and isinstance(one, Connection):
                self.freed(one, self.settings.pipeline)
            else:
                one.fill()
            return


def _connect_error(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, LoginRefusedError):
        return str(error)
    if isinstance(error, ssl.SSLError):
        return "TLS handshake failed"
    return "cannot connect" if isinstance(error, OSError) else "timeout"
