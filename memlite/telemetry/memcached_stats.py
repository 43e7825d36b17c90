"""memcached's ``stats`` groups, rendered from snapshots: its names, in its order.

Fields that count something memlite does not have (slabs, worker threads, extstore) are present with
the value 0, so that dashboards and exporters expecting them keep working. The groups ``backend``,
``latency``, ``slow``, ``udp``, ``workers`` and ``hotkeys`` are memlite's own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from memlite.config import Config
from memlite.core.uris import uri_encoded
from memlite.core.version import SERVER_VERSION, __version__
from memlite.telemetry.snapshot import (
    BackendStats,
    GeneralStats,
    HotKeysStats,
    ItemClassStats,
    LatencyStats,
    MemoryStats,
    SettingsStats,
    SlabStats,
    SocketState,
    SocketStats,
    TlsStats,
    UdpStats,
    WorkerStats,
)

if TYPE_CHECKING:
    from memlite.telemetry.slow import SlowStats  # for servers with --slow-log

__all__ = [
    "Pairs",
    "general",
    "hot_keys",
    "items",
    "latency",
    "settings",
    "sizes",
    "slabs",
    "slow",
    "sockets",
    "storage",
    "udp",
    "workers",
]

Pairs = Iterable[tuple[str, object]]
"""The names and values of a group, in order."""


def _zeros(*names: str) -> dict[str, int]:
    return dict.fromkeys(names, 0)


_BUFFERS: Final = _zeros(
    "response_obj_oom", "response_obj_count", "response_obj_bytes", "read_buf_count",
    "read_buf_bytes", "read_buf_bytes_free", "read_buf_oom", "reserved_fds",
)  # fmt: skip
_HASH_TABLE_AND_SLABS: Final = _zeros(
    "hash_power_level", "hash_bytes", "hash_is_expanding", "slab_reassign_rescues",
    "slab_reassign_chunk_rescues", "slab_reassign_inline_reclaim", "slab_reassign_busy_items",
    "slab_reassign_busy_deletes", "slab_reassign_busy_nomem",
)  # fmt: skip
_LRU: Final = _zeros(
    "lrutail_reflocked", "moves_to_cold", "moves_to_warm", "moves_within_lru", "direct_reclaims",
    "lru_bumps_dropped",
)  # fmt: skip
# Fields memcached leaves out when the thread they belong to was turned off with -o no_...
_OF_CRAWLER: Final = ("lru_crawler_running", "lru_crawler_starts")
_OF_MAINTAINER: Final = (
    "lru_maintainer_juggles", "evicted_active", "moves_to_cold", "moves_to_warm",
    "moves_within_lru", "direct_reclaims", "lru_bumps_dropped",
)  # fmt: skip


def general(stats: GeneralStats) -> Pairs:
    """``stats``."""
    counters = stats.counters
    connections = stats.connections + stats.handshakes + stats.udp_sockets
    shown: dict[str, object] = {
        "pid": stats.pid,
        "uptime": int(stats.uptime),
        "time": int(stats.time),
        "version": SERVER_VERSION,
        "memlite_version": __version__,
        "libevent": stats.event_loop,
        "pointer_size": 64,
        "rusage_user": f"{stats.user_seconds:.6f}",
        "rusage_system": f"{stats.system_seconds:.6f}",
        "max_connections": stats.connection_limit,
        "curr_connections": connections,
        "total_connections": counters.total_connections,
        "rejected_connections": counters.rejected_connections,
        "connection_structures": connections,
        **_BUFFERS,
        "read_buf_bytes": stats.input_held,
        "cmd_get": counters.cmd_get,
        "cmd_set": counters.cmd_set,
        "cmd_flush": counters.cmd_flush,
        "cmd_touch": counters.cmd_touch,
        "cmd_meta": counters.cmd_meta,
        "get_hits": counters.get_hits,
        "get_misses": counters.get_misses,
        "get_expired": counters.get_expired,
        "get_flushed": counters.get_flushed,
        "delete_misses": counters.delete_misses,
        "delete_hits": counters.delete_hits,
        "incr_misses": counters.incr_misses,
        "incr_hits": counters.incr_hits,
        "decr_misses": counters.decr_misses,
        "decr_hits": counters.decr_hits,
        "cas_misses": counters.cas_misses,
        "cas_hits": counters.cas_hits,
        "cas_badval": counters.cas_badval,
        "touch_hits": counters.touch_hits,
        "touch_misses": counters.touch_misses,
        "store_too_large": counters.store_too_large,
        "store_no_memory": counters.store_no_memory,
        "auth_cmds": counters.auth_cmds,
        "auth_errors": counters.auth_errors,
        "idle_kicks": counters.idle_kicks,
        "bytes_read": counters.bytes_read,
        "bytes_written": counters.bytes_written,
        "limit_maxbytes": stats.bytes_limit,
        "accepting_conns": 1,
        "listen_disabled_num": 0,
        "time_in_listen_disabled_us": 0,
        "threads": stats.threads,
        "conn_yields": counters.conn_yields,
        **_HASH_TABLE_AND_SLABS,
        "slab_reassign_last_busy_status": "none",
        "slab_reassign_running": 0,
        "slabs_moved": 0,
        "lru_crawler_running": int(stats.crawler_running),
        "lru_crawler_starts": counters.lru_crawler_starts,
        "lru_maintainer_juggles": 0,
        "malloc_fails": 0,
        # Events go to the watchers directly, without a worker's buffer that could overflow.
        "log_worker_dropped": 0,
        "log_worker_written": stats.watch.written,
        "log_watcher_skipped": stats.watch.skipped,
        "log_watcher_sent": stats.watch.sent,
        "log_watchers": stats.watch.watchers,
        **(_tls(stats, stats.tls) if stats.tls is not None else {}),
        "unexpected_napi_ids": 0,
        "round_robin_fallback": 0,
        "bytes": stats.bytes,
        "curr_items": stats.items,
        "total_items": counters.total_items,
        "slab_global_page_pool": 0,
        "expired_unfetched": counters.expired_unfetched,
        "evicted_unfetched": counters.evicted_unfetched,
        "evicted_active": 0,
        "evictions": counters.evictions,
        "reclaimed": counters.reclaimed,
        "crawler_reclaimed": counters.crawler_reclaimed,
        "crawler_items_checked": counters.crawler_items_checked,
        **_LRU,
    }
    if not stats.idle_timeout:
        del shown["idle_kicks"]
    if not stats.crawler_enabled:
        _leave_out(shown, _OF_CRAWLER)
    if not stats.lru_maintainer:
        _leave_out(shown, _OF_MAINTAINER)
    return shown.items()


def _leave_out(shown: dict[str, object], names: Sequence[str]) -> None:
    for name in names:
        del shown[name]


def _tls(stats: GeneralStats, tls: TlsStats) -> Mapping[str, int]:
    counters = stats.counters
    sessions = {"ssl_new_sessions": counters.ssl_new_sessions} if tls.session_cache else {}
    return {
        **sessions,
        "ssl_handshake_errors": counters.ssl_handshake_errors,
        "ssl_proto_errors": counters.ssl_proto_errors,
        "time_since_server_cert_refresh": int(tls.certificate_age),
    }


def settings(stats: SettingsStats) -> Pairs:
    """``stats settings``: the settings the server runs with."""
    config = stats.config
    return {
        "maxbytes": stats.bytes_limit,
        "maxconns": config.conn_limit,
        "tcpport": stats.tcp_port,
        "udpport": stats.udp_port,
        "inter": ",".join(config.listen) or "NULL",
        "verbosity": stats.verbosity,
        "oldest": int(stats.flush_at),
        "evictions": "off" if config.disable_evictions else "on",
        "domain_socket": config.unix_socket or "NULL",
        "umask": f"{config.unix_mask:o}",
        "shutdown_command": _yes_or_no(config.enable_shutdown),
        "growth_factor": f"{config.slab_growth_factor:.2f}",
        "chunk_size": config.slab_min_size,
        "num_threads": config.threads,
        # memcached's rule: one thread per socket where there are several.
        "num_threads_per_udp": 1 if len(config.listen) > 1 else config.threads,
        "stat_key_prefix": config.prefix_delimiter or ":",
        "detail_enabled": _yes_or_no(stats.prefixes_counted),
        "reqs_per_event": config.max_reqs_per_event,
        "cas_enabled": _yes_or_no(not config.disable_cas),
        "tcp_backlog": config.listen_backlog,
        "binding_protocol": "auto-negotiate" if config.protocol == "auto" else config.protocol,
        "auth_enabled_sasl": _yes_or_no(config.enable_sasl),
        "auth_enabled_ascii": (config.protocol != "binary" and config.auth_file) or "no",
        "item_size_max": config.max_item_size,
        "maxconns_fast": "yes",
        "hashpower_init": 0,
        "slab_reassign": "no",
        "slab_automove": 0,
        "slab_automove_ratio": "0.00",
        "slab_automove_window": 0,
        "slab_chunk_max": 0,
        "lru_crawler": _yes_or_no(stats.crawler_enabled),
        "lru_crawler_sleep": 0,
        "lru_crawler_tocrawl": 0,
        "tail_repair_time": 0,
        "flush_enabled": _yes_or_no(not config.disable_flush_all),
        "dump_enabled": _yes_or_no(not config.disable_dumping),
        "hash_algorithm": "siphash",
        "lru_maintainer_thread": "no",
        "lru_segmented": "no",
        "hot_lru_pct": 0,
        "warm_lru_pct": 0,
        "hot_max_factor": "0.00",
        "warm_max_factor": "0.00",
        "temp_lru": "no",
        "temporary_ttl": 0,
        "idle_timeout": config.extended.idle_timeout,
        "watcher_logbuf_size": config.extended.watcher_logbuf_size,
        "worker_logbuf_size": 0,
        "read_buf_mem_limit": 0,
        "track_sizes": _yes_or_no(config.extended.track_sizes),
        "inline_ascii_response": "no",
        **_tls_settings(config),
        "num_napi_ids": 0,
        "memory_file": config.memory_file or "(null)",
        "client_flags_size": 4,
        "eviction_policy": config.eviction,
        "build": stats.build,
    }.items()


# By -o ssl_verify_mode, OpenSSL's flags: 1 verify, 2 fail without a certificate, 4 ask once.
_VERIFY_FLAGS: Final = (0, 1, 3, 7)
# By -o ssl_min_version.
_MIN_VERSIONS: Final = ("tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3")


def _tls_settings(config: Config) -> Mapping[str, object]:
    extended = config.extended
    given = extended.given
    return {
        "ssl_enabled": _yes_or_no(config.enable_ssl),
        "ssl_chain_cert": given.get("ssl_chain_cert", "(null)"),
        "ssl_key": given.get("ssl_key", "(null)"),
        "ssl_verify_mode": _VERIFY_FLAGS[extended.ssl_verify_mode],
        "ssl_keyformat": 1,
        "ssl_ciphers": given.get("ssl_ciphers", "NULL"),
        "ssl_ca_cert": given.get("ssl_ca_cert", "NULL"),
        "ssl_wbuf_size": int(given.get("ssl_wbuf_size", 16)) * 1024,
        "ssl_session_cache": _yes_or_no("ssl_session_cache" in given),
        "ssl_kernel_tls": _yes_or_no("ssl_kernel_tls" in given),
        "ssl_min_version": _MIN_VERSIONS[extended.ssl_min_version],
    }


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


_STATES: Final[Mapping[SocketState, str]] = {
    "listening": "conn_listening",
    "reading": "conn_read",
    "reading_value": "conn_nread",
    "executing": "conn_parse_cmd",
    "writing": "conn_mwrite",
    "streaming": "conn_watch",
    "datagrams": "conn_read",
}


def sockets(stats: Iterable[SocketStats]) -> Iterator[tuple[str, object]]:
    """``stats conns``: sockets by file descriptor."""
    for socket in stats:
        number = socket.number
        if socket.state == "datagrams":
            yield f"{number}:UDP", "UDP"
        yield f"{number}:addr", socket.address
        if socket.listen_address is not None:
            yield f"{number}:listen_addr", socket.listen_address
        yield f"{number}:state", _STATES[socket.state]
        yield f"{number}:secs_since_last_cmd", socket.idle


def latency(stats: LatencyStats) -> Iterator[tuple[str, object]]:
    """``stats latency``: sampled durations by class of commands, in microseconds."""
    yield "sample_interval", stats.sample_interval
    for name, summary in stats.classes.items():
        mean = summary.total / summary.samples if summary.samples else 0
        yield f"{name}:samples", summary.samples
        for label, nanoseconds in (
            ("mean", mean), ("p50", summary.p50), ("p90", summary.p90), ("p99", summary.p99),
            ("p999", summary.p999), ("max", summary.maximum),
        ):  # fmt: skip
            yield f"{name}:{label}_us", _microseconds(nanoseconds)


def storage(stats: MemoryStats | BackendStats) -> Pairs:
    """``stats backend``: the store's URL and the figures it reports."""
    if isinstance(stats, MemoryStats):
        return {
            "url": stats.url,
            "items": stats.items,
            "bytes": stats.bytes,
            "overhead_bytes": stats.overhead,
            "withheld_bytes": stats.withheld,
        }.items()
    return {"url": stats.url, "storage_errors": stats.errors, **stats.figures}.items()


