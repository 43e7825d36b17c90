"""The groups of the stats command, with memcached's names in memcached's order.

Where memcached counts something memlite has no such thing of (slabs, threads, extstore), the field
is there with 0, so that dashboards and exporters that expect it go on working.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from memlite import __version__
from memlite.config import Config
from memlite.protocol.build import running_build
from memlite.server.tls import MIN_VERSION_NAMES

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.encrypted import TlsTransport
    from memlite.server.server import Server

__all__ = [
    "GROUPS",
    "SCANS",
    "Pairs",
    "Scan",
    "backend",
    "cachedump",
    "connections",
    "general",
    "items",
    "latency",
    "settings",
    "sizes",
    "slabs",
    "udp",
]

Pairs = Iterator[tuple[str, object]]
Scan = Iterator[tuple[str, object] | None]
"""The same, of a group that looks at every item: None where others may have a turn."""

_SIZE_BUCKET = 32
_ITEMS_PER_TURN = 100
_CACHEDUMP_BYTES = 2 * 1024 * 1024


# Fields memcached leaves out when the thread behind them was turned off with -o no_….
_LEFT_OUT = {
    "no_lru_crawler": ("lru_crawler_running", "lru_crawler_starts"),
    "no_lru_maintainer": (
        "lru_maintainer_juggles", "evicted_active", "moves_to_cold", "moves_to_warm",
        "moves_within_lru", "direct_reclaims", "lru_bumps_dropped",
    ),
}  # fmt: skip


def general(server: "Server") -> Pairs:
    """``stats``."""
    left_out: set[str] = set()
    if not server.dumps.enabled:
        left_out.update(_LEFT_OUT["no_lru_crawler"])
    if "no_lru_maintainer" in server.config.extended.given:
        left_out.update(_LEFT_OUT["no_lru_maintainer"])
    return (pair for pair in _general(server) if pair[0] not in left_out)


def _general(server: "Server") -> Pairs:
    counters, clock = server.counters, server.clock
    user, system = _processor_seconds()
    yield "pid", os.getpid()
    yield "uptime", int(clock.now() - clock.started)
    yield "time", int(clock.now())
    yield "version", __version__
    yield "libevent", _loop_label(server.loop)
    yield "pointer_size", 64
    yield "rusage_user", f"{user:.6f}"
    yield "rusage_system", f"{system:.6f}"
    yield "max_connections", server.config.conn_limit
    current = len(server.connections) + len(server.handshakes) + len(server.udp)
    yield "curr_connections", current
    yield "total_connections", counters.total_connections
    yield "rejected_connections", counters.rejected_connections
    yield "connection_structures", current
    yield from _zeros(
        "response_obj_oom",
        "response_obj_count",
        "response_obj_bytes",
        "read_buf_count",
        "read_buf_bytes",
        "read_buf_bytes_free",
        "read_buf_oom",
        "reserved_fds",
    )
    yield "cmd_get", counters.cmd_get
    yield "cmd_set", counters.cmd_set
    yield "cmd_flush", counters.cmd_flush
    yield "cmd_touch", counters.cmd_touch
    yield "cmd_meta", counters.cmd_meta
    for name in (
        "get_hits",
        "get_misses",
        "get_expired",
        "get_flushed",
        "delete_misses",
        "delete_hits",
        "incr_misses",
        "incr_hits",
        "decr_misses",
        "decr_hits",
        "cas_misses",
        "cas_hits",
        "cas_badval",
        "touch_hits",
        "touch_misses",
        "store_too_large",
        "store_no_memory",
    ):
        yield name, getattr(counters, name)
    yield "auth_cmds", counters.auth_cmds
    yield "auth_errors", counters.auth_errors
    if server.config.extended.idle_timeout:
        yield "idle_kicks", counters.idle_kicks
    yield "bytes_read", counters.bytes_read
    yield "bytes_written", counters.bytes_written
    yield "limit_maxbytes", server.table.limit
    yield "accepting_conns", 1
    yield from _zeros("listen_disabled_num", "time_in_listen_disabled_us")
    yield "threads", 1
    yield "conn_yields", counters.conn_yields
    yield from _zeros(
        "hash_power_level",
        "hash_bytes",
        "hash_is_expanding",
        "slab_reassign_rescues",
        "slab_reassign_chunk_rescues",
        "slab_reassign_inline_reclaim",
        "slab_reassign_busy_items",
        "slab_reassign_busy_deletes",
        "slab_reassign_busy_nomem",
    )
    yield "slab_reassign_last_busy_status", "none"
    yield from _zeros("slab_reassign_running", "slabs_moved")
    yield "lru_crawler_running", int(server.dumps.running or server.engine.crawling)
    yield "lru_crawler_starts", counters.lru_crawler_starts
    # No log of a worker's stands between an event and its watchers, to be dropped from.
    yield from _zeros("lru_maintainer_juggles", "malloc_fails", "log_worker_dropped")
    yield "log_worker_written", server.watchers.written
    yield "log_watcher_skipped", server.watchers.skipped
    yield "log_watcher_sent", server.watchers.sent
    yield "log_watchers", len(server.watchers)
    yield from _tls(server)
    yield from _zeros("unexpected_napi_ids", "round_robin_fallback")
    yield "bytes", server.table.used
    yield "curr_items", len(server.table)
    yield "total_items", counters.total_items
    yield "slab_global_page_pool", 0
    yield "expired_unfetched", counters.expired_unfetched
    yield "evicted_unfetched", counters.evicted_unfetched
    yield "evicted_active", 0
    yield "evictions", counters.evictions
    yield "reclaimed", counters.reclaimed
    yield "crawler_reclaimed", counters.crawler_reclaimed
    yield "crawler_items_checked", counters.crawler_items_checked
    yield from _zeros(
        "lrutail_reflocked",
        "moves_to_cold",
        "moves_to_warm",
        "moves_within_lru",
        "direct_reclaims",
        "lru_bumps_dropped",
    )


def _tls(server: "Server") -> Pairs:
    if server.tls is None:
        return
    counters = server.counters
    if "ssl_session_cache" in server.config.extended.given:
        yield "ssl_new_sessions", counters.ssl_new_sessions
    yield "ssl_handshake_errors", counters.ssl_handshake_errors
    yield "ssl_proto_errors", counters.ssl_proto_errors
    yield "time_since_server_cert_refresh", int(server.clock.now() - server.certificates_read)


def settings(server: "Server") -> Pairs:
    """``stats settings``: what the server runs with."""
    config, engine = server.config, server.engine
    yield "maxbytes", server.table.limit
    yield "maxconns", config.conn_limit
    yield "tcpport", next((one.port for one in server.listeners if one.port), 0)
    yield "udpport", next((one.listener.port for one in server.udp), 0)
    yield "inter", ",".join(config.listen) or "NULL"
    yield "verbosity", server.verbosity
    yield "oldest", int(engine.flush_pending)
    yield "evictions", _on(not config.disable_evictions, "on", "off")
    yield "domain_socket", config.unix_socket or "NULL"
    yield "umask", f"{config.unix_mask:o}"
    yield "shutdown_command", _on(config.enable_shutdown)
    yield "growth_factor", f"{config.slab_growth_factor:.2f}"
    yield "chunk_size", config.slab_min_size
    yield "num_threads", config.threads
    # memcached's rule: one where there are several sockets to serve.
    yield "num_threads_per_udp", 1 if len(config.listen) > 1 else config.threads
    yield "stat_key_prefix", config.prefix_delimiter or ":"
    yield "detail_enabled", _on(engine.prefixes is not None)
    yield "reqs_per_event", config.max_reqs_per_event
    yield "cas_enabled", _on(engine.cas_enabled)
    yield "tcp_backlog", config.listen_backlog
    yield "binding_protocol", {"auto": "auto-negotiate"}.get(config.protocol, config.protocol)
    yield "auth_enabled_sasl", _on(config.enable_sasl)
    in_text = config.auth_file if config.protocol != "binary" else None
    yield "auth_enabled_ascii", in_text or "no"
    yield "item_size_max", config.max_item_size
    yield "maxconns_fast", "yes"
    yield "hashpower_init", 0
    yield "slab_reassign", "no"
    yield "slab_automove", 0
    yield "slab_automove_ratio", "0.00"
    yield from _zeros("slab_automove_window", "slab_chunk_max")
    yield "lru_crawler", _on(server.dumps.enabled)
    yield from _zeros("lru_crawler_sleep", "lru_crawler_tocrawl", "tail_repair_time")
    yield "flush_enabled", _on(not config.disable_flush_all)
    yield "dump_enabled", _on(not config.disable_dumping)
    yield "hash_algorithm", "siphash"
    yield "lru_maintainer_thread", "no"
    yield "lru_segmented", "no"
    yield from _zeros("hot_lru_pct", "warm_lru_pct")
    yield "hot_max_factor", "0.00"
    yield "warm_max_factor", "0.00"
    yield "temp_lru", "no"
    yield "temporary_ttl", 0
    yield "idle_timeout", config.extended.idle_timeout
    yield "watcher_logbuf_size", config.extended.watcher_logbuf_size
    yield from _zeros("worker_logbuf_size", "read_buf_mem_limit")
    yield "track_sizes", _on(config.extended.track_sizes)
    yield "inline_ascii_response", "no"
    yield from _tls_settings(config)
    yield "num_napi_ids", 0
    yield "memory_file", "(null)"
    yield "client_flags_size", 4
    yield "eviction_policy", config.eviction
    yield "build", running_build()


def _tls_settings(config: Config) -> Pairs:
    extended = config.extended
    given = extended.given
    yield "ssl_enabled", _on(config.enable_ssl)
    yield "ssl_chain_cert", given.get("ssl_chain_cert", "(null)")
    yield "ssl_key", given.get("ssl_key", "(null)")
    # memcached shows OpenSSL's flags: 1 verify, 2 fail without a certificate, 4 ask once.
    yield "ssl_verify_mode", (0, 1, 3, 7)[extended.ssl_verify_mode]
    yield "ssl_keyformat", 1
    yield "ssl_ciphers", given.get("ssl_ciphers", "NULL")
    yield "ssl_ca_cert", given.get("ssl_ca_cert", "NULL")
    yield "ssl_wbuf_size", int(given.get("ssl_wbuf_size", 16)) * 1024
    yield "ssl_session_cache", _on("ssl_session_cache" in given)
    yield "ssl_kernel_tls", _on("ssl_kernel_tls" in given)
    yield "ssl_min_version", MIN_VERSION_NAMES[extended.ssl_min_version]


def items(server: "Server") -> Scan:
    """``stats items``: by size class."""
    engine = server.engine
    classes = engine.sizes
    number: dict[int, int] = {}
    requested: dict[int, int] = {}
    oldest: dict[int, int] = {}
    for place, (key, item) in enumerate(server.table.survey()):
        if not place % _ITEMS_PER_TURN:
            yield None
        total = classes.total(len(key), item)
        class_id = classes.of_total(total)
        number[class_id] = number.get(class_id, 0) + 1
        requested[class_id] = requested.get(class_id, 0) + total
        oldest[class_id] = min(oldest.get(class_id, item.accessed), item.accessed)
    now = int(server.clock.now())
    # A class whose items are all gone is still shown while it has something to tell.
    for class_id, gone in enumerate(classes.gone):
        if not (gone or class_id in number):
            continue
        values = {
            "number": number.get(class_id, 0),
            "number_cold": number.get(class_id, 0),
            "age": now - oldest.get(class_id, now),
            "mem_requested": requested.get(class_id, 0),
            "evicted": gone.evicted,
            "evicted_nonzero": gone.evicted_nonzero,
            "evicted_time": gone.evicted_time,
            "reclaimed": gone.reclaimed,
            "evicted_unfetched": gone.evicted_unfetched,
            "crawler_reclaimed": gone.crawler_reclaimed,
        }
        for name in _ITEMS_FIELDS:
            yield f"items:{class_id}:{name}", values.get(name, 0)


_ITEMS_FIELDS = (
    "number", "number_hot", "number_warm", "number_cold", "age_hot", "age_warm", "age",
    "mem_requested", "evicted", "evicted_nonzero", "evicted_time", "outofmemory", "tailrepairs",
    "reclaimed", "expired_unfetched", "evicted_unfetched", "evicted_active", "crawler_reclaimed",
    "crawler_items_checked", "lrutail_reflocked", "moves_to_cold", "moves_to_warm",
    "moves_within_lru", "direct_reclaims", "hits_to_hot", "hits_to_warm", "hits_to_cold",
    "hits_to_temp",
)  # fmt: skip


def slabs(server: "Server") -> Scan:
    """``stats slabs``: the same classes as if they were slabs, filled to the last chunk."""
    engine = server.engine
    classes = engine.sizes
    used: dict[int, int] = {}
    for place, (key, item) in enumerate(server.table.survey()):
        if not place % _ITEMS_PER_TURN:
            yield None
        class_id = classes.of_item(len(key), item)
        used[class_id] = used.get(class_id, 0) + 1
    for class_id in sorted(used):
        chunk = classes.chunk_sizes[class_id - 1]
        per_page = classes.page_size // chunk
        yield f"{class_id}:chunk_size", chunk
        yield f"{class_id}:chunks_per_page", per_page
        yield f"{class_id}:total_pages", -(-used[class_id] // per_page)
        yield f"{class_id}:total_chunks", used[class_id]
        yield f"{class_id}:used_chunks", used[class_id]
        for name in (
            "free_chunks", "free_chunks_end", "get_hits", "cmd_set", "delete_hits", "incr_hits",
            "decr_hits", "cas_hits", "cas_badval", "touch_hits",
        ):  # fmt: skip
            yield f"{class_id}:{name}", 0
    yield "active_slabs", len(used)
    yield "total_malloced", server.table.used


def sizes(server: "Server") -> Scan:
    """``stats sizes``: how many items there are of each size, to 32 bytes."""
    if not server.config.extended.track_sizes:
        yield "sizes_status", "disabled"
        return
    engine = server.engine
    histogram: dict[int, int] = {}
    for place, (key, item) in enumerate(server.table.survey()):
        if not place % _ITEMS_PER_TURN:
            yield None
        bucket = -(-engine.sizes.total(len(key), item) // _SIZE_BUCKET) * _SIZE_BUCKET
        histogram[bucket] = histogram.get(bucket, 0) + 1
    for bucket in sorted(histogram):
        yield str(bucket), histogram[bucket]


def connections(server: "Server", asking: "Connection") -> Pairs:
    """``stats conns``: listeners and connections by file descriptor."""
    for listener in server.listeners:
        number = listener.sock.fileno()
        yield f"{number}:addr", listener.label
        yield f"{number}:state", "conn_listening"
        yield f"{number}:secs_since_last_cmd", int(server.clock.now() - server.clock.started)
    for service in server.udp:
        number = service.number
        yield f"{number}:UDP", "UDP"
        yield f"{number}:addr", service.listener.label
        yield f"{number}:state", "conn_read"
        yield f"{number}:secs_since_last_cmd", int(server.clock.now()) - service.last_command
    peers: list[Connection | TlsTransport] = [*server.connections, *server.handshakes]
    for peer in sorted(peers, key=lambda one: one.number):
        number = peer.number
        yield f"{number}:addr", peer.peer
        yield f"{number}:listen_addr", peer.listener
        yield f"{number}:state", "conn_parse_cmd" if peer is asking else peer.state
        yield f"{number}:secs_since_last_cmd", int(server.clock.now()) - peer.last_command


def latency(server: "Server") -> Pairs:
    """``stats latency``, memlite's own: from a command parsed to its reply ready, sampled."""
    yield "sample_interval", server.sampler.interval
    for name, histogram in server.sampler.histograms.items():
        p50, p90, p99, p999 = histogram.percentiles(50, 90, 99, 99.9)
        mean = histogram.total / histogram.count if histogram.count else 0
        yield f"{name}:samples", histogram.count
        for label, nanoseconds in (
            ("mean", mean), ("p50", p50), ("p90", p90), ("p99", p99), ("p999", p999),
            ("max", histogram.maximum),
        ):  # fmt: skip
            yield f"{name}:{label}_us", f"{nanoseconds / 1000:.1f}"


