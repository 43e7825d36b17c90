"""The metrics of memcached_exporter, for dashboards and alerts that were written for it.

Names, types and labels are those of prometheus/memcached_exporter, ``pkg/exporter/exporter.go``,
with the values that it would read from memlite's ``stats`` and ``stats settings``: the activity of
memcached's LRU threads is 0. The metrics of slab classes are left out, apart from evictions, as
they would require a walk through all items; so are those of memcached's extstore and proxy.
"""

from typing import Final

from memlite.core.version import SERVER_VERSION
from memlite.telemetry.metrics.metric import Kind, Metric, Sample
from memlite.telemetry.metrics.readers import by_label, counter, general

__all__ = ["EXPORTER_METRICS"]

_ABSENT: Final[tuple[tuple[str, Kind, str], ...]] = (
    ("direct_reclaims_total", "counter", "Times a client's command had to evict items itself"),
    ("lru_crawler_sleep", "gauge", "Pause of the crawler between items"),
    ("lru_crawler_maintainer_thread", "gauge", "Whether the LRU maintainer thread is running"),
    ("lru_crawler_to_crawl", "gauge", "Maximum items per slab class the crawler checks per run"),
    ("lru_crawler_hot_percent", "gauge", "Share of memory for hot items"),
    ("lru_crawler_warm_percent", "gauge", "Share of memory for warm items"),
    ("lru_crawler_hot_max_factor", "gauge", "Idle-age factor at which items leave the hot LRU"),
    ("lru_crawler_warm_max_factor", "gauge", "Idle-age factor at which items leave the warm LRU"),
    ("lru_crawler_moves_to_cold_total", "counter", "Items moved to the cold LRU"),
    ("lru_crawler_moves_to_warm_total", "counter", "Items moved to the warm LRU"),
    ("lru_crawler_moves_within_lru_total", "counter", "Items moved within an LRU"),
)  # fmt: skip