def udp(stats: UdpStats) -> Pairs:
    """``stats udp``: requests received as datagrams."""
    return {
        "requests_under_way": stats.under_way,
        "refused": stats.refused,
        "dropped": stats.dropped,
    }.items()


def hot_keys(stats: HotKeysStats) -> Iterator[tuple[str, object]]:
    """``stats hotkeys``: the most requested keys."""
    yield "hotkeys:sample_interval", stats.sample_interval
    yield "hotkeys:half_life", int(stats.half_life)
    yield "hotkeys:requests", round(stats.requests)
    yield "hotkeys:per_second", f"{stats.per_second:.1f}"
    for rank, hot in enumerate(stats.keys, 1):
        yield f"hotkeys:{rank}:key", uri_encoded(hot.key)
        yield f"hotkeys:{rank}:requests", round(hot.requests)
        yield f"hotkeys:{rank}:changes", round(hot.changes)
        yield f"hotkeys:{rank}:error", round(hot.error)
        yield f"hotkeys:{rank}:per_second", f"{hot.per_second:.1f}"
        yield f"hotkeys:{rank}:share", f"{hot.percent:.2f}"


def slow(stats: "SlowStats", *, shows_keys: bool) -> Iterator[tuple[str, object]]:
    """``stats slow``: the last slow commands, the newest first.

    Args:
        stats: the slow log.
        shows_keys: whether to name keys.
    """
    yield "slow:threshold_us", _microseconds(stats.threshold)
    yield "slow:count", stats.count
    for rank, one in enumerate(stats.commands, 1):
        yield f"slow:{rank}:time", f"{one.time:.3f}"
        yield f"slow:{rank}:elapsed_us", _microseconds(one.nanoseconds)
        yield f"slow:{rank}:command", one.command
        yield f"slow:{rank}:keys", one.keys
        if shows_keys and one.key is not None:
            yield f"slow:{rank}:key", uri_encoded(one.key) + ("..." if one.cut else "")
        yield f"slow:{rank}:client", one.client