def cachedump(server: "Server", class_id: int, limit: int) -> Iterator[bytes | None]:
    r"""Yield ``ITEM <key> [<bytes> b; <unix time> s]\r\n`` lines, newest last used first.

    And None now and then, where others may have a turn.

    Args:
        server: whose items.
        class_id: the size class asked for.
        limit: at most so many; 0 for as many as fit into 2 MB, which bounds the reply anyway.
    """
    engine = server.engine
    now = server.clock.now()
    count = size = 0
    for place, (key, item) in enumerate(server.table.survey(newest_first=True)):
        if not place % _ITEMS_PER_TURN:
            yield None
        if engine.sizes.of_item(len(key), item) != class_id or (
            item.expires and item.expires <= now
        ):
            continue
        if item.marks is not None and item.marks.binary:
            continue  # a line's end may be in its key
        line = b"ITEM %b [%d b; %d s]\r\n" % (key, item.size, int(item.expires))
        size += len(line)
        if size > _CACHEDUMP_BYTES or (limit and count == limit):
            return
        count += 1
        yield line


def backend(server: "Server") -> Pairs:
    """``stats backend``, memlite's own: which store, and what it says of itself."""
    # Without its options, which may hold what is nobody's business.
    yield "url", server.config.backend.partition("?")[0]
    if server.backend is None:
        yield "items", len(server.table)
        yield "bytes", server.table.used
        yield "overhead_bytes", server.table.overhead
        yield "withheld_bytes", server.footprint.withheld if server.footprint else 0
    else:
        yield "storage_errors", server.counters.storage_errors
        yield from server.backend.stats().items()


def udp(server: "Server") -> Pairs:
    """``stats udp``, memlite's own: what came as datagrams and was not answered."""
    yield "requests_under_way", sum(service.under_way for service in server.udp)
    yield "refused", server.counters.udp_refused
    yield "dropped", server.counters.udp_dropped


GROUPS: dict[bytes, Callable[["Server"], Pairs]] = {
    b"settings": settings,
    b"backend": backend,
    b"latency": latency,
    b"udp": udp,
}

SCANS: dict[bytes, Callable[["Server"], Scan]] = {b"items": items, b"slabs": slabs, b"sizes": sizes}


def _zeros(*names: str) -> Pairs:
    for name in names:
        yield name, 0


def _on(value: bool, yes: str = "yes", no: str = "no") -> str:
    return yes if value else no


def _processor_seconds() -> tuple[float, float]:
    times = os.times()
    return times.user, times.system


def _loop_label(loop: asyncio.AbstractEventLoop) -> str:
    """Return the event loop's package and version, for the field that names libevent's."""
    module = type(loop).__module__.partition(".")[0]
    if module == "uvloop":
        import uvloop

        return f"uvloop-{uvloop.__version__}"  # type: ignore[attr-defined]
    return "asyncio"
