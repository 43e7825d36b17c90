"""Assembly of the administrative commands, done when a client first sends one."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from memlite.backends import Backend
from memlite.config import Config
from memlite.core.clock import Clock
from memlite.engine.prefixes import PrefixStats
from memlite.memory import ItemTable
from memlite.server.connections.listeners import Listener
from memlite.server.connections.register import Register
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.scheduler import Scheduler
from memlite.server.upkeep.upkeep import Upkeep
from memlite.telemetry.counters import Counters
from memlite.telemetry.hotkeys import HotKeys
from memlite.telemetry.operations import OperationTimes

if TYPE_CHECKING:
    # Imported lazily: importing all of these would take longer than the rest of the startup.
    from memlite.engine import MemoryEngine
    from memlite.engine.store import StoreEngine
    from memlite.server.admin.admin import Admin
    from memlite.server.admin.dumps import Dumps
    from memlite.server.admin.stats_collector import StatsCollector
    from memlite.server.admin.watchers import Watchers
    from memlite.server.connections.udp import UdpService
    from memlite.telemetry.slow import SlowLog
    from memlite.telemetry.snapshot import BackendStats, MemoryStats

__all__ = ["Administration"]


class Administration:
    """Creates the objects that carry out administrative commands, each on first use.

    Args:
        config: the settings.
        clock: the clock.
        counters: the counters.
        table: the items in memory.
        engine: carries out commands.
        backend: the store, None if items are kept in memory only.
        prefixes: the counts by key prefix.
        hotkeys: the keys most often asked for.
        operations: how long the store's operations took.
        slow: the slow log; None without one.
        instrumentation: decides which reads are sampled, traced or watched.
        register: the open connections.
        scheduler: runs dumps.
        upkeep: flushes, and frees items in the background.
        input_held: returns the number of bytes read whose commands are yet to be carried out.
        listeners: the sockets that accept connections.
        udp: the UDP services.
        certificates_read: returns the unix time at which the TLS certificates were last loaded;
            None without TLS.
        request_stop: stops the server.
        refresh_certificates: reloads the certificates.
    """

    def __init__(
        self,
        *,
        config: Config,
        clock: Clock,
        counters: Counters,
        table: ItemTable,
        engine: "MemoryEngine | StoreEngine",
        backend: Backend | None,
        prefixes: PrefixStats,
        hotkeys: HotKeys,
        operations: OperationTimes,
        slow: "SlowLog | None",
        instrumentation: Instrumentation,
        register: Register,
        scheduler: Scheduler,
        upkeep: Upkeep,
        input_held: Callable[[], int],
        listeners: Sequence[Listener],
        udp: "Sequence[UdpService]",
        certificates_read: Callable[[], float] | None,
        request_stop: Callable[..., None],
        refresh_certificates: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._counters = counters
        self._table = table
        self._engine = engine
        self._backend = backend
        self._prefixes = prefixes
        self._hotkeys = hotkeys
        self._operations = operations
        self._slow = slow
        self._instrumentation = instrumentation
        self._register = register
        self._scheduler = scheduler
        self._upkeep = upkeep
        self._input_held = input_held
        self._listeners = listeners
        self._udp = udp
        self._certificates_read = certificates_read
        self._request_stop = request_stop
        self._refresh_certificates = refresh_certificates

    @cached_property
    def admin(self) -> "Admin":
        """Carries out administrative commands."""
        from memlite.server.admin.admin import Admin
        from memlite.server.admin.control_commands import ControlCommands
        from memlite.server.admin.item_scans import ItemScans
        from memlite.server.admin.stats_commands import StatsCommands
        from memlite.server.admin.stream_commands import StreamCommands

        config, may_dump = self._config, not self._config.disable_dumping
        return Admin(
            control=ControlCommands(
                config=config,
                counters=self._counters,
                table=self._table,
                wake_sweeper=self._upkeep.sweeper.wake,
                flush=self._upkeep.flush_timer.flush,
                set_verbosity=self.set_verbosity,
                request_stop=self._request_stop,
                refresh_certificates=self.refresh_certificates,
                advance_clock=self.advance_clock,
            ),
            stats=StatsCommands(
                collector=self.stats,
                scans=ItemScans(
                    table=self._table,
                    sizes=self._engine.sizes,
                    clock=self._clock,
                    track_sizes=config.extended.track_sizes,
                ),
                table=self._table,
                engine=self._engine,
                prefixes=self._prefixes,
                may_dump=may_dump,
                on_detail=self.on_detail,
            ),
            streams=StreamCommands(
                dumps=self.dumps,
                watchers=self.watchers,
                engine=self._engine,
                wake_sweeper=self._upkeep.sweeper.wake,
                may_dump=may_dump,
                may_watch=not config.disable_watch,
                on_enable=self.on_enable,
            ),
            authenticates=config.enable_sasl,
        )

    # Actions of commands that affect all workers, if there are several

    def set_verbosity(self, level: int) -> None:
        """Set the log level."""
        self._instrumentation.set_verbosity(level)

    def advance_clock(self, seconds: int) -> None:
        """Move the clock, for tests."""
        self._upkeep.advance_clock(seconds)

    def refresh_certificates(self) -> None:
        """Reload the TLS certificates.

        Raises:
            ConfigError: they cannot be used.
        """
        self._refresh_certificates()

    def on_enable(self, enabled: bool) -> None:
        """Called when the crawler is turned on or off."""

    def announce_dump(self, running: bool) -> bool:
        """Called when a dump begins or has ended; return False if it may not begin."""
        return True

    def on_detail(self, counted: bool) -> None:
        """Called when counting by prefix is turned on or off."""

    def _collector_type(self) -> "type[StatsCollector]":
        from memlite.server.admin.stats_collector import StatsCollector

        return StatsCollector

    def _watchers_type(self) -> "type[Watchers]":
        from memlite.server.admin.watchers import Watchers

        return Watchers

    def _acting(self) -> int:
        """Return the number of the connection whose command is being carried out."""
        return self._instrumentation.client

    @cached_property
    def stats(self) -> "StatsCollector":
        """Collects statistics."""
        instrumentation = self._instrumentation
        return self._collector_type()(
            config=self._config,
            clock=self._clock,
            counters=self._counters,
            table=self._table,
            engine=self._engine,
            prefixes=self._prefixes,
            latencies=instrumentation.sampler,
            operations=self._operations,
            hot_keys=self._hotkeys,
            slow=self._slow,
            dumps=self.dumps,
            watchers=self.watchers,
            listeners=self._listeners,
            connections=self._register.connections,
            handshakes=self._register.handshakes,
            udp=self._udp,
            storage=self._storage_stats,
            event_loop=lambda: self._scheduler.loop,
            verbosity=lambda: instrumentation.verbosity,
            input_held=self._input_held,
            certificates_read=self._certificates_read,
        )

    def _storage_stats(self) -> "MemoryStats | BackendStats":
        from memlite.server.admin.stats_collector import backend_stats, memory_stats

        if self._backend is not None:
            return backend_stats(self._config.backend, self._backend, self._counters)
        return memory_stats(self._config.backend, self._table, self._upkeep.withheld)

    @cached_property
    def dumps(self) -> "Dumps":
        """Carries out dumps of all keys."""
        from memlite.server.admin.dumps import Dumps, scan_backend, scan_table

        backend, table = self._backend, self._table
        return Dumps(
            items=(lambda: scan_table(table)) if backend is None else lambda: scan_backend(backend),
            sizes=self._engine.sizes,
            clock=self._clock,
            counters=self._counters,
            spawn=self._scheduler.spawn,
            enabled=self._config.extended.lru_crawler,
            announce=self.announce_dump,
        )

    @cached_property
    def watchers(self) -> "Watchers":
        """Sends events to watchers."""
        return self._watchers_type()(
            engine=self._engine,
            clock=self._clock,
            connections=self._register.connections,
            watch_commands=self._instrumentation.watch_commands,
            watch_connections=self._watch_connections,
            watch_slow=None if self._slow is None else self._watch_slow,
            acting=self._acting,
            buffer_bytes=self._config.extended.watcher_logbuf_size,
        )

    def _watch_slow(self, watched: bool) -> None:
        if self._slow is not None:
            self._slow.watcher = self.watchers.slow if watched else None

    def _watch_connections(self, watched: bool) -> None:
        self._register.watcher = self.watchers if watched else None