def _microseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:.1f}"


def workers(answering: int, stats: Sequence[WorkerStats]) -> Iterator[tuple[str, object]]:
    """``stats workers``: the worker processes, and the number of the one that answers."""
    yield "answering", answering
    for number, worker in enumerate(stats):
        if not worker.pid:  # it is being replaced
            continue
        yield f"{number}:pid", worker.pid
        yield f"{number}:curr_connections", worker.connections
        yield f"{number}:total_connections", worker.accepted
        yield f"{number}:operations", worker.operations
        yield f"{number}:rusage_user", f"{worker.user_seconds:.6f}"
        yield f"{number}:rusage_system", f"{worker.system_seconds:.6f}"


def items(stats: Iterable[ItemClassStats]) -> Iterator[tuple[str, object]]:
    """``stats items``: items by size class."""
    for found in stats:
        values = {
            **_ITEMS_FIELDS,
            "number": found.items,
            "number_cold": found.items,
            "age": found.age,
            "mem_requested": found.bytes,
            "evicted": found.evicted,
            "evicted_nonzero": found.evicted_nonzero,
            "evicted_time": found.evicted_time,
            "reclaimed": found.reclaimed,
            "evicted_unfetched": found.evicted_unfetched,
            "crawler_reclaimed": found.crawler_reclaimed,
        }
        for name, value in values.items():
            yield f"items:{found.class_id}:{name}", value


