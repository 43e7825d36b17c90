"""The server: what connections share, from the first listening socket to the last reply."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memlite import logs
from memlite.backends import Backend, ItemTable
from memlite.backends.eviction import POLICIES
from memlite.clock import Clock
from memlite.config import MEGABYTE, Config
from memlite.engine import MemoryEngine
from memlite.engine.prefixes import PrefixStats
from memlite.engine.sizes import SizeClasses
from memlite.errors import ConfigError, MemliteError
from memlite.protocol import Handler, Limits
from memlite.server.collector import collect_young
from memlite.server.connection import Connection
from memlite.server.dialects import BINARY, LITE, TEXT
from memlite.server.footprint import Footprint, resident
from memlite.server.hotkeys import HotKeys
from memlite.server.instruments import LatencySampler, Tracer
from memlite.server.sockets import Listener
from memlite.server.sweeper import Sweeper
from memlite.stats import Counters

if TYPE_CHECKING:
    from memlite.backends.registry import Context
    from memlite.engine.store import StoreEngine
    from memlite.server.admin import Admin
    from memlite.server.auth import Authenticator
    from memlite.server.dumps import Dumps
    from memlite.server.encrypted import TlsTransport
    from memlite.server.tls import Tls
    from memlite.server.udp import UdpService
    from memlite.server.watchers import Watchers

__all__ = ["Server"]

_log = logging.getLogger("memlite")

_DRAIN_SECONDS = 1.0
_GRACEFUL_SECONDS = 10.0
# Delays above this are left to the tick: event loops have limits of their own.
_TIMER_SECONDS = 86_400.0
# The part of the near cache that may hold what is not stored yet, one in so many bytes; and how
# many without a near cache.
_HELD_SHARE = 4
_HELD_BYTES = 16 * MEGABYTE
# Connections accepted in one go; asyncio takes as many as its backlog says before it serves any,
# and those over -c live for a few rounds, for which process.raise_file_limit has files to spare.
_ACCEPT_AT_ONCE = 32
# What accept() fails with until somebody else lets go of something.
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_COMPLAIN_EVERY_SECONDS = 5.0
# One read in so many is measured, which costs as much as five others do. That is little beside what
# a backend takes, and there are fewer of those.
_SAMPLED_OF_MEMORY = 256
_SAMPLED_OF_BACKEND = 64


class Server:
    """A memcached-speaking server.

    Args:
        config: the settings.
        listeners: bound sockets to accept connections or take datagrams from; the server closes
            them.
        tls: of those that speak it.
        clock: tells the time; tests pass one that they move.
        backend: makes the backend, instead of what the settings ask for.

    Attributes:
        auth: lets clients in; None where all may come.
        connections: those that are open.
        footprint: watches what the process takes, of a server in memory, where that can be told.
        listeners: those of connections.
        udp: what serves datagrams, one for each socket.
        handshakes: those that are not agreed on yet, with TLS; the oldest first.
        certificates_read: unix time at which those of TLS were.
        dialect: the protocol a connection speaks.
        negotiates: whether its first byte may tell of another.
        backend: the store, None where memory alone serves.
        table: the items in memory, all of them or some.
        commands_watched: whether anybody watches commands.
        connections_watched: whether anybody watches connections.
        look_closer: the engine's method, once for all connections.
        instrumented: whether all reads are to come to `instrument`, as commands are traced or
            watched.
        promised: bytes of large values that memory was taken for and that are not yet there.
        tracing: whether all commands are traced.
        until_sample: reads off the straight path until one is to be measured.
        verbosity: as set by ``-v`` or the verbosity command.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        config: Config,
        listeners: Sequence[Listener],
        *,
        tls: "Tls | None" = None,
        clock: Clock | None = None,
        backend: "Callable[[Context], Backend] | None" = None,
    ) -> None:
        self.config = config
        self.listeners = [one for one in listeners if not one.udp]
        self.tls = tls
        self.clock = clock or Clock()
        self.certificates_read = self.clock.now()
        self.counters = Counters()
        self.limits = Limits(
            item_size=config.max_item_size,
            commands_per_read=config.max_reqs_per_event,
            cas=not config.disable_cas,
        )
        self.auth = self._make_authenticator() if config.asks_for_password else None
        self.backend = self._make_backend(backend)
        self.table, self.engine = self._make_engine()
        self.look_closer = self.engine.look_closer
        self.prefixes = PrefixStats((config.prefix_delimiter or ":").encode())
        if config.prefix_delimiter:
            self.engine.observe(self.prefixes, None)
        interval = _SAMPLED_OF_MEMORY if self.backend is None else _SAMPLED_OF_BACKEND
        self.hotkeys = HotKeys(self.clock, interval)
        self.sampler = LatencySampler(self.hotkeys.record, interval)
        self.until_sample = self.sampler.next_read()
        self.counters.sample_after(self.sampler.next_read())
        self.engine.crawls &= config.extended.lru_crawler
        self.sweeper = Sweeper(self)
        self.commands_watched = self.connections_watched = self.instrumented = False
        self.connections: set[Connection] = set()
        self.udp = self._make_udp([one for one in listeners if one.udp])
        self.handshakes: dict[TlsTransport, None] = {}
        self.dialect = BINARY if config.protocol == "binary" else TEXT
        if config.dialect == "lite":
            self.dialect = LITE
        self.negotiates = config.protocol == "auto" and self.dialect is TEXT
        self.verbosity = config.verbose
        self.footprint: Footprint | None = None
        self._tracer = Tracer()
        self.promised = 0
        self._work: set[asyncio.Task[None]] = set()
        self._stop: asyncio.Future[float] | None = None
        self._tick_handle: asyncio.TimerHandle | None = None
        self._flush_handle: asyncio.TimerHandle | None = None
        self._complain_from = 0.0
        self._reloaders: list[tuple[str, Callable[[], None]]] = []
        if self.auth is not None:
            self._reloaders.append(("users", self.auth.reload))
        if tls is not None:
            self._reloaders.append(("certificates", self.refresh_certificates))
        self._observe_verbosity()

    # What a server in memory does not need, or not before somebody asks for it, is imported where
    # it is made: all of it takes longer than the rest of the start.

    @cached_property
    def admin(self) -> "Admin":
        """Knows the commands that are not about keys."""
        from memlite.server.admin import Admin

        return Admin(self)

    @cached_property
    def dumps(self) -> "Dumps":
        """Carries out dumps of all keys, and knows whether there may be any."""
        from memlite.server.dumps import Dumps

        return Dumps(self)

    @cached_property
    def watchers(self) -> "Watchers":
        """Tells those who watch what happens."""
        from memlite.server.watchers import Watchers

        return Watchers(self)

    def _make_authenticator(self) -> "Authenticator":
        from memlite.server.auth import Authenticator
        from memlite.server.users import users_of

        users = users_of(self.config, os.environ)
        return Authenticator(users, self.counters, self.config.auth_timeout)

    def _make_udp(self, listeners: Sequence[Listener]) -> "list[UdpService]":
        if not listeners:
            return []
        from memlite.server.udp import UdpService

        return [UdpService(self, listener) for listener in listeners]

    def _make_backend(self, make: "Callable[[Context], Backend] | None") -> Backend | None:
        """Make what the settings ask for; None where memory alone serves."""
        config = self.config
        size = config.near_cache
        if config.backend == "memory://" and not (make or size or config.write_back):
            return None
        from memlite.backends.registry import Context, make_backend, parse_url

        context = Context(
            memory_limit=config.memory_limit * MEGABYTE,
            evict=not config.disable_evictions,
            item_size=config.max_item_size,
            durability=config.durability,
            eviction=config.eviction,
            clock=self.clock,
            on_evict=lambda key, item: self.engine.count_eviction(key, item),
        )
        url = parse_url(config.backend)
        backend = make(context) if make else make_backend(url, context)
        if not (make or size or config.write_back) and url.scheme == "memory":
            return None
        held = (size // _HELD_SHARE or _HELD_BYTES) if config.write_back else 0
        if size:
            from memlite.backends.nearcache import NearCache

            backend = NearCache(backend, size - held, ttl=config.near_cache_ttl, clock=self.clock)
        if held:
            from memlite.backends.writeback import WriteBack

            backend = WriteBack(backend, limit=held, clock=self.clock)
        return backend

    def _make_engine(self) -> "tuple[ItemTable, MemoryEngine | StoreEngine]":
        config = self.config
        item_size, cas = config.max_item_size, not config.disable_cas
        sizes = SizeClasses(
            factor=config.slab_growth_factor,
            chunk_size=config.slab_min_size,
            item_size_max=item_size,
            cas=cas,
        )
        if self.backend is not None:
            from memlite.engine.store import StoreEngine

            return self.backend.table or ItemTable(0), StoreEngine(
                self.backend, self.clock, self.counters, item_size=item_size, cas=cas, sizes=sizes
            )
        table = ItemTable(
            config.memory_limit * MEGABYTE,
            evict=not config.disable_evictions,
            policy=POLICIES[config.eviction],
        )
        return table, MemoryEngine(
            table, self.clock, self.counters, item_size=item_size, cas=cas, sizes=sizes
        )

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Let `work` go on by itself; the server waits for it before it ends."""
        task = self.loop.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    # Connections

    def admit(self, connection: Connection) -> bool:
        """Count a new connection in; False when it is one too many."""
        if not self.make_room():
            return False
        self.counters.total_connections += 1
        self.connections.add(connection)
        if self.auth is not None:
            self.auth.meet(connection, self.clock.second)
        if self.instrumented:
            connection.leave_straight_path()  # that may have begun since it was made
        if self.connections_watched:
            self.watchers.opened(connection)
        if self.tracing:
            _log.debug("<%d new client connection", connection.number)
        return True

    def make_room(self) -> bool:
        """See whether ``-c`` allows one more connection; if not, count it as rejected.

        Who opens connections and leaves it at that keeps nobody out: the oldest that has not
        finished its handshake gives way, or else the oldest that has not authenticated.
        """
        if len(self.connections) + len(self.handshakes) < self.config.conn_limit:
            return True
        if self.handshakes:
            next(iter(self.handshakes)).give_up("others need the room")
            return True
        stranger = self.auth.oldest_stranger() if self.auth is not None else None
        if stranger is not None:
            self.dismiss(stranger)
            stranger.abort()
            return True
        self.counters.rejected_connections += 1
        return False

    def dismiss(self, connection: Connection) -> None:
        """Count a connection out; nothing if it was not, or no longer, counted in."""
        if connection not in self.connections:
            return
        if self.connections_watched:
            self.watchers.closed(connection)
        self.connections.remove(connection)
        if self.auth is not None:
            self.auth.forget(connection)
        if self.tracing:
            _log.debug("<%d connection closed.", connection.number)

    def instrument(self, connection: Connection, straight: bool = False) -> Handler:
        """Return the handler for a read that is to be measured, or for any while `instrumented`.

        Args:
            connection: where it was read.
            straight: whether it would have been a hit on the straight path, and its turn has come;
                that of others has when `until_sample` says so.
        """
        if self.commands_watched:
            self.watchers.number = connection.number  # for the watchers to know whose it is
        if self.tracing:
            return self._tracer.before(connection.commands, connection.out, connection.number)
        handler: Handler = connection.commands
        sampled = True
        if straight:
            self.counters.sample_after(self.sampler.next_read())
        elif self.until_sample <= 0:
            self.until_sample = self.sampler.next_read()
        else:
            sampled = False
        if self.backend is not None:  # it is a Deferred, which measures until the reply is there
            connection.commands.timed = sampled
        elif sampled:
            handler = self.sampler.before(handler)
        return handler

    # What the admin commands change

    def set_verbosity(self, level: int) -> None:
        """Log more or less from now on (0 to 3)."""
        self.verbosity = level
        logging.getLogger("memlite").setLevel(logs.level_for(level))
        self._observe_verbosity()

    def _observe_verbosity(self) -> None:
        self.tracing = logging.getLogger("memlite.trace").isEnabledFor(logging.DEBUG)
        self._instrument_all()

    def watch_commands(self, watched: bool) -> None:
        """Tell watchers whose commands are carried out, from now on or no longer."""
        self.commands_watched = watched
        self._instrument_all()

    def _instrument_all(self) -> None:
        self.instrumented = self.tracing or self.commands_watched
        if self.instrumented:
            for connection in self.connections:
                connection.leave_straight_path()

    def advance_clock(self, seconds: int) -> None:
        """Move the clock, and do what is due then."""
        self.clock.advance(seconds)
        self.engine.tick()
        self.sweeper.wake()

    def refresh_certificates(self) -> None:
        """Read those of TLS again, for connections that are still to come.

        Raises:
            ConfigError: they cannot be used, those before stay in use; or there is no TLS.
        """
        if self.tls is None:
            raise ConfigError("Error TLS not enabled")
        self.tls.reload()
        self.certificates_read = self.clock.now()

    def reload(self) -> None:
        """Read again what may change while the server runs (SIGHUP)."""
        if not self._reloaders:
            _log.info("SIGHUP: nothing to read again")
        for name, reload in self._reloaders:
            try:
                reload()
            except MemliteError as error:
                _log.error("SIGHUP: %s are those from before: %s", name, error)
            else:
                _log.info("SIGHUP: %s read again", name)

    def reset_statistics(self) -> None:
        """Set the counters to zero (``stats reset``)."""
        self.counters.reset()
        self.engine.sizes.reset()
        self.prefixes.clear()
        self.sampler.reset()
        self.hotkeys.clear()
        self.watchers.reset()

    # Life

    def request_stop(self, *, graceful: bool = False) -> None:
        """Stop: replies go out, then connections are closed. A second request ends it at once.

        Args:
            graceful: also wait, for longer, for commands that have begun to arrive.
        """
        if self._stop is None:
            return
        if not self._stop.done():
            self._stop.set_result(_GRACEFUL_SECONDS if graceful else _DRAIN_SECONDS)
        else:
            for connection in list(self.connections):
                connection.abort()
            for service in self.udp:
                service.abort()

    async def run(
        self, ready: Callable[[], None] = lambda: None, stopping: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until asked to stop, by a signal or `request_stop`.

        Args:
            ready: called when connections are accepted and signals understood.
            stopping: called when it was asked to stop, before connections are closed.
        """
        self.loop = asyncio.get_running_loop()
        self._stop = self.loop.create_future()
        self._install_signals()
        self.loop.set_exception_handler(self._report_failure)
        if self.backend is None:
            await self._serve(self._stop, ready, stopping)
            return
        await self.backend.open()
        try:
            await self._serve(self._stop, ready, stopping)
        finally:
            if self._work:
                await asyncio.wait(self._work)
            await self.backend.close()

    async def _serve(
        self,
        stop: asyncio.Future[float],
        ready: Callable[[], None],
        stopping: Callable[[], None],
    ) -> None:
        servers = [await self._accept_from(listener) for listener in self.listeners]
        for listener in self.listeners:
            listener.sock.listen(self.config.listen_backlog)
        for service in self.udp:
            await service.open()
        self._watch_memory()
        self._tick()
        report = asyncio.ensure_future(self._report()) if self.config.stats_interval else None
        for listener in self.listeners:
            _log.info("server listening (%s)", listener.label)
        for service in self.udp:
            _log.info("server listening (%s)", service.listener.label)
        ready()
        try:
            patience = await stop
            stopping()
            for listener, server in zip(self.listeners, servers, strict=True):
                listener.remove_file()
                server.close()
                listener.close()
            for service in self.udp:
                service.stop()
            await self._drain(patience)
        finally:
            if report is not None:
                report.cancel()
            self.sweeper.stop()
            for handle in (self._tick_handle, self._flush_handle):
                if handle is not None:
                    handle.cancel()

    def _watch_memory(self) -> None:
        """Have the table, where it is all there is, make room for what it does not count."""
        tell = resident()
        if isinstance(self.engine, MemoryEngine) and tell is not None:
            self.footprint = Footprint(self, self.engine, tell)
            self.table.excess = self._measured

    async def _accept_from(self, listener: Listener) -> asyncio.AbstractServer:
        create = self.loop.create_server if listener.port else self.loop.create_unix_server
        connect = self._connect_tls(listener.tls) if listener.tls else self._connect
        return await create(connect, sock=listener.sock, backlog=_ACCEPT_AT_ONCE)

    def _connect_tls(self, mode: str) -> "Callable[[], TlsTransport]":
        from memlite.server.encrypted import TlsTransport

        tls = self.tls
        assert tls is not None  # noqa: S101 - who makes such listeners has it
        return lambda: TlsTransport(self, tls.context(mode), self._connect)

    def _connect(self) -> Connection:
        engine = self.engine
        if isinstance(engine, MemoryEngine):
            return Connection(self)
        from memlite.server.deferred_connection import DeferredConnection

        return DeferredConnection(self, engine)

    def _install_signals(self) -> None:
        actions = {
            "SIGINT": self.request_stop,
            "SIGTERM": self.request_stop,
            "SIGUSR1": lambda: self.request_stop(graceful=True),
            "SIGHUP": self.reload,
        }
        for name, action in actions.items():
            # Windows has no such signals for loops, and threads (tests) none at all.
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError, AttributeError):
                self.loop.add_signal_handler(getattr(signal, name), action)

    def _report_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what the event loop caught; failed accepts, of which asyncio makes many, rarely."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _NOTHING_LEFT):
            loop.default_exception_handler(context)
        elif loop.time() >= self._complain_from:
            self._complain_from = loop.time() + _COMPLAIN_EVERY_SECONDS
            _log.warning("cannot accept connections for now: %s", error.strerror)

    async def _drain(self, patience: float) -> None:
        """Let connections finish what they have begun, then close them."""
        deadline = self.loop.time() + patience
        for handshake in list(self.handshakes):
            handshake.give_up("the server stops")
        while self.connections or any(service.under_way for service in self.udp):
            for connection in list(self.connections):
                if not connection.busy:
                    connection.close()
            if self.loop.time() >= deadline:
                break
            await asyncio.sleep(0.005)
        for connection in list(self.connections):
            connection.abort()
        for service in self.udp:
            service.abort()
        await asyncio.sleep(0)

    def _measured(self) -> int:
        """Do what is due after some new items; return the bytes that items are not to take."""
        collect_young()
        if self.table.over:
            self.loop.call_soon(self.sweeper.wake)
        return self.footprint.excess() if self.footprint is not None else 0

    def _tick(self) -> None:
        """Once a second: the coarse clock, what is due, and idle connections."""
        before = self.clock.second
        self.clock.tick()
        paused = self.clock.second - before - 1
        if paused > 0:
            self._leave_out(paused)
        self.engine.tick()
        if self.footprint is not None:
            self.table.measure()  # of itself it does so only when there are new keys
        self.sweeper.wake()
        if self.auth is not None:
            self.auth.close_overdue(self.clock.second)
        timeout = self.config.extended.idle_timeout
        if timeout:
            self._kick_idle(self.clock.second - timeout)
        self._tick_handle = self.loop.call_later(1, self._tick)

    def _leave_out(self, seconds: int) -> None:
        """Count a pause of the server as nobody's: what was sent meanwhile may still be unread."""
        for connection in self.connections:
            connection.last_command += seconds
        if self.auth is not None:
            self.auth.leave_out(seconds)

    def _kick_idle(self, since: int) -> None:
        for connection in [one for one in self.connections if one.idle_since(since)]:
            self.counters.idle_kicks += connection.kick()

    def schedule_flush(self) -> None:
        """See to it that a delayed flush_all happens on time, not with the next tick."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        delay = self.engine.flush_pending - self.clock.now()
        if self.engine.flush_pending and delay < _TIMER_SECONDS:
            # A little late, for loops that round down would come too early to find it due.
            self._flush_handle = self.loop.call_later(delay + 0.005, self.engine.tick)

    async def _report(self) -> None:
        """Log a line of statistics every ``--stats-interval`` seconds."""
        interval = self.config.stats_interval
        counters = self.counters
        names = ("operations", "get_hits", "get_misses", "evictions")
        before = {name: getattr(counters, name) for name in names}
        while True:
            await asyncio.sleep(interval)
            after = {name: getattr(counters, name) for name in names}
            # "stats reset" sets them back in between.
            since = {name: max(0, after[name] - before[name]) for name in names}
            before = after
            values = {
                "operations_per_second": round(since["operations"] / interval, 1),
                "hits": since["get_hits"],
                "misses": since["get_misses"],
                "evictions": since["evictions"],
                "items": len(self.table),
                "bytes": self.table.used,
                "connections": len(self.connections),
            }
            text = " ".join(f"{name}={value}" for name, value in values.items())
            _reports.info("stats %s", text, extra={"fields": values})


# Asked for by a flag of its own, so it appears whatever the log level is.
_reports = logging.getLogger("memlite.stats")
_reports.setLevel(logging.INFO)
