"""Assembly of the server: builds its parts from the settings and connects them."""

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from memlite.backends import Backend
from memlite.config import MEGABYTE, Config
from memlite.core.clock import Clock
from memlite.core.errors import ConfigError, StartError
from memlite.core.logs import report_repeated
from memlite.engine import MemoryEngine
from memlite.engine.prefixes import PrefixStats
from memlite.engine.sizes import SizeClasses
from memlite.memory import ItemTable
from memlite.memory.eviction import POLICIES
from memlite.protocol import Limits, TextParser
from memlite.server.administration import Administration
from memlite.server.connections.accepted import connector
from memlite.server.connections.connection import Connection, ConnectionServices
from memlite.server.connections.intake import Intake
from memlite.server.connections.large_values import LargeValues
from memlite.server.connections.listeners import Listener
from memlite.server.connections.native_receiver import connection_type
from memlite.server.connections.register import Register
from memlite.server.execution.command_set import Executor
from memlite.server.execution.dialects import BINARY, LITE, TEXT, Dialect
from memlite.server.execution.execution import (
    ExecutingClient,
    Execution,
    ImmediateExecution,
    StoreExecution,
)
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.execution.runner import Runner, make_runner, runs_of
from memlite.server.http_settings import not_installed, refuse_http_settings
from memlite.server.lifecycle import Lifecycle, Reloader, Service
from memlite.server.scheduler import Scheduler
from memlite.server.upkeep.footprint import PER_CONNECTION, PER_TLS_CONNECTION
from memlite.server.upkeep.upkeep import Upkeep
from memlite.telemetry.counters import Counters
from memlite.telemetry.hotkeys import HotKeys
from memlite.telemetry.operations import OperationTimes
from memlite.telemetry.sampling import Sampler

if TYPE_CHECKING:
    from memlite.backends.agreement import SharedEpoch
    from memlite.backends.registry import Context
    from memlite.engine.store import StoreEngine
    from memlite.server.admin.admin import Admin
    from memlite.server.auth.auth import Authenticator, Throttling
    from memlite.server.connections.tls import Tls
    from memlite.server.connections.udp import UdpService
    from memlite.server.http.assembly import Http
    from memlite.server.otlp.service import OtlpService
    from memlite.telemetry.slow import SlowLog
    from memlite.telemetry.snapshot import Snapshot
    from memlite.telemetry.spans import Span
    from memlite.telemetry.tracing import Tracer

__all__ = ["Server"]

_log = logging.getLogger("memlite")

# Write-back may use this fraction (one in so many) of the near cache for unstored items, or this
# many bytes if there is no near cache.
_WRITE_BACK_SHARE = 4
_WRITE_BACK_BYTES = 16 * MEGABYTE
# One read in so many is sampled. A sampled read costs as much as five others in memory. With a
# backend, that cost is negligible and reads are fewer, so sampling is more frequent.
_MEMORY_SAMPLE_INTERVAL = 256
_BACKEND_SAMPLE_INTERVAL = 64