_ITEMS_FIELDS: Final = _zeros(
    "number", "number_hot", "number_warm", "number_cold", "age_hot", "age_warm", "age",
    "mem_requested", "evicted", "evicted_nonzero", "evicted_time", "outofmemory", "tailrepairs",
    "reclaimed", "expired_unfetched", "evicted_unfetched", "evicted_active", "crawler_reclaimed",
    "crawler_items_checked", "lrutail_reflocked", "moves_to_cold", "moves_to_warm",
    "moves_within_lru", "direct_reclaims", "hits_to_hot", "hits_to_warm", "hits_to_cold",
    "hits_to_temp",
)  # fmt: skip


def slabs(stats: SlabStats) -> Iterator[tuple[str, object]]:
    """``stats slabs``: size classes as if they were slabs, each filled to its last chunk."""
    for found in stats.classes:
        class_id = found.class_id
        yield f"{class_id}:chunk_size", found.chunk_size
        yield f"{class_id}:chunks_per_page", found.chunks_per_page
        yield f"{class_id}:total_pages", -(-found.items // found.chunks_per_page)
        yield f"{class_id}:total_chunks", found.items
        yield f"{class_id}:used_chunks", found.items
        for name in _SLAB_ZEROS:
            yield f"{class_id}:{name}", 0
    yield "active_slabs", len(stats.classes)
    yield "total_malloced", stats.bytes


_SLAB_ZEROS: Final = (
    "free_chunks", "free_chunks_end", "get_hits", "cmd_set", "delete_hits", "incr_hits",
    "decr_hits", "cas_hits", "cas_badval", "touch_hits",
)  # fmt: skip


def sizes(stats: Mapping[int, int] | None) -> Pairs:
    """``stats sizes``: items by size in bytes, rounded up; None while sizes are not tracked."""
    if stats is None:
        return (("sizes_status", "disabled"),)
    return [(str(size), stats[size]) for size in sorted(stats)]
