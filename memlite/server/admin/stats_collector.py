"""Collects the server's statistics as typed snapshots, and resets them."""

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from memlite.backends import Backend
from memlite.config import Config
from memlite.core.build import running_build
from memlite.core.clock import Clock
from memlite.engine.prefixes import PrefixStats
from memlite.engine.sizes import SizeClasses
from memlite.memory import ItemTable
from memlite.server.admin.dumps import Dumps
from memlite.server.admin.watchers import Watchers
from memlite.server.interfaces import ConnectionInfo
from memlite.telemetry.counters import Counters, LatencyHistogram
from memlite.telemetry.hotkeys import HotKeys
from memlite.telemetry.operations import OperationTimes
from memlite.telemetry.snapshot import (
    BackendStats,
    CounterValues,
    Durations,
    EvictedStats,
    Exemplar,
    GeneralStats,
    HotKeysStats,
    LatencyStats,
    LatencySummary,
    MemoryStats,
    SettingsStats,
    Snapshot,
    SocketStats,
    TlsStats,
    UdpStats,
    WatchStats,
    WorkerStats,
)

if TYPE_CHECKING:
    from memlite.telemetry.slow import SlowLog, SlowStats  # for servers with --slow-log

__all__ = ["CrawlingEngine", "StatsCollector", "backend_stats", "loop_name", "memory_stats"]


class CrawlingEngine(Protocol):
    """The part of an engine that statistics use; see `memlite.engine.Engine`."""

    @property
    def crawling(self) -> bool:
        """Whether it is searching for expired items."""

    @property
    def flush_pending(self) -> float:
        """The unix time of a delayed flush_all in seconds, 0 when none is due."""

    @property
    def prefixes(self) -> PrefixStats | None:
        """The counts per key prefix, None while they are off."""

    @property
    def sizes(self) -> SizeClasses:
        """The size classes in which evicted and reclaimed items are counted."""


class LatencySource(Protocol):
    """Measures how long commands take.

    Attributes:
        interval: one in this many reads is measured, on average.
        histograms: durations in nanoseconds, by class of commands.
        exemplars: sample durations, by class of commands and of durations; see `Durations`.
    """

    interval: int
    histograms: dict[str, LatencyHistogram]
    exemplars: dict[str, dict[int, Exemplar]]

    def reset(self) -> None:
        """Discard all measurements."""


class ListeningSocket(Protocol):
    """A socket that listens or receives datagrams.

    Attributes:
        sock: the socket.
        label: its address, such as ``tcp:127.0.0.1:11211``.
    """

    sock: socket.socket
    label: str

    @property
    def port(self) -> int:
        """The TCP or UDP port, 0 for a UNIX socket."""


class DatagramService(Protocol):
    """Serves the datagrams of one socket.

    Attributes:
        last_command: unix time of the last datagram, in whole seconds.
    """

    last_command: int

    @property
    def number(self) -> int:
        """The socket's file descriptor, -1 once it is closed."""

    @property
    def listener(self) -> ListeningSocket:
        """The socket."""

    @property
    def under_way(self) -> int:
        """The number of requests not yet answered."""