class Server:
    """A memcached-speaking server.

    This is the only class that knows all parts; no part receives the whole server.

    Args:
        config: the settings.
        listeners: bound sockets for connections or datagrams; the server closes them.
        tls: the TLS settings; None without TLS.
        clock: the clock; tests pass one they can advance.
        backend: creates the backend; None for the backend in the settings.
        connection: creates the protocol for a connection; None for the usual one.
        owns_process: whether the process belongs to the server alone. Only then does the server
            handle signals and the event loop's failures, and check the process's memory against
            ``-m``.

    Attributes:
        auth: authenticates clients; None if they need not authenticate.
        backend: the store, None if items are kept in memory only.
        administration: creates the object that carries out administrative commands.
        certificates_read: unix time at which the TLS certificates were last loaded.
        clock: as above.
        config: as above.
        counters: the counters.
        engine: carries out commands.
        hotkeys: the most requested keys.
        http: serves HTTP; None without ``--http``.
        instrumentation: decides which reads are sampled, traced or watched.
        lifecycle: starts and stops the server.
        limits: the limits on what clients may send.
        listeners: the sockets that accept connections.
        operations: how long the store's operations took, if they are measured (``--http``).
        otlp: exports metrics; None without ``--otlp``.
        prefixes: the counts by key prefix, while enabled.
        register: the open connections.
        sampler: records latencies.
        scheduler: schedules work on the event loop.
        slow: the last slow commands; None without ``--slow-log``.
        table: the items in memory: all items or, with a backend, some of them.
        tls: as above.
        udp: the UDP services, one for each socket.
        upkeep: periodic and background maintenance.
    """

    # Overridden by a server that is one of several workers; see `memlite.server.workers`.
    _administration_type: ClassVar[type[Administration]] = Administration
    _lifecycle_type: ClassVar[type[Lifecycle]] = Lifecycle
    _processes = 1  # the number of processes that serve the same sockets
    _register_type: ClassVar[type[Register]] = Register
    _says_how: ClassVar[bool] = True
    _table_in_process: ClassVar[bool] = True
    _shared_epoch: "SharedEpoch | None" = None

    def __init__(
        self,
        config: Config,
        listeners: Sequence[Listener],
        *,
        tls: "Tls | None" = None,
        clock: Clock | None = None,
        backend: "Callable[[Context], Backend] | None" = None,
        connection: Callable[[ConnectionServices], Connection] | None = None,
        owns_process: bool = True,
    ) -> None:
        self.config = config
        self._owns_process = owns_process
        self.listeners = [one for one in listeners if not one.udp and not one.http]
        self.tls = tls
        self.clock = clock or Clock()
        self.certificates_read = self.clock.now()
        self.counters = Counters()
        self.scheduler = Scheduler()
        self.limits = Limits(
            item_size=config.max_item_size,
            commands_per_read=config.max_reqs_per_event,
            cas=not config.disable_cas,
        )
        self.auth = self._make_authenticator() if config.asks_for_password else None
        self.backend = self._make_backend(backend)
        self.table, self.engine = self._make_engine()
        self.engine.crawls &= config.extended.lru_crawler
        self.prefixes = PrefixStats((config.prefix_delimiter or ":").encode())
        if config.prefix_delimiter:
            self.engine.observe(self.prefixes, None)
        interval = _MEMORY_SAMPLE_INTERVAL if self.backend is None else _BACKEND_SAMPLE_INTERVAL
        self._traced_one_in = _traced_one_in(config)
        if self._traced_one_in:
            interval = min(interval, self._traced_one_in)
        self.hotkeys = HotKeys(self.clock, interval)
        self.operations = OperationTimes()
        self.sampler = Sampler(
            self.hotkeys.record, interval, record_changes=self.hotkeys.record_changes
        )
        self.slow = self._make_slow_log()
        self.instrumentation = self._make_instrumentation()
        self._record_operation = self.operations.record
        self._tracer: Tracer | None = None
        self.otlp = self._make_otlp()
        self.register = self._register_type(
            config.conn_limit, self.counters, self.clock, self.instrumentation, self.auth
        )
        self.upkeep = self._make_upkeep()
        self.execution = self._make_execution()
        self._intake = Intake()
        self._large_values = LargeValues(
            self.counters,
            self.clock,
            self.upkeep.sweeper.when_there_is_room,
            self._intake.buffer,
        )
        self._connections = self._make_connection_services()
        self._make_connection = connection or connection_type(
            self._connections.runner, self._connection_kind()
        )
        if listeners and self._says_how and self._connections.runner is not None:
            _log.info("running most commands in C")
        self.udp = self._make_udp([one for one in listeners if one.udp])
        if config.http is None:
            refuse_http_settings(config)
        http = [one for one in listeners if one.http]
        self.http = self._make_http(http) if config.http is not None else None
        self.lifecycle = self._make_lifecycle()
        self.administration = self._make_administration()
        self.run = self.lifecycle.run
        self.request_stop = self.lifecycle.request_stop

    @property
    def admin(self) -> "Admin":
        """Carries out administrative commands."""
        return self.administration.admin

    def connect(self) -> Connection:
        """Return the protocol for a new connection."""
        return self._make_connection(self._connections)

    # Assembly

    def _make_authenticator(self) -> "Authenticator":
        from memlite.server.auth.auth import Authenticator
        from memlite.server.auth.users import users_of

        users = users_of(self.config, os.environ)
        timeout = self.config.auth_timeout
        return Authenticator(users, self.counters, timeout, self._make_throttle())

    def _make_throttle(self) -> "Throttling | None":
        """Create the throttle for login attempts; None for one that is local to the process."""
        return None

    def _make_backend(self, make: "Callable[[Context], Backend] | None") -> Backend | None:
        """Create the backend in the settings; None if items are kept in memory only."""
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
            on_evict=lambda counts: self.engine.count_evictions(counts),
            epoch=self._shared_epoch,
        )
        url = parse_url(config.backend)
        backend = make(context) if make else make_backend(url, context)
        if not (make or size or config.write_back) and url.scheme == "memory":
            return None
        unstored = (size // _WRITE_BACK_SHARE or _WRITE_BACK_BYTES) if config.write_back else 0
        if size:
            backend = self._make_near_cache(backend, size - unstored)
        if unstored:
            from memlite.backends.writeback import WriteBack

            backend = WriteBack(backend, limit=unstored, clock=self.clock)
        return backend

    def _make_near_cache(self, backend: Backend, size: int) -> Backend:
        from memlite.backends.nearcache import NearCache

        return NearCache(backend, size, ttl=self.config.near_cache_ttl, clock=self.clock)

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

    def _make_slow_log(self) -> "SlowLog | None":
        if not self.config.slow_nanoseconds:
            return None
        from memlite.telemetry.slow import SlowLog

        return SlowLog(self.config.slow_nanoseconds, self.clock)

    def _make_instrumentation(self) -> Instrumentation:
        slow = None
        if self.slow is not None:
            from memlite.server.execution.slow_commands import SlowCommands

            slow = partial(SlowCommands, self.slow)
        return Instrumentation(
            self.counters,
            self.sampler,
            self.config.verbose,
            slow=slow,
            fast_path_waits=not (isinstance(self.engine, MemoryEngine) or self.engine.peeks),
        )

    def _make_upkeep(self) -> Upkeep:
        duties: list[Callable[[int], None]] = [lambda _second: report_repeated()]
        if self.auth is not None:
            duties.append(self.auth.close_overdue)
        timeout = self.config.extended.idle_timeout
        if timeout:
            duties.append(lambda second: self.register.close_idle(second - timeout))
        return Upkeep(
            self.engine,
            self.table,
            self.clock,
            self.scheduler,
            elsewhere=self._memory_elsewhere,
            before_pass=self.hotkeys.compact,
            on_pause=self.register.excuse_pause,
            duties=duties,
            owns_process=self._owns_process and self._table_in_process,
        )

    def _memory_elsewhere(self) -> int:
        """Return the number of bytes used by connections and by their input so far."""
        each = PER_CONNECTION if self.tls is None else PER_TLS_CONNECTION
        arriving = self._large_values.promised + self._intake.held
        return each * len(self.register.connections) + arriving

    def _make_execution(self) -> Execution:
        execution = self._make_untraced_execution()
        if self._tracer is None:
            return execution
        from memlite.server.execution.traced import TracedExecution

        return TracedExecution(execution, self._tracer)

    def _make_untraced_execution(self) -> Execution:
        if isinstance(self.engine, MemoryEngine):
            return ImmediateExecution(self.engine, self.table, lambda: self.administration.admin)
        return StoreExecution(
            self.engine, lambda: self.administration.admin, self.scheduler, self.instrumentation
        )

    def _dialect(self) -> Dialect:
        if self.config.dialect == "lite":
            return LITE
        return BINARY if self.config.protocol == "binary" else TEXT

    def _make_connection_services(self) -> ConnectionServices:
        dialect = self._dialect()
        shares_parser = dialect is TEXT and not self.execution.waits
        runner = self._make_runner()
        return ConnectionServices(
            counters=self.counters,
            clock=self.clock,
            limits=self.limits,
            dialect=dialect,
            negotiates=self.config.protocol == "auto" and dialect is TEXT,
            execution=self.execution,
            instrumentation=self.instrumentation,
            register=self.register,
            scheduler=self.scheduler,
            large_values=self._large_values,
            intake=self._intake,
            auth=self.auth,
            shared_parser=TextParser(self.limits) if shares_parser else None,
            shared_executor=None if runner is None else self._make_idle_executor(dialect),
            runner=runner,
            runs=runs_of(runner),
        )

    def _make_idle_executor(self, dialect: Dialect) -> Executor:
        """Return the executor that connections share until they need their own."""
        return self.execution.executor(dialect, cast("ExecutingClient", None), [])

    def _connection_kind(self) -> type[Connection]:
        """Return the class of connections, regardless of how their input is handled."""
        return Connection

    def _make_runner(self) -> Runner | None:
        if not isinstance(self.engine, MemoryEngine):
            return None
        return make_runner(self.engine, self.limits.commands_per_read)

    def _make_udp(self, listeners: Sequence[Listener]) -> "list[UdpService]":
        if not listeners:
            return []
        from memlite.server.connections.udp import UdpService, UdpServices

        services = UdpServices(
            counters=self.counters,
            clock=self.clock,
            limits=self.limits,
            protocol=self.config.protocol,
            execution=self.execution,
            instrumentation=self.instrumentation,
            scheduler=self.scheduler,
            may_administer=self._may_administer,
            processes=self._processes,
        )
        return [UdpService(services, listener) for listener in listeners]

    def _may_administer(self) -> bool:
        """Return whether an administrative command from a datagram may be carried out now."""
        return True

    def _make_administration(self) -> Administration:
        return self._administration_type(
            config=self.config,
            clock=self.clock,
            counters=self.counters,
            table=self.table,
            engine=self.engine,
            backend=self.backend,
            prefixes=self.prefixes,
            hotkeys=self.hotkeys,
            operations=self.operations,
            slow=self.slow,
            instrumentation=self.instrumentation,
            register=self.register,
            scheduler=self.scheduler,
            upkeep=self.upkeep,
            input_held=lambda: self._intake.held,
            listeners=self.listeners,
            udp=self.udp,
            certificates_read=None if self.tls is None else lambda: self.certificates_read,
            request_stop=self.lifecycle.request_stop,
            refresh_certificates=self._refresh_certificates,
        )

    def _make_lifecycle(self) -> Lifecycle:
        readers: list[tuple[str, Callable[[], None]]] = []
        if self.auth is not None:
            readers.append(("users", self.auth.reload))
        if self.tls is not None:
            readers.append(("certificates", self._refresh_certificates))
        if self.http is not None and self.http.token is not None:
            readers.append(("HTTP token", self.http.token.load))
        return self._lifecycle_type(
            listeners=self.listeners,
            udp=self.udp,
            connect=connector(
                self.tls,
                self.connect,
                register=self.register,
                counters=self.counters,
                scheduler=self.scheduler,
                clock=self.clock,
            ),
            register=self.register,
            scheduler=self.scheduler,
            backend=self.backend,
            reload=Reloader(readers).reload,
            services=self._services(),
            backlog=self.config.listen_backlog,
            opening=(lambda: None) if self.http is None else self.http.service.listen,
            unfinished=self._unfinished,
            owns_process=self._owns_process,
        )

    def _unfinished(self) -> bool:
        return self.http is not None and self.http.service.unfinished()

    def _services(self) -> list[Service]:
        services: list[Service] = [self.upkeep]
        if self.config.stats_interval:
            from memlite.server.admin.periodic_report import PeriodicReport

            services.append(
                PeriodicReport(
                    lambda: self.administration.stats.general(), self.config.stats_interval
                )
            )
        if self.otlp is not None:
            services.append(self.otlp)
        if self.http is not None:
            services.append(self.http.service)
        return services

    def _make_http(self, listeners: Sequence[Listener]) -> "Http | None":
        try:
            from memlite.server.http.assembly import assemble
        except ImportError as error:
            raise not_installed(error) from None
        self._measure_store()
        return assemble(
            self.config,
            listeners,
            tls=self.tls,
            backend=self.backend,
            collector=lambda: self.administration.stats,
            draining=lambda: self.lifecycle.draining,
        )

    def _make_otlp(self) -> "OtlpService | None":
        config = self.config
        if config.otlp is None:
            return None
        try:
            from memlite.server.otlp.assembly import assemble
            from memlite.telemetry.metrics.definitions import METRICS
        except ImportError as error:
            raise StartError(
                f"--otlp: {error.name} is not installed: pip install 'memlite-cache[otel]'"
            ) from None
        address = next((str(one.port or one.file) for one in self.listeners), "")
        service, worker = assemble(config.otlp, address, METRICS, self._source_of_exports())
        if self._traced_one_in:
            self._trace_requests(worker.put_span)
        self._measure_store()
        return service

    def _trace_requests(self, take: "Callable[[Span], None]") -> None:
        from memlite.server.execution.traced import traced
        from memlite.telemetry.tracing import Tracer

        share = self.sampler.interval / self._traced_one_in
        store = self.config.backend.partition("?")[0]
        tracer = Tracer(take, share, store, lambda: self.sampler.exemplars)
        self._tracer = tracer
        self.instrumentation.wrap = partial(traced, tracer)

        def record(operation: str, outcome: str, nanoseconds: int) -> None:
            self.operations.record(operation, outcome, nanoseconds)
            tracer.operation(operation, outcome, nanoseconds)

        self._record_operation = record

    def _source_of_exports(self) -> "Callable[[], Snapshot] | None":
        return self._exported

    def _exported(self) -> "Snapshot":
        """Return the server's figures."""
        if self.http is not None:
            return self.http.service.snapshot()
        from memlite.server.readiness import Condition  # most servers export nothing

        stats = self.administration.stats
        condition = Condition(stats.storage, lambda: self.lifecycle.draining)
        return stats.snapshot(condition.troubles())

    def _measure_store(self) -> None:
        if self.backend is not None:
            self.backend.measure(self._record_operation)

    def _refresh_certificates(self) -> None:
        """Reload the TLS certificates; they apply to new connections.

        Raises:
            ConfigError: they cannot be used, and the old ones stay in use; or TLS is not enabled.
        """
        if self.tls is None:
            raise ConfigError("Error TLS not enabled")
        self.tls.reload()
        self.certificates_read = self.clock.now()


def _traced_one_in(config: Config) -> int:
    """Return N to trace one request in N; 0 for none."""
    if config.otlp is None:
        if config.trace_sample is not None:
            raise ConfigError("--trace-sample: requires --otlp")
        return 0
    from memlite.server.otlp.sampling import traced_one_in

    return traced_one_in(config.trace_sample, os.environ)