EXPORTER_METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "memcached_up",
        "gauge",
        "Always 1: the server could be reached.",
        lambda snapshot: (Sample(1),),
    ),
    Metric(
        "memcached_version",
        "gauge",
        "Always 1; the label is the version of memcached whose behaviour is implemented.",
        lambda snapshot: (Sample(1, (SERVER_VERSION,)),),
        labels=("version",),
    ),
    Metric(
        "memcached_uptime_seconds",
        "counter",
        "Seconds since the server started.",
        general(lambda found: found.uptime),
        "seconds",
    ),
    Metric(
        "memcached_time_seconds",
        "gauge",
        "Unix time.",
        general(lambda found: found.time),
        "seconds",
    ),
    Metric(
        "memcached_process_user_cpu_seconds_total",
        "counter",
        "CPU time used in user mode.",
        general(lambda found: found.user_seconds),
        "seconds",
    ),
    Metric(
        "memcached_process_system_cpu_seconds_total",
        "counter",
        "CPU time used in kernel mode.",
        general(lambda found: found.system_seconds),
        "seconds",
    ),
    Metric(
        "memcached_commands_total",
        "counter",
        "Commands by status.",
        by_label(
            {
                ("get", "hit"): lambda c: c.get_hits,
                ("get", "miss"): lambda c: c.get_misses,
                ("delete", "hit"): lambda c: c.delete_hits,
                ("delete", "miss"): lambda c: c.delete_misses,
                ("incr", "hit"): lambda c: c.incr_hits,
                ("incr", "miss"): lambda c: c.incr_misses,
                ("decr", "hit"): lambda c: c.decr_hits,
                ("decr", "miss"): lambda c: c.decr_misses,
                ("cas", "hit"): lambda c: c.cas_hits,
                ("cas", "miss"): lambda c: c.cas_misses,
                ("cas", "badval"): lambda c: c.cas_badval,
                ("touch", "hit"): lambda c: c.touch_hits,
                ("touch", "miss"): lambda c: c.touch_misses,
                ("flush", "hit"): lambda c: c.cmd_flush,
                ("set", "hit"): lambda c: c.cmd_set - c.cas_misses - c.cas_hits - c.cas_badval,
            }
        ),
        labels=("command", "status"),
    ),
    Metric(
        "memcached_read_bytes_total",
        "counter",
        "Bytes received.",
        counter(lambda found: found.bytes_read),
        "bytes",
    ),
    Metric(
        "memcached_written_bytes_total",
        "counter",
        "Bytes sent.",
        counter(lambda found: found.bytes_written),
        "bytes",
    ),
    Metric(
        "memcached_current_connections",
        "gauge",
        "Open connections, as in stats.",
        general(lambda found: found.connections + found.handshakes + found.udp_sockets),
    ),
    Metric(
        "memcached_max_connections",
        "gauge",
        "Maximum number of connections.",
        general(lambda found: found.connection_limit),
    ),
    Metric(
        "memcached_connections_total",
        "counter",
        "Connections accepted.",
        counter(lambda found: found.total_connections),
    ),
    Metric(
        "memcached_connections_rejected_total",
        "counter",
        "Connections rejected.",
        counter(lambda found: found.rejected_connections),
    ),
    Metric(
        "memcached_connections_yielded_total",
        "counter",
        "Times a connection yielded to others.",
        counter(lambda found: found.conn_yields),
    ),
    Metric(
        "memcached_connections_listener_disabled_total",
        "counter",
        "Always 0: listeners are not disabled.",
        lambda snapshot: (Sample(0),),
    ),
    Metric(
        "memcached_accepting_connections",
        "gauge",
        "Always 1: listeners are not disabled.",
        lambda snapshot: (Sample(1),),
    ),
    Metric(
        "memcached_current_bytes",
        "gauge",
        "Bytes charged for items.",
        general(lambda found: found.bytes),
        "bytes",
    ),
    Metric(
        "memcached_limit_bytes",
        "gauge",
        "Maximum number of bytes charged for items.",
        general(lambda found: found.bytes_limit),
        "bytes",
    ),
    Metric(
        "memcached_current_items",
        "gauge",
        "Items in memory.",
        general(lambda found: found.items),
    ),
    Metric(
        "memcached_items_total",
        "counter",
        "Items stored.",
        counter(lambda found: found.total_items),
    ),
    Metric(
        "memcached_items_evicted_total",
        "counter",
        "Items evicted.",
        counter(lambda found: found.evictions),
    ),
    Metric(
        "memcached_items_reclaimed_total",
        "counter",
        "Expired items whose memory was reused.",
        counter(lambda found: found.reclaimed),
    ),
    Metric(
        "memcached_item_too_large_total",
        "counter",
        "Values larger than the maximum item size.",
        counter(lambda found: found.store_too_large),
    ),
    Metric(
        "memcached_item_no_memory_total",
        "counter",
        "Values not stored for lack of memory.",
        counter(lambda found: found.store_no_memory),
    ),
    Metric(
        "memcached_lru_crawler_enabled",
        "gauge",
        "Whether the crawler accepts commands.",
        general(lambda found: int(found.crawler_enabled)),
    ),
    Metric(
        "memcached_lru_crawler_starts_total",
        "counter",
        "Times the crawler was started.",
        counter(lambda found: found.lru_crawler_starts),
    ),
    Metric(
        "memcached_lru_crawler_reclaimed_total",
        "counter",
        "Expired items freed by the crawler.",
        counter(lambda found: found.crawler_reclaimed),
    ),
    Metric(
        "memcached_lru_crawler_items_checked_total",
        "counter",
        "Items checked by the crawler.",
        counter(lambda found: found.crawler_items_checked),
    ),
    *(
        Metric(
            f"memcached_{name}", kind, f"{meaning}; always 0 here.", lambda snapshot: (Sample(0),)
        )
        for name, kind, meaning in _ABSENT
    ),
    Metric(
        "memcached_malloced_bytes",
        "gauge",
        "Bytes charged for items, as in stats slabs.",
        general(lambda found: found.bytes),
        "bytes",
    ),
    Metric(
        "memcached_slab_items_evicted_total",
        "counter",
        "Items evicted by size class.",
        lambda snapshot: [Sample(one.evicted, (str(one.class_id),)) for one in snapshot.evicted],
        labels=("slab",),
    ),
    Metric(
        "memcached_slab_items_evicted_time_seconds",
        "counter",
        "Seconds since the last use of the most recently evicted item.",
        lambda snapshot: [Sample(one.idle, (str(one.class_id),)) for one in snapshot.evicted],
        "seconds",
        ("slab",),
    ),
)
"""The metrics of memcached_exporter that apply here and need no walk through items."""
