"""Statistics as typed values: the server's state at one moment, independent of any output format.

Units are raw: seconds, bytes and counts. Renderers (`memlite.telemetry.memcached_stats`,
`memlite.telemetry.line`) turn them into words and rounded figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Self

from memlite.config import Config
from memlite.telemetry.counters import Counters, LatencyHistogram
from memlite.telemetry.spans import SpanName

__all__ = [
    "DURATION_LIMITS",
    "FSYNC",
    "BackendStats",
    "CounterValues",
    "Durations",
    "EvictedStats",
    "Exemplar",
    "GeneralStats",
    "HotKey",
    "HotKeysStats",
    "HttpStats",
    "ItemClassStats",
    "LatencyStats",
    "LatencySummary",
    "MemoryStats",
    "SettingsStats",
    "SlabClassStats",
    "SlabStats",
    "Snapshot",
    "SocketState",
    "SocketStats",
    "TlsStats",
    "UdpStats",
    "WatchStats",
    "WorkerStats",
]

SocketState = Literal[
    "listening", "reading", "reading_value", "executing", "writing", "streaming", "datagrams"
]
"""The activity of a socket. ``streaming``: it sends a dump or the events it watches."""


class CounterValues(NamedTuple):
    """The values of all `Counters`, under the same names.

    Every field is a count of events since the start or the last ``stats reset``, except
    `bytes_read` and `bytes_written`, which are in bytes. `cmd_get` and `operations` are sums of
    others, as `Counters` defines them.

    A tuple rather than a dataclass because it is created in a tenth of the time, and ``stats`` is
    requested often.
    """

    auth_cmds: int
    auth_errors: int
    bytes_read: int
    bytes_written: int
    cas_badval: int
    cas_hits: int
    cas_misses: int
    cmd_flush: int
    cmd_get: int
    cmd_meta: int
    cmd_set: int
    cmd_touch: int
    conn_yields: int
    crawler_items_checked: int
    crawler_reclaimed: int
    decr_hits: int
    decr_misses: int
    delete_hits: int
    delete_misses: int
    evicted_unfetched: int
    evictions: int
    expired_unfetched: int
    get_expired: int
    get_flushed: int
    get_hits: int
    get_misses: int
    idle_kicks: int
    incr_hits: int
    incr_misses: int
    lru_crawler_starts: int
    operations: int
    reclaimed: int
    rejected_connections: int
    ssl_handshake_errors: int
    ssl_new_sessions: int
    ssl_proto_errors: int
    storage_errors: int
    store_no_memory: int
    store_too_large: int
    total_connections: int
    total_items: int
    touch_hits: int
    touch_misses: int
    udp_dropped: int
    udp_refused: int

    @classmethod
    def read(cls, counters: Counters) -> Self:
        """Return the present values."""
        return cls._make(_counter_values(counters))


_counter_values: Final = attrgetter(*CounterValues._fields)


@dataclass(frozen=True, slots=True)
class WatchStats:
    """The event log of ``watch``.

    Attributes:
        watchers: connections that watch now.
        written: events logged, each counted once.
        sent: lines queued for watchers.
        skipped: lines dropped because a watcher had not read the ones before.
    """

    watchers: int
    written: int
    sent: int
    skipped: int


@dataclass(frozen=True, slots=True)
class TlsStats:
    """The TLS statistics of a server; failed handshakes are among the counters.

    Attributes:
        certificate_age: seconds since the certificates were last read.
        session_cache: whether new sessions are to be shown (``-o ssl_session_cache``).
    """

    certificate_age: float
    session_cache: bool


@dataclass(frozen=True, slots=True)
class GeneralStats:
    """The general statistics: ``stats`` without a group, and the periodic line.

    Attributes:
        time: unix time at which they were read, in seconds.
        uptime: seconds since the start.
        pid: the process id.
        event_loop: the event loop's package and, unless it is asyncio's, its version.
        user_seconds: processor time of the process in user mode, in seconds.
        system_seconds: the same in the kernel.
        connections: open connections.
        handshakes: connections with an unfinished TLS handshake, not included in `connections`.
        udp_sockets: sockets for datagrams.
        connection_limit: how many connections there may be (``-c``).
        idle_timeout: seconds after which an idle connection is closed; 0 for never.
        input_held: bytes read from connections whose commands are yet to be carried out.
        counters: all counters.
        items: items in memory.
        bytes: bytes those items are charged for.
        bytes_limit: bytes they may take (``-m``).
        crawler_enabled: whether the crawler accepts commands.
        crawler_running: whether expired items are being searched for, or a dump is running.
        lru_maintainer: False if the maintainer was turned off (``-o no_lru_maintainer``).
        watch: the event log.
        tls: None without TLS.
        threads: worker processes that serve.
    """

    time: float
    uptime: float
    pid: int
    event_loop: str
    user_seconds: float
    system_seconds: float
    connections: int
    handshakes: int
    udp_sockets: int
    connection_limit: int
    idle_timeout: int
    input_held: int
    counters: CounterValues
    items: int
    bytes: int
    bytes_limit: int
    crawler_enabled: bool
    crawler_running: bool
    lru_maintainer: bool
    watch: WatchStats
    tls: TlsStats | None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class SettingsStats:
    """The settings a server runs with, including those changed since the start.

    Attributes:
        config: the settings it was started with.
        bytes_limit: bytes items may take at present.
        tcp_port: the first TCP port, 0 without one.
        udp_port: the first UDP port, 0 without one.
        verbosity: the log level, 0 to 3.
        flush_at: unix time of a delayed flush_all in seconds, 0 when none is due.
        prefixes_counted: whether commands are counted by key prefix.
        crawler_enabled: whether the crawler accepts commands.
        build: as `memlite.core.build.running_build` returns it.
    """

    config: Config
    bytes_limit: int
    tcp_port: int
    udp_port: int
    verbosity: int
    flush_at: float
    prefixes_counted: bool
    crawler_enabled: bool
    build: str


class SocketStats(NamedTuple):
    """A listening socket, a connection or a UDP socket.

    Attributes:
        number: its file descriptor.
        address: the address it listens on, or the peer's.
        state: its activity.
        idle: whole seconds since the last command; of a listening socket, since the start.
        listen_address: the address a client connected to; None for all other sockets.
    """

    number: int
    address: str
    state: SocketState
    idle: int
    listen_address: str | None = None


class WorkerStats(NamedTuple):
    """A process that serves.

    Attributes:
        pid: its process id; 0 while it is being replaced.
        connections: its open connections.
        accepted: connections it was given.
        operations: operations on keys.
        user_seconds: processor time in user mode, in seconds.
        system_seconds: the same in the kernel.
    """

    pid: int
    connections: int
    accepted: int
    operations: int
    user_seconds: float
    system_seconds: float


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Sampled durations of one class of commands, from parsed to reply ready.

    All durations are in nanoseconds.

    Attributes:
        samples: how many were measured.
        total: their sum.
        p50: half of them took at most this long; likewise the other percentiles.
        p90: see `p50`.
        p99: see `p50`.
        p999: 99.9% of them took at most this long.
        maximum: the longest.
    """

    samples: int
    total: int
    p50: int
    p90: int
    p99: int
    p999: int
    maximum: int