class StatsCollector:
    """Collects statistics from the parts of the server that count and measure.

    The collections passed are the server's own, and are read on each call.

    Args:
        config: the settings.
        clock: tells the time.
        counters: the counters.
        table: the items in memory.
        engine: carries out commands.
        prefixes: the counts per key prefix, even while they are off.
        latencies: the latency histograms.
        operations: how long the store's operations took.
        hot_keys: the keys most often asked for.
        slow: the slow log; None without one.
        dumps: the crawler's state.
        watchers: the event log.
        listeners: the sockets that accept connections.
        connections: the open connections.
        handshakes: connections whose TLS handshake is not finished.
        udp: the UDP services.
        storage: returns the store's statistics; `memory_stats` or `backend_stats`.
        event_loop: returns the loop the server runs on.
        verbosity: returns the log level, 0 to 3.
        input_held: returns the number of bytes read whose commands are yet to be carried out.
        certificates_read: returns the unix time at which certificates were last read, in seconds;
            None without TLS.
    """

    def __init__(
        self,
        *,
        config: Config,
        clock: Clock,
        counters: Counters,
        table: ItemTable,
        engine: CrawlingEngine,
        prefixes: PrefixStats,
        latencies: LatencySource,
        operations: OperationTimes,
        hot_keys: HotKeys,
        slow: "SlowLog | None",
        dumps: Dumps,
        watchers: Watchers,
        listeners: Sequence[ListeningSocket],
        connections: Collection[ConnectionInfo],
        handshakes: Collection[ConnectionInfo],
        udp: Sequence[DatagramService],
        storage: Callable[[], MemoryStats | BackendStats],
        event_loop: Callable[[], object],
        verbosity: Callable[[], int],
        input_held: Callable[[], int],
        certificates_read: Callable[[], float] | None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._counters = counters
        self._table = table
        self._engine = engine
        self._prefixes = prefixes
        self._latencies = latencies
        self._operations = operations
        self._hot_keys = hot_keys
        self._slow = slow
        self._dumps = dumps
        self._watchers = watchers
        self._listeners = listeners
        self._connections = connections
        self._handshakes = handshakes
        self._udp = udp
        self._storage = storage
        self._event_loop = event_loop
        self._verbosity = verbosity
        self._input_held = input_held
        self._certificates_read = certificates_read
        extended = config.extended
        self._idle_timeout = extended.idle_timeout
        self._lru_maintainer = "no_lru_maintainer" not in extended.given
        self._session_cache = "ssl_session_cache" in extended.given

    def general(self) -> GeneralStats:
        """Return the general statistics. Call this on the event loop."""
        clock, dumps, table = self._clock, self._dumps, self._table
        now = clock.now()
        processor = os.times()
        return GeneralStats(
            time=now,
            uptime=now - clock.started,
            pid=os.getpid(),
            event_loop=loop_name(type(self._event_loop())),
            user_seconds=processor.user,
            system_seconds=processor.system,
            connections=len(self._connections),
            handshakes=len(self._handshakes),
            udp_sockets=len(self._udp),
            connection_limit=self._config.conn_limit,
            idle_timeout=self._idle_timeout,
            input_held=self._input_held(),
            counters=CounterValues.read(self._counters),
            items=len(table),
            bytes=table.used,
            bytes_limit=table.limit,
            crawler_enabled=dumps.enabled,
            crawler_running=dumps.running or self._engine.crawling,
            lru_maintainer=self._lru_maintainer,
            watch=self._watch(),
            tls=self._tls(now),
        )

    def _watch(self) -> WatchStats:
        watchers = self._watchers
        return WatchStats(
            watchers=len(watchers),
            written=watchers.written,
            sent=watchers.sent,
            skipped=watchers.skipped,
        )

    def _tls(self, now: float) -> TlsStats | None:
        if self._certificates_read is None:
            return None
        return TlsStats(
            certificate_age=now - self._certificates_read(), session_cache=self._session_cache
        )

    def settings(self) -> SettingsStats:
        """Return the settings the server runs with."""
        return SettingsStats(
            config=self._config,
            bytes_limit=self._table.limit,
            tcp_port=next((one.port for one in self._listeners if one.port), 0),
            udp_port=next((one.listener.port for one in self._udp), 0),
            verbosity=self._verbosity(),
            flush_at=self._engine.flush_pending,
            prefixes_counted=self._engine.prefixes is not None,
            crawler_enabled=self._dumps.enabled,
            build=running_build(),
        )

    def sockets(self, asking: ConnectionInfo | None) -> list[SocketStats]:
        """Return all sockets: listening sockets, UDP sockets and connections.

        Args:
            asking: the connection whose command is being carried out; None if it is not listed.
        """
        clock = self._clock
        now = int(clock.now())
        since_start = int(clock.now() - clock.started)
        found = [
            SocketStats(one.sock.fileno(), one.label, "listening", since_start)
            for one in self._listeners
        ]
        found += [
            SocketStats(one.number, one.listener.label, "datagrams", now - one.last_command)
            for one in self._udp
        ]
        connections = [*self._connections, *self._handshakes]
        found += [
            SocketStats(
                one.number,
                one.peer,
                "executing" if one is asking else one.state,
                now - one.last_command,
                one.listener,
            )
            for one in sorted(connections, key=lambda one: one.number)
        ]
        return found

    def latency(self) -> LatencyStats:
        """Return the sampled latencies."""
        return self._summarized(self._latencies.histograms)

    def _summarized(self, histograms: Mapping[str, LatencyHistogram]) -> LatencyStats:
        return LatencyStats(
            sample_interval=self._latencies.interval,
            classes={name: _summary(found) for name, found in histograms.items()},
        )

    def snapshot(self, troubles: Sequence[str] = ()) -> Snapshot:
        """Return all figures that need no scan of the items.

        Args:
            troubles: the reasons why the server should receive no requests now.
        """
        source = self._latencies
        return Snapshot(
            build=running_build(),
            general=self.general(),
            storage=self.storage(),
            udp=self.udp(),
            sample_interval=source.interval,
            commands={
                name: Durations.read(one, source.exemplars.get(name))
                for name, one in source.histograms.items()
            },
            operations={
                name: Durations.read(one) for name, one in self._operations.histograms.items()
            },
            evicted=tuple(
                EvictedStats(number, counts.evicted, counts.evicted_time)
                for number, counts in enumerate(self._engine.sizes.evictions)
                if counts.evicted
            ),
            troubles=tuple(troubles),
            slow_commands=None if self._slow is None else self._slow.count,
        )

    def prefixes(self) -> PrefixStats:
        """Return the counts by key prefix."""
        return self._prefixes

    def workers(self) -> tuple[int, list[WorkerStats]]:
        """Return the number of this process among the workers, and the statistics of each."""
        processor = os.times()
        return 0, [
            WorkerStats(
                pid=os.getpid(),
                connections=len(self._connections),
                accepted=self._counters.total_connections,
                operations=self._counters.operations,
                user_seconds=processor.user,
                system_seconds=processor.system,
            )
        ]

    def storage(self) -> MemoryStats | BackendStats:
        """Return the store's statistics."""
        return self._storage()

    def hot_keys(self) -> HotKeysStats:
        """Return the keys most often asked for."""
        return self._hot_keys.snapshot()

    def slow(self) -> "SlowStats | None":
        """Return the last slow commands, and their total number; None without a slow log."""
        return None if self._slow is None else self._slow.stats()

    def udp(self) -> UdpStats:
        """Return the statistics of requests over UDP."""
        return UdpStats(
            under_way=sum(service.under_way for service in self._udp),
            refused=self._counters.udp_refused,
            dropped=self._counters.udp_dropped,
        )

    def reset(self) -> None:
        """Reset all counts and measurements (``stats reset``)."""
        self._counters.reset()
        self._engine.sizes.reset()
        self._prefixes.clear()
        self._latencies.reset()
        self._operations.reset()
        self._hot_keys.clear()
        if self._slow is not None:
            self._slow.clear()
        self._watchers.reset()


def memory_stats(url: str, table: ItemTable, withheld: int) -> MemoryStats:
    """Return the statistics of a store that is in memory only.

    Args:
        url: the store's URL.
        table: holds the items.
        withheld: bytes of the memory limit that are withheld from items.
    """
    return MemoryStats(
        url=_without_options(url),
        items=len(table),
        bytes=table.used,
        overhead=table.overhead,
        withheld=withheld,
    )


def backend_stats(url: str, backend: Backend, counters: Counters) -> BackendStats:
    """Return the statistics of a store that is a backend.

    Args:
        url: the store's URL.
        backend: the store.
        counters: hold the number of its failures.
    """
    return BackendStats(
        url=_without_options(url), errors=counters.storage_errors, figures=backend.stats()
    )


def _without_options(url: str) -> str:
    # The options may hold secrets.
    return url.partition("?")[0]


_PERCENTS: Final = (50, 90, 99, 99.9)


def _summary(histogram: LatencyHistogram) -> LatencySummary:
    p50, p90, p99, p999 = histogram.percentiles(*_PERCENTS)
    return LatencySummary(
        samples=histogram.count,
        total=histogram.total,
        p50=p50,
        p90=p90,
        p99=p99,
        p999=p999,
        maximum=histogram.maximum,
    )


_loop_names: Final[dict[type, str]] = {}


def loop_name(kind: type) -> str:
    """Return the package of an event loop, with its version unless it is asyncio's."""
    name = _loop_names.get(kind)
    if name is None:
        name = "asyncio"
        if kind.__module__.partition(".")[0] == "uvloop":
            import uvloop

            name = f"uvloop-{uvloop.__version__}"  # type: ignore[attr-defined]
        _loop_names[kind] = name
    return name
