"""All metrics of a server, each defined once; those that only a proxy has are in `proxy_metrics`.

The metrics for monitors, the reference page and the alerts come from these tables. Labels have few
values, all known beforehand: no keys, no addresses.
"""

from typing import Final

from memlite.core.version import __version__
from memlite.telemetry.metrics.metric import Metric, Sample
from memlite.telemetry.metrics.readers import (
    by_figure,
    by_label,
    counter,
    figure,
    figures_of,
    general,
)
from memlite.telemetry.snapshot import FSYNC, BackendStats, MemoryStats, Snapshot

__all__ = ["COMMON", "METRICS"]


def _info(snapshot: Snapshot) -> tuple[Sample, ...]:
    labels = (__version__, snapshot.build, snapshot.general.event_loop)
    return (Sample(1, labels),)


def _processor(snapshot: Snapshot) -> tuple[Sample, ...]:
    found = snapshot.general
    return (Sample(found.user_seconds, ("user",)), Sample(found.system_seconds, ("system",)))


def _tls_age(snapshot: Snapshot) -> tuple[Sample, ...]:
    tls = snapshot.general.tls
    return () if tls is None else (Sample(tls.certificate_age),)


def _tls_failures(snapshot: Snapshot) -> tuple[Sample, ...]:
    counters = snapshot.general.counters
    if snapshot.general.tls is None:
        return ()
    return (Sample(counters.ssl_handshake_errors + counters.ssl_proto_errors),)


def _udp_lost(snapshot: Snapshot) -> tuple[Sample, ...]:
    if not snapshot.general.udp_sockets:
        return ()
    udp = snapshot.udp
    return (Sample(udp.refused, ("refused",)), Sample(udp.dropped, ("dropped",)))


def _http_closed(snapshot: Snapshot) -> tuple[Sample, ...]:
    http = snapshot.http
    return (Sample(http.displaced, ("displaced",)), Sample(http.refused, ("refused",)))


def _overhead(snapshot: Snapshot) -> tuple[Sample, ...]:
    storage = snapshot.storage
    return (Sample(storage.overhead),) if isinstance(storage, MemoryStats) else ()


def _withheld(snapshot: Snapshot) -> tuple[Sample, ...]:
    storage = snapshot.storage
    return (Sample(storage.withheld),) if isinstance(storage, MemoryStats) else ()


def _backend_up(snapshot: Snapshot) -> tuple[Sample, ...]:
    figures = figures_of(snapshot)
    if "state" in figures:
        return (Sample(int(figures["state"] == "available")),)
    if "last_write_error" in figures:
        return (Sample(int(figures["last_write_error"] == "none")),)
    return ()


def _storage_errors(snapshot: Snapshot) -> tuple[Sample, ...]:
    storage = snapshot.storage
    return (Sample(storage.errors),) if isinstance(storage, BackendStats) else ()


def _slow(snapshot: Snapshot) -> tuple[Sample, ...]:
    count = snapshot.slow_commands
    return () if count is None else (Sample(count),)


def _requests(snapshot: Snapshot) -> list[Sample]:
    found = snapshot.operations.items()
    return [Sample(times, labels) for labels, times in found if labels != FSYNC]


def _fsyncs(snapshot: Snapshot) -> list[Sample]:
    times = snapshot.operations.get(FSYNC)
    return [] if times is None else [Sample(times)]


_SERVER: Final = (
    Metric(
        "memlite_build_info",
        "gauge",
        "Always 1; the labels say what is running.",
        _info,
        labels=("version", "build", "event_loop"),
    ),
    Metric(
        "memlite_start_time_seconds",
        "gauge",
        "Unix time at which the server started.",
        general(lambda found: found.time - found.uptime),
        "seconds",
    ),
    Metric(
        "memlite_ready",
        "gauge",
        "Whether the server is ready to serve requests (1 or 0), as on /readyz.",
        lambda snapshot: (Sample(int(not snapshot.troubles)),),
    ),
    Metric(
        "memlite_process_cpu_seconds_total",
        "counter",
        "CPU time used by the process.",
        _processor,
        "seconds",
        ("mode",),
    ),
)