@dataclass(frozen=True, slots=True)
class LatencyStats:
    """Sampled latencies.

    Attributes:
        sample_interval: one in this many reads is measured, on average.
        classes: by class of commands.
    """

    sample_interval: int
    classes: Mapping[str, LatencySummary]


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """The store of a server that keeps its items in memory alone.

    Attributes:
        url: the store's URL without its options.
        items: items in memory.
        bytes: bytes they are charged for.
        overhead: bytes of the index and the eviction policy.
        withheld: bytes of the limit withheld from items, as the process has outgrown it.
    """

    url: str
    items: int
    bytes: int
    overhead: int
    withheld: int


@dataclass(frozen=True, slots=True)
class BackendStats:
    """The store of a server with a backend.

    Attributes:
        url: the store's URL without its options, which may be secret.
        errors: commands that failed because of the store.
        figures: the figures that the backend reports, in its own names and units.
    """

    url: str
    errors: int
    figures: Mapping[str, int | float | str]

    @property
    def unavailable(self) -> bool:
        """Whether the store is considered unavailable, so that requests to it fail at once."""
        return self.figures.get("state") == "unavailable"


@dataclass(frozen=True, slots=True)
class UdpStats:
    """Requests over UDP.

    Attributes:
        under_way: requests that are not yet answered.
        refused: datagrams that held no request.
        dropped: requests dropped because too many were under way.
    """

    under_way: int
    refused: int
    dropped: int


@dataclass(frozen=True, slots=True)
class HotKey:
    """A frequently requested key.

    Attributes:
        key: the key.
        requests: the estimated number of requests for it, with old ones weighing less.
        changes: how many of them were not mere reads.
        error: by how much the number of requests may be too high.
        per_second: the estimated rate.
        percent: its share of all requests.
    """

    key: bytes
    requests: float
    changes: float
    error: float
    per_second: float
    percent: float


