"""The server's life cycle: start accepting, serve until asked to stop, drain."""

import asyncio
import contextlib
import errno
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from memlite.backends import Backend
from memlite.core.errors import MemliteError
from memlite.core.logs import failure
from memlite.server.connections.listeners import Listener
from memlite.server.connections.register import Register
from memlite.server.scheduler import Scheduler

if TYPE_CHECKING:
    from memlite.server.connections.udp import UdpService  # only for servers with UDP

__all__ = ["Lifecycle", "Reloader", "Service"]

_log = logging.getLogger("memlite")

_DRAIN_SECONDS = 1.0
_GRACEFUL_SECONDS = 10.0
# How long to wait, after clients have disconnected, for commands that the store has yet to carry
# out. By default, the store has the same time for each. Commands queued after them are not started.
_SETTLE_SECONDS = 5.0
# Connections accepted in one batch. asyncio accepts up to its backlog before it serves any, and
# connections over -c stay open for a few iterations; process.raise_file_limit reserves file
# descriptors for them.
_ACCEPT_AT_ONCE = 32
# Errors of accept() that last until some other resource is released.
_RESOURCE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Reloader:
    """Reloads files that may change while the server runs (SIGHUP).

    Args:
        readers: names for the log, and functions that reload.
    """

    def __init__(self, readers: Sequence[tuple[str, Callable[[], None]]]) -> None:
        self._readers = readers

    def reload(self) -> None:
        """Reload everything; if that fails for one file, its old content stays in use."""
        if not self._readers:
            _log.info("SIGHUP: nothing to reload")
        for name, read in self._readers:
            try:
                read()
            except MemliteError as error:
                _log.error("SIGHUP: %s not reloaded: %s", name, error)
            else:
                _log.info("SIGHUP: %s reloaded", name)


class Service(Protocol):
    """A background service of the server."""

    def start(self) -> None:
        """Start. The event loop is running and sockets accept connections."""

    def stop(self) -> None:
        """Stop."""


