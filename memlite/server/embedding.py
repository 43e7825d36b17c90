"""A server embedded in another program: ``async with memlite.serve() as server``."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Self

from memlite.backends import Backend
from memlite.backends.registry import Context
from memlite.config import Config
from memlite.config.keywords import configure
from memlite.core.clock import Clock
from memlite.core.errors import ConfigError, StartError
from memlite.server.connections.listeners import Listener, listen
from memlite.server.server import Server

__all__ = ["EmbeddedServer", "serve"]

_LOOPBACK = "127.0.0.1"
# These settings concern the process, the event loop or the log, which belong to the program.
OF_THE_PROCESS = (
    "daemon", "enable_coredumps", "join", "lock_memory", "log_format", "log_level", "loop",
    "memory_file", "pidfile", "user",
)  # fmt: skip


class EmbeddedServer:
    """A server on the running event loop; created by `serve`.

    Attributes:
        config: its settings.
        host: the IP address it listens on; empty for a UNIX socket.
        port: its TCP port; 0 for a UNIX socket.
        udp_port: its UDP port; 0 if it takes no datagrams.
        http_port: the port of ``http``; 0 without it.
        path: its UNIX socket; empty for TCP.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self.config = server.config
        first = server.listeners[0]
        self.port = first.port
        self.host = str(first.sock.getsockname()[0]) if self.port else ""
        self.path = "" if self.port else str(first.file)
        self.udp_port = server.udp[0].listener.port if server.udp else 0
        self.http_port = server.http.port if server.http is not None else 0

    @property
    def address(self) -> tuple[str, int] | str:
        """Where clients connect: host and port, or the path of a UNIX socket."""
        return self.path or (self.host, self.port)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the backend, and accept connections.

        Raises:
            StartError: the backend cannot be opened.
        """
        ready = asyncio.Event()
        self._task = task = asyncio.get_running_loop().create_task(self._server.run(ready.set))
        waiting = asyncio.ensure_future(ready.wait())
        try:
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            waiting.cancel()
        if not ready.is_set():
            task.result()
            raise StartError("the server stopped during startup")

    async def stop(self) -> None:
        """Stop accepting, let connections finish work in progress, and close the backend.

        Connections have one second to finish. A second call closes them at once, and so does
        cancelling the first one. Does nothing once the server has stopped.

        Raises:
            Exception: the server had failed.
        """
        self._server.request_stop()
        try:
            await self.wait_closed()
        except asyncio.CancelledError:
            self._server.request_stop()
            raise

    async def wait_closed(self) -> None:
        """Return when the server has stopped, for instance by a client's ``shutdown`` command.

        Raises:
            Exception: the server has failed.
        """
        task = self._task
        if task is not None:
            await asyncio.wait([task])  # leaves the task running if this call is cancelled
            if not task.cancelled():  # `asyncio.run` cancels all tasks at its end
                task.result()


@contextlib.asynccontextmanager
async def serve(
    config: Config | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    backend: str | Callable[[Context], Backend] | None = None,
    clock: Clock | None = None,
    **settings: object,
) -> AsyncIterator[EmbeddedServer]:
    """Serve on the running event loop while the context lasts.

        async with memlite.serve(memory_limit=128) as server:
            print(server.host, server.port)

    The program keeps its signal handlers, its logging, its garbage collector's thresholds and its
    event loop's exception handler. At the end, connections finish work in progress, then the
    backend is closed. Several servers may run on one loop.

    The memory limit applies to the counted size of items. Unlike the command, this server does not
    measure the memory of the process, which contains the rest of the program.

    Args:
        config: the settings; by default, the defaults on any free port of 127.0.0.1.
        host: the address to listen on, instead of the settings' ``listen``.
        port: the TCP port; 0 for any free one.
        backend: a backend's URL, or a function that creates a backend.
        clock: tells the time; tests may pass a clock that they control.
        settings: further settings by their names in `Config`, with values as in a settings file:
            ``near_cache="64m"``, ``unix_socket=path``, ``enable_ssl=True`` with
            ``extended={"ssl_chain_cert": file, "ssl_key": file}``.

    Yields:
        The server, accepting connections.

    Raises:
        ConfigError: a setting is unknown, invalid, or concerns the process.
        StartError: an address is in use, or the backend cannot be opened.
    """
    if isinstance(backend, str):
        settings["backend"] = backend
    if host is not None:
        settings["listen"] = (host,)
    elif config is None and not settings.get("unix_socket"):
        settings.setdefault("listen", (_LOOPBACK,))
    if port is not None or config is None:
        settings["port"] = port or 0
    checked = _check(configure(settings, config))
    tls = None
    if checked.enable_ssl and (checked.http or not checked.unix_socket):
        from memlite.server.connections.tls import Tls  # only if TLS is requested

        tls = Tls(checked.extended)
    make = None if backend is None or isinstance(backend, str) else backend
    with _bound(checked) as listeners:
        server = Server(checked, listeners, tls=tls, clock=clock, backend=make, owns_process=False)
        async with EmbeddedServer(server) as embedded:
            yield embedded


def _check(config: Config) -> Config:
    defaults = Config()
    for name in OF_THE_PROCESS:
        if getattr(config, name) != getattr(defaults, name):
            raise ConfigError(f"{name}: has no effect on a server embedded in a program")
    return config


@contextlib.contextmanager
def _bound(config: Config) -> Iterator[list[Listener]]:
    listeners = listen(config)
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()