_CONNECTIONS: Final = (
    Metric(
        "memlite_open_connections",
        "gauge",
        "Client connections, excluding those to the HTTP port.",
        general(lambda found: found.connections),
    ),
    Metric(
        "memlite_tls_handshakes",
        "gauge",
        "Connections with an unfinished TLS handshake.",
        general(lambda found: found.handshakes),
    ),
    Metric(
        "memlite_connections_limit",
        "gauge",
        "Maximum number of connections (-c).",
        general(lambda found: found.connection_limit),
    ),
    Metric(
        "memlite_connections_accepted_total",
        "counter",
        "Connections accepted.",
        counter(lambda found: found.total_connections),
    ),
    Metric(
        "memlite_connections_rejected_total",
        "counter",
        "Connections rejected because of the connection limit (-c).",
        counter(lambda found: found.rejected_connections),
    ),
    Metric(
        "memlite_connections_idle_closed_total",
        "counter",
        "Connections closed because they were idle (-o idle_timeout).",
        counter(lambda found: found.idle_kicks),
    ),
    Metric(
        "memlite_connection_yields_total",
        "counter",
        "Times a connection with many pipelined requests yielded to others (-R).",
        counter(lambda found: found.conn_yields),
    ),
    Metric(
        "memlite_network_bytes_total",
        "counter",
        "Bytes received from clients and sent to them.",
        by_label(
            {("received",): lambda c: c.bytes_read, ("sent",): lambda c: c.bytes_written},
        ),
        "bytes",
        ("direction",),
    ),
    Metric(
        "memlite_input_held_bytes",
        "gauge",
        "Bytes received of commands that have not been executed yet.",
        general(lambda found: found.input_held),
        "bytes",
    ),
    Metric(
        "memlite_authentications_total",
        "counter",
        "Client authentication attempts.",
        by_label(
            {
                ("accepted",): lambda c: c.auth_cmds - c.auth_errors,
                ("refused",): lambda c: c.auth_errors,
            }
        ),
        labels=("result",),
    ),
    Metric(
        "memlite_tls_failures_total",
        "counter",
        "TLS handshakes and connections that failed.",
        _tls_failures,
    ),
    Metric(
        "memlite_tls_certificate_age_seconds",
        "gauge",
        "Time since the certificates were last read.",
        _tls_age,
        "seconds",
    ),
    Metric(
        "memlite_udp_lost_total",
        "counter",
        "UDP datagrams refused because they contained no request, and requests dropped because "
        "there were too many.",
        _udp_lost,
        labels=("result",),
    ),
    Metric(
        "memlite_http_closed_total",
        "counter",
        "Connections to the HTTP port closed because of its connection limit: idle ones displaced "
        "by new ones, and new ones refused because none was idle.",
        _http_closed,
        labels=("reason",),
    ),
)

_COMMANDS: Final = (
    Metric(
        "memlite_commands_total",
        "counter",
        "Commands by result; a get of several keys counts once per key. All storage commands "
        "count as set and done, even those that stored nothing, such as an add of an existing "
        "key; values over -I are counted only in memlite_stores_refused_total.",
        by_label(
            {
                ("get", "hit"): lambda c: c.get_hits,
                ("get", "miss"): lambda c: c.get_misses,
                # cmd_set counts cas again.
                ("set", "done"): lambda c: c.cmd_set - c.cas_hits - c.cas_misses - c.cas_badval,
                ("cas", "hit"): lambda c: c.cas_hits,
                ("cas", "miss"): lambda c: c.cas_misses,
                ("cas", "changed"): lambda c: c.cas_badval,
                ("delete", "hit"): lambda c: c.delete_hits,
                ("delete", "miss"): lambda c: c.delete_misses,
                ("incr", "hit"): lambda c: c.incr_hits,
                ("incr", "miss"): lambda c: c.incr_misses,
                ("decr", "hit"): lambda c: c.decr_hits,
                ("decr", "miss"): lambda c: c.decr_misses,
                ("touch", "hit"): lambda c: c.touch_hits,
                ("touch", "miss"): lambda c: c.touch_misses,
                ("flush", "done"): lambda c: c.cmd_flush,
            }
        ),
        labels=("command", "result"),
    ),
    Metric(
        "memlite_meta_commands_total",
        "counter",
        "Meta commands; memlite_commands_total includes them.",
        counter(lambda found: found.cmd_meta),
    ),
    Metric(
        "memlite_stores_refused_total",
        "counter",
        "Values not stored because they were larger than -I or memory was full (-M).",
        by_label(
            {
                ("too_large",): lambda c: c.store_too_large,
                ("no_memory",): lambda c: c.store_no_memory,
            }
        ),
        labels=("reason",),
    ),
    Metric(
        "memlite_misses_explained_total",
        "counter",
        "Get misses whose item had expired or had been flushed.",
        by_label(
            {("expired",): lambda c: c.get_expired, ("flushed",): lambda c: c.get_flushed},
        ),
        labels=("reason",),
    ),
)