class Lifecycle:
    """Runs the server until it is asked to stop.

    Args:
        listeners: the sockets that accept connections.
        udp: the UDP services.
        connect: returns the protocol factory for connections accepted from a listener.
        register: the open connections.
        scheduler: receives the event loop.
        backend: opened first and closed last; None if items are kept in memory only.
        reload: called on SIGHUP.
        services: started once sockets accept connections, stopped at the end.
        opening: called before the backend is opened, which may take long. Services are stopped,
            too, if the backend cannot be opened.
        backlog: connections that may wait to be accepted.
        unfinished: returns whether services have replies in progress; a stop waits for these as it
            does for those of connections.
        owns_process: whether to handle the process's signals and the event loop's failures; False
            for a server in another program, which has its own handlers.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        udp: "Sequence[UdpService]",
        connect: Callable[[Listener], Callable[[], asyncio.Protocol]],
        register: Register,
        scheduler: Scheduler,
        backend: Backend | None,
        reload: Callable[[], None],
        services: Sequence[Service],
        backlog: int,
        opening: Callable[[], None] = lambda: None,
        unfinished: Callable[[], bool] = lambda: False,
        *,
        owns_process: bool,
    ) -> None:
        self._listeners = listeners
        self._udp = udp
        self._connect = connect
        self._register = register
        self._scheduler = scheduler
        self._backend = backend
        self._reload = reload
        self._services = services
        self._opening = opening
        self._unfinished = unfinished
        self._backlog = backlog
        self._owns_process = owns_process
        self._stop: asyncio.Future[float] | None = None
        self._leaving: asyncio.Task[None] | None = None

    @property
    def draining(self) -> bool:
        """Whether the server was asked to stop."""
        return self._stop is not None and self._stop.done()

    def request_stop(self, *, graceful: bool = False) -> None:
        """Send pending replies, then close all connections; a second request closes them at once.

        After a second request, commands that wait for the store are abandoned.

        Args:
            graceful: whether to wait longer, also for commands that have partly arrived.
        """
        if self._stop is None:
            return
        if not self._stop.done():
            self._stop.set_result(_GRACEFUL_SECONDS if graceful else _DRAIN_SECONDS)
        else:
            if self._leaving is not None:
                self._leaving.cancel()
            self._register.abort_all()
            for service in self._udp:
                service.abort()
            self._scheduler.hurry()

    async def run(
        self,
        ready: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
        leave: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Serve until asked to stop, by a signal or `request_stop`.

        Closes the listeners when it returns, is cancelled or fails after sockets accept.

        Args:
            ready: called when connections are accepted and signals handled.
            stopping: called on a request to stop, before connections are closed.
            leave: run next, while clients are still served; a second request cancels it.
        """
        loop = self._scheduler.loop = asyncio.get_running_loop()
        self._stop = loop.create_future()
        if self._owns_process:
            self._install_signals(loop)
            loop.set_exception_handler(self._report_failure)
        if self._backend is None:
            await self._serve(self._stop, ready, stopping, leave)
            return
        await self._open(self._backend)
        try:
            await self._serve(self._stop, ready, stopping, leave)
        finally:
            await self._scheduler.settle(_SETTLE_SECONDS)
            await self._backend.close()

    async def _open(self, backend: Backend) -> None:
        try:
            self._opening()
            await self._open_backend(backend)
        except BaseException:
            self._stop_services()
            raise

    async def _open_backend(self, backend: Backend) -> None:
        await backend.open()

    def _stop_services(self) -> None:
        for part in self._services:
            part.stop()

    async def _serve(
        self,
        stop: asyncio.Future[float],
        ready: Callable[[], None],
        stopping: Callable[[], None],
        leave: Callable[[], Coroutine[Any, Any, None]] | None,
    ) -> None:
        servers: list[asyncio.AbstractServer] = []
        opened: list[UdpService] = []
        try:
            await self._accept(servers)
            for service in self._udp:
                await service.open()
                opened.append(service)
            for listener in (*self._listeners, *(service.listener for service in self._udp)):
                _log.info("server listening (%s)", listener.label)
            for part in self._services:
                part.start()
            ready()
            patience = await stop
            stopping()
            if leave is not None:
                self._leaving = self._scheduler.loop.create_task(leave())
                await asyncio.wait([self._leaving])
            self._stop_accepting(servers)
            for service in self._udp:
                service.stop()
            await self._drain(patience)
        except BaseException:
            # The process may outlive its server.
            self._stop_accepting(servers)
            self._register.give_up_handshakes("the server is stopping")
            self._register.abort_all()
            for service in opened:
                service.stop()
                service.abort()
            raise
        finally:
            self._stop_services()

    def _stop_accepting(self, servers: Sequence[asyncio.AbstractServer]) -> None:
        for listener, server in zip(self._listeners, servers, strict=False):
            listener.remove_file()
            server.close()
            listener.close()

    async def _accept(self, servers: list[asyncio.AbstractServer]) -> None:
        """Begin to accept connections; append the asyncio servers to `servers`."""
        for listener in self._listeners:
            # One by one: if the second fails, the first must be closed.
            servers.append(await self._accept_from(listener))  # noqa: PERF401
        for listener in self._listeners:
            listener.sock.listen(self._backlog)

    async def _accept_from(self, listener: Listener) -> asyncio.AbstractServer:
        loop = self._scheduler.loop
        create = loop.create_server if listener.port else loop.create_unix_server
        return await create(self._connect(listener), sock=listener.sock, backlog=_ACCEPT_AT_ONCE)

    def _install_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        actions = {
            "SIGINT": self.request_stop,
            "SIGTERM": self.request_stop,
            "SIGUSR1": lambda: self.request_stop(graceful=True),
            "SIGHUP": self._reload,
        }
        for name, action in actions.items():
            # Not supported on Windows, nor outside the main thread (in tests).
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError, AttributeError):
                loop.add_signal_handler(getattr(signal, name), action)
        # A flood of signals fills asyncio's wakeup socket. That is harmless: the loop wakes anyway.
        with contextlib.suppress(ValueError):
            wakeup = signal.set_wakeup_fd(-1)
            signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def _report_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log exceptions caught by the event loop, and failed accepts in one line."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _RESOURCE_ERRORS):
            loop.default_exception_handler(context)
        else:
            _log.warning(
                "temporarily cannot accept connections: %s",
                error.strerror,
                extra=failure("accept_failed"),
            )

    async def _drain(self, patience: float) -> None:
        """Wait for connections to finish work in progress, then close them."""
        loop, register = self._scheduler.loop, self._register
        deadline = loop.time() + patience
        register.give_up_handshakes("the server is stopping")
        while (
            register.connections
            or any(service.under_way for service in self._udp)
            or self._unfinished()
        ):
            register.close_finished()
            if loop.time() >= deadline:
                break
            await asyncio.sleep(0.005)
        register.abort_all()
        for service in self._udp:
            service.abort()
        await asyncio.sleep(0)