@dataclass(frozen=True, slots=True)
class HotKeysStats:
    """The most requested keys, estimated from sampled requests.

    Attributes:
        sample_interval: each sampled request stands for this many.
        half_life: seconds after which a request counts half.
        requests: the estimated number of all requests, with old ones weighing less.
        per_second: the estimated rate of all requests.
        keys: the hottest first.
    """

    sample_interval: int
    half_life: float
    requests: float
    per_second: float
    keys: tuple[HotKey, ...]


@dataclass(frozen=True, slots=True)
class ItemClassStats:
    """The items of one size class.

    Attributes:
        class_id: 1 for the smallest class.
        items: how many there are.
        bytes: bytes memcached would charge them for.
        age: seconds since the oldest of them was last used; 0 without items.
        evicted: items evicted to make room.
        evicted_nonzero: those among them with an expiry time.
        evicted_time: seconds for which the last evicted item had not been used.
        evicted_unfetched: evicted items that were never read.
        reclaimed: expired items whose place was taken by another.
        crawler_reclaimed: expired items the crawler has found.
    """

    class_id: int
    items: int
    bytes: int
    age: int
    evicted: int
    evicted_nonzero: int
    evicted_time: int
    evicted_unfetched: int
    reclaimed: int
    crawler_reclaimed: int


@dataclass(frozen=True, slots=True)
class SlabClassStats:
    """A size class as memcached would store it in slabs.

    Attributes:
        class_id: 1 for the smallest class.
        items: items of the class, each of which would take a chunk.
        chunk_size: bytes of a chunk.
        chunks_per_page: chunks of a slab page.
    """

    class_id: int
    items: int
    chunk_size: int
    chunks_per_page: int


@dataclass(frozen=True, slots=True)
class SlabStats:
    """All size classes that have items.

    Attributes:
        classes: by ascending class id.
        bytes: bytes all items are charged for.
    """

    classes: tuple[SlabClassStats, ...]
    bytes: int


FSYNC: Final = ("fsync", "ok")
"""An fsync of a journal, among `Snapshot.operations`."""

DURATION_LIMITS: Final = tuple(1 << power for power in range(10, 35))
"""Upper limits of the buckets in which `Durations` counts, in nanoseconds: 1 µs to 17 s."""


class Exemplar(NamedTuple):
    """The last traced request whose duration is in a bucket.

    Attributes:
        span: its span.
        nanoseconds: how long it took.
        time: unix time of its end in nanoseconds.
    """

    span: SpanName
    nanoseconds: int
    time: int


class Durations(NamedTuple):
    """How long things took, counted in buckets.

    Attributes:
        samples: how many were measured.
        total: their sum in nanoseconds.
        below: how many of them were below each of `DURATION_LIMITS`.
        exemplars: by bucket, where 0 stands for below the first limit, 1 for below the second, and
            so on.
    """

    samples: int
    total: int
    below: tuple[int, ...]
    exemplars: Mapping[int, Exemplar] = MappingProxyType({})

    @classmethod
    def read(
        cls, histogram: LatencyHistogram, exemplars: Mapping[int, Exemplar] | None = None
    ) -> Self:
        """Return the present counts of a histogram."""
        below = tuple(histogram.below(DURATION_LIMITS))
        return cls(histogram.count, histogram.total, below, dict(exemplars or {}))


class EvictedStats(NamedTuple):
    """Items of one size class that were evicted.

    Attributes:
        class_id: 1 for the smallest class.
        evicted: how many.
        idle: seconds for which the last evicted item had not been used.
    """

    class_id: int
    evicted: int
    idle: int


@dataclass(frozen=True, slots=True)
class HttpStats:
    """Connections to the HTTP port that were closed for lack of room.

    Attributes:
        refused: new connections, as all others were being answered.
        displaced: idle connections, to make room for new ones.
    """

    refused: int
    displaced: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of the server's figures that do not require a walk through its items.

    Attributes:
        build: as `memlite.core.build.running_build` returns it.
        general: the general statistics.
        storage: the figures of the store; None for a proxy, which has no store.
        udp: the figures of datagrams.
        sample_interval: one in this many reads is measured, on average.
        commands: how long sampled commands took, by class of commands.
        operations: how long the store's operations took, by their name and outcome; `FSYNC` for
            those of a journal.
        evicted: the size classes from which items were evicted.
        troubles: reasons not to send requests to the server now, in a few words each; empty if
            there are none.
        http: the figures of connections to the HTTP port.
        slow_commands: how many commands were slow; None without a slow log.
    """

    build: str
    general: GeneralStats
    storage: MemoryStats | BackendStats | None
    udp: UdpStats
    sample_interval: int
    commands: Mapping[str, Durations]
    operations: Mapping[tuple[str, str], Durations]
    evicted: tuple[EvictedStats, ...]
    troubles: tuple[str, ...]
    http: HttpStats = HttpStats(0, 0)
    slow_commands: int | None = None