_DURATIONS: Final = (
    Metric(
        "memlite_command_duration_seconds",
        "histogram",
        "Latency of sampled commands, from parsed to reply ready; its count is the number of "
        "samples, one read in memlite_latency_sample_interval on average.",
        lambda snapshot: [Sample(found, (name,)) for name, found in snapshot.commands.items()],
        "seconds",
        ("class",),
    ),
    Metric(
        "memlite_latency_sample_interval",
        "gauge",
        "One in this many reads is measured, on average.",
        lambda snapshot: (Sample(snapshot.sample_interval),),
    ),
    Metric(
        "memlite_slow_commands_total",
        "counter",
        "Commands that took at least as long as --slow-log.",
        _slow,
    ),
)

_ITEMS: Final = (
    Metric(
        "memlite_items",
        "gauge",
        "Items in memory.",
        general(lambda found: found.items),
    ),
    Metric(
        "memlite_items_bytes",
        "gauge",
        "Bytes charged for the items in memory.",
        general(lambda found: found.bytes),
        "bytes",
    ),
    Metric(
        "memlite_items_limit_bytes",
        "gauge",
        "Maximum number of bytes charged for items in memory (-m).",
        general(lambda found: found.bytes_limit),
        "bytes",
    ),
    Metric(
        "memlite_memory_overhead_bytes",
        "gauge",
        "Bytes used by the index and the eviction policy.",
        _overhead,
        "bytes",
    ),
    Metric(
        "memlite_memory_withheld_bytes",
        "gauge",
        "Bytes of the limit withheld from items because the process has outgrown it.",
        _withheld,
        "bytes",
    ),
    Metric(
        "memlite_items_stored_total",
        "counter",
        "Items stored.",
        counter(lambda found: found.total_items),
    ),
    Metric(
        "memlite_evictions_total",
        "counter",
        "Items evicted to make room, by whether they had ever been read.",
        by_label(
            {
                ("yes",): lambda c: c.evictions - c.evicted_unfetched,
                ("no",): lambda c: c.evicted_unfetched,
            }
        ),
        labels=("fetched",),
    ),
    Metric(
        "memlite_size_class_evictions_total",
        "counter",
        "Items evicted by size class, as numbered in stats slabs; classes without any are absent.",
        lambda snapshot: [Sample(one.evicted, (str(one.class_id),)) for one in snapshot.evicted],
        labels=("size_class",),
    ),
    Metric(
        "memlite_size_class_evicted_idle_seconds",
        "gauge",
        "Time since the last use of the most recently evicted item, by size class.",
        lambda snapshot: [Sample(one.idle, (str(one.class_id),)) for one in snapshot.evicted],
        "seconds",
        ("size_class",),
    ),
    Metric(
        "memlite_expired_items_freed_total",
        "counter",
        "Expired items freed, either to make room or in the background.",
        by_label(
            {("reused",): lambda c: c.reclaimed, ("background",): lambda c: c.crawler_reclaimed},
        ),
        labels=("how",),
    ),
    Metric(
        "memlite_items_expired_unfetched_total",
        "counter",
        "Items that expired without having been read.",
        counter(lambda found: found.expired_unfetched),
    ),
)

