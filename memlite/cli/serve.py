"""Runs the server in this process: from settings to sockets, an event loop and an exit code."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from memlite.cli.notices import announce, report_ignored, warn_of_exposure
from memlite.config import Config, Settings
from memlite.core import logs, signals
from memlite.core.build import describe_build
from memlite.core.clock import Clock
from memlite.core.errors import StartError
from memlite.core.version import __version__
from memlite.server import process
from memlite.server.connections.listeners import Listener, listen, write_ports
from memlite.server.scheduler import Scheduler
from memlite.server.server import Server
from memlite.server.service import ServiceManager
from memlite.server.upkeep.allocator import tune_allocator
from memlite.server.upkeep.collector import tune_collector

if TYPE_CHECKING:
    from memlite.server.connections.tls import Tls  # slow to import

__all__ = ["Assemble", "Serving", "serve"]

# Same as `http.door.MAX_CONNECTIONS`; copied so that servers without --http need not import it.
HTTP_CONNECTIONS = 64

_log = logging.getLogger("memlite")


class Serving(Protocol):
    """What `serve` runs: a server, or a proxy.

    Attributes:
        scheduler: receives the event loop.
    """

    @property
    def scheduler(self) -> Scheduler: ...  # noqa: D102 - see the class

    async def run(self, ready: Callable[[], None], stopping: Callable[[], None]) -> None:
        """Serve until asked to stop; see `memlite.server.lifecycle.Lifecycle`."""


class Assemble(Protocol):
    """Creates the object that `serve` runs."""

    def __call__(self, listeners: Sequence[Listener], tls: "Tls | None") -> Serving:
        """Return the object; without listeners, it is created only to check the settings."""


def serve(settings: Settings, assemble: Assemble | None = None, what: str = "") -> int:
    """Serve until a signal or a command stops the server.

    Args:
        settings: the settings.
        assemble: creates the server or proxy to run; by default, the configured server.
        what: a description of the service, for users; by default, the backend.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: a setting turned out to be invalid.
        StartError: the server cannot start.
    """
    config = settings.config
    workers, supervised = 1, False
    if assemble is None:
        assemble = partial(_server, config)
        if config.threads > 1 or config.memory_file is not None:
            from memlite.server.workers.supervisor import workers_of  # most servers have one worker

            workers = workers_of(config)
            supervised = workers > 1 or config.memory_file is not None
    what = what or config.backend
    logs.configure(logs.level_for(config.verbose, config.log_level), config.log_format)
    _log.info("memlite %s (%s)", __version__, describe_build())
    manager = ServiceManager(os.environ)
    report_ignored(settings, os.environ)
    process.raise_file_limit(config.conn_limit + (HTTP_CONNECTIONS if config.http else 0))
    if config.enable_coredumps:
        process.allow_coredumps()
    tls = None
    if config.enable_ssl:
        from memlite.server.connections.tls import Tls  # slow to import

        # Before listening: if this fails, no client must have connected.
        tls = Tls(config.extended)
    assemble([], tls)  # checks all settings before an address in use is reported
    listeners = listen(config)
    try:
        warn_of_exposure(listeners, tls, config)
        # Before the user and the working directory change: the new user may lack permission to read
        # Python's files, and paths may be relative.
        shared = None
        if supervised:
            from memlite.server.workers.board import Board, Control
            from memlite.server.workers.shared import share
            from memlite.server.workers.supervisor import Supervisor, make_mapping
            from memlite.server.workers.worker import WorkerServer

            clock = Clock()
            shared = share(config, lambda: make_mapping(config, workers, clock.now()))
            board = Board(workers)
            _import_common()
        server = assemble(listeners, tls)
        loop_factory = _loop_factory(config.loop)
        tune_allocator()
        if config.user:
            _import_all()
        process.drop_privileges(config.user, [one.file for one in listeners if one.file])
        leave_terminal = (
            process.daemonize(keep_streams=config.verbose > 0) if config.daemon else None
        )
        if config.lock_memory:
            process.lock_memory()

        def accepting() -> str:
            # Not earlier: programs that wait for this file expect to be served.
            write_ports(listeners)
            if leave_terminal is not None:
                leave_terminal()
            where = ", ".join(listener.label for listener in listeners)
            if not config.daemon:
                announce(f"serving {what} on {where}")
            return f"Serving {what} on {where}"

        def ready() -> None:
            manager.ready(server.scheduler.loop, accepting())
            signals.unblock()

        async def run(
            server: Serving, ready: Callable[[], None], stopping: Callable[[], None]
        ) -> None:
            tune_collector(leaves_rings=loop_factory is None)
            try:
                await server.run(ready, stopping)
            finally:
                signals.block()  # until the process ends: nothing remains to be stopped

        def work(number: int, channel: socket.socket, ready: Callable[[], None]) -> None:
            assert shared is not None  # noqa: S101 - `work` runs only under the supervisor
            if config.lock_memory:
                process.lock_memory()  # memory locks are not inherited
            if shared.mapping is not None:
                shared.mapping.table.attach(number)
            worker = WorkerServer(
                config, listeners, shared, board, number, channel, tls=tls, clock=clock.copy()
            )
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(run(worker, ready, lambda: None))

        with process.pid_file(config.pidfile):
            if shared is not None:
                accepted = [one for one in listeners if not one.udp and not one.http]
                Supervisor(work, accepted, board, config.conn_limit, manager).run(
                    lambda: manager.tell_ready(accepting())
                )
                if shared.mapping is not None and config.memory_file is not None:
                    shared.mapping.close(clock.now() + board.control(Control.SHIFT))
            else:
                with asyncio.Runner(loop_factory=loop_factory) as runner:
                    runner.run(run(server, ready, manager.stopping))
    finally:
        for listener in listeners:
            listener.close()
        logs.report_repeated(everything=True)
    return 0


def _server(config: Config, listeners: Sequence[Listener], tls: "Tls | None") -> Serving:
    if config.join or config.name or config.advertise or config.spare:
        from memlite.cluster.membership.node import NodeServer  # only needed in a cluster

        return NodeServer(config, listeners, tls)
    return Server(config, listeners, tls=tls)


def _import_common() -> None:
    from memlite.server import on_demand

    on_demand.import_all(on_demand.COMMON)  # once for all workers


def _import_all() -> None:
    from memlite.server import on_demand  # most servers import nothing ahead

    on_demand.import_all()


def _loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return a factory of the event loop that ``--loop`` names; None for asyncio's own.

    Raises:
        StartError: it is uvloop, which is not installed.
    """
    if choice == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if choice == "uvloop":
            raise StartError("--loop: uvloop is not installed") from None
        _log.info("uvloop is not installed; using asyncio's event loop")
        return None
    return uvloop.new_event_loop