_NEAR_CACHE: Final = (
    Metric(
        "memlite_near_cache_reads_total",
        "counter",
        "Reads by whether the near cache answered them.",
        by_figure({"hit": "near_hits", "miss": "near_misses"}),
        labels=("result",),
    ),
    Metric(
        "memlite_near_cache_items",
        "gauge",
        "Items in the near cache.",
        figure("near_items"),
    ),
    Metric(
        "memlite_near_cache_bytes",
        "gauge",
        "Bytes charged for the items in the near cache.",
        figure("near_bytes"),
        "bytes",
    ),
    Metric(
        "memlite_near_cache_limit_bytes",
        "gauge",
        "Maximum number of bytes in the near cache (--near-cache).",
        figure("near_limit"),
        "bytes",
    ),
    Metric(
        "memlite_write_back_items",
        "gauge",
        "Acknowledged changes that have not been stored yet (--write-back).",
        figure("write_back_items"),
    ),
    Metric(
        "memlite_write_back_bytes",
        "gauge",
        "Bytes of acknowledged changes that have not been stored yet.",
        figure("write_back_bytes"),
        "bytes",
    ),
    Metric(
        "memlite_write_back_limit_bytes",
        "gauge",
        "Maximum bytes of acknowledged changes that have not been stored yet.",
        figure("write_back_limit"),
        "bytes",
    ),
    Metric(
        "memlite_write_back_coalesced_total",
        "counter",
        "Changes not written because a later one replaced them.",
        figure("write_back_coalesced"),
    ),
    Metric(
        "memlite_write_back_failures_total",
        "counter",
        "Failed attempts to store a change.",
        figure("write_back_failures"),
    ),
)

_BACKEND: Final = (
    Metric(
        "memlite_backend_up",
        "gauge",
        "Whether the store is available: 0 while its circuit breaker is open or the journal "
        "cannot be written.",
        _backend_up,
    ),
    Metric(
        "memlite_backend_breaker_opened_total",
        "counter",
        "Times the circuit breaker opened because the store did not respond.",
        figure("times_unavailable"),
    ),
    Metric(
        "memlite_backend_failed_commands_total",
        "counter",
        "Client commands that failed because of the store.",
        _storage_errors,
    ),
    Metric(
        "memlite_backend_operation_duration_seconds",
        "histogram",
        "Latency of requests to the store, per attempt, by whether they were answered (ok) or "
        "failed.",
        _requests,
        "seconds",
        ("operation", "outcome"),
    ),
    Metric(
        "memlite_backend_in_flight",
        "gauge",
        "Requests to the store that have not been answered yet.",
        figure("in_flight"),
    ),
    Metric(
        "memlite_backend_requests_total",
        "counter",
        "Requests to the store: by billing class for a bucket, commands for Valkey and Redis.",
        by_figure(
            {
                "class_a": "class_a_operations",
                "class_b": "class_b_operations",
                "delete": "deletions",
                "command": "commands",
            }
        ),
        labels=("kind",),
    ),
    Metric(
        "memlite_backend_problems_total",
        "counter",
        "Requests to the store that were retried, throttled or refused, that failed, or whose "
        "acknowledgement was lost.",
        by_figure(
            {
                "retried": "retries",
                "failed": "failures",
                "throttled": "throttled",
                "refused": "refusals",
                "lost": "lost_acknowledgements",
            }
        ),
        labels=("problem",),
    ),
    Metric(
        "memlite_journal_bytes",
        "gauge",
        "The journal's size.",
        figure("journal_bytes"),
        "bytes",
    ),
    Metric(
        "memlite_snapshot_bytes",
        "gauge",
        "The snapshot's size.",
        figure("snapshot_bytes"),
        "bytes",
    ),
    Metric(
        "memlite_compactions_total",
        "counter",
        "Times the journal was replaced by a snapshot.",
        figure("compactions"),
    ),
    Metric(
        "memlite_journal_fsync_duration_seconds",
        "histogram",
        "Duration of the journal's fsyncs.",
        _fsyncs,
        "seconds",
    ),
)

_WATCHERS: Final = (
    Metric(
        "memlite_watchers",
        "gauge",
        "Connections watching events.",
        general(lambda found: found.watch.watchers),
    ),
    Metric(
        "memlite_watch_lines_skipped_total",
        "counter",
        "Lines dropped because a watcher was too slow to read them.",
        general(lambda found: found.watch.skipped),
    ),
)

COMMON: Final[tuple[Metric, ...]] = (*_SERVER, *_CONNECTIONS, *_DURATIONS, *_WATCHERS)
"""The metrics that a proxy has as well."""

METRICS: Final[tuple[Metric, ...]] = (
    *_SERVER,
    *_CONNECTIONS,
    *_COMMANDS,
    *_DURATIONS,
    *_ITEMS,
    *_NEAR_CACHE,
    *_BACKEND,
    *_WATCHERS,
)
"""All metrics, in the order in which they are written."""
