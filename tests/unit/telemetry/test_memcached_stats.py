"""memcached's ``stats`` groups, rendered from snapshots."""

import pytest

from memlite.telemetry import memcached_stats
from memlite.telemetry.snapshot import (
    BackendStats,
    ItemClassStats,
    LatencyStats,
    LatencySummary,
    MemoryStats,
    SlabClassStats,
    SlabStats,
    SocketStats,
    TlsStats,
)
from tests.unit.telemetry.samples import general_stats

CRAWLER = {"lru_crawler_running", "lru_crawler_starts"}
MAINTAINER = {
    "lru_maintainer_juggles", "evicted_active", "moves_to_cold", "moves_to_warm",
    "moves_within_lru", "direct_reclaims", "lru_bumps_dropped",
}  # fmt: skip
TLS = {"ssl_handshake_errors", "ssl_proto_errors", "time_since_server_cert_refresh"}


def general(**changes):
    return dict(memcached_stats.general(general_stats(**changes)))


def test_general_figures_are_in_memcacheds_units():
    shown = general(get_hits=5, cmd_get=8)
    assert (shown["uptime"], shown["time"]) == (10, 1_800_000_010)
    assert (shown["rusage_user"], shown["rusage_system"]) == ("0.250000", "1.500000")
    # With connections in their handshake and the UDP socket.
    assert shown["curr_connections"] == shown["connection_structures"] == 6
    assert (shown["get_hits"], shown["cmd_get"]) == (5, 8)
    assert (shown["bytes"], shown["curr_items"], shown["limit_maxbytes"]) == (500, 5, 1000)
    assert (shown["log_watchers"], shown["log_worker_written"]) == (1, 2)
    assert (shown["log_watcher_sent"], shown["log_watcher_skipped"]) == (3, 4)


@pytest.mark.parametrize(
    ("changes", "missing", "added"),
    [
        ({"crawler_enabled": False}, CRAWLER, set()),
        ({"lru_maintainer": False}, MAINTAINER, set()),
        ({"crawler_enabled": False, "lru_maintainer": False}, CRAWLER | MAINTAINER, set()),
        ({"idle_timeout": 5}, set(), {"idle_kicks"}),
        ({"tls": TlsStats(1.5, session_cache=False)}, set(), TLS),
        ({"tls": TlsStats(1.5, session_cache=True)}, set(), TLS | {"ssl_new_sessions"}),
    ],
)
def test_fields_that_depend_on_settings(changes, missing, added):
    usual, shown = general(), general(**changes)
    assert set(usual) - set(shown) == missing
    assert set(shown) - set(usual) == added


def test_sockets_are_described_as_by_memcached():
    shown = memcached_stats.sockets(
        [
            SocketStats(3, "tcp:127.0.0.1:11211", "listening", 9),
            SocketStats(4, "udp:127.0.0.1:11211", "datagrams", 8),
            SocketStats(5, "tcp:127.0.0.1:50000", "reading_value", 7, "tcp:127.0.0.1:11211"),
        ]
    )
    assert list(shown) == [
        ("3:addr", "tcp:127.0.0.1:11211"),
        ("3:state", "conn_listening"),
        ("3:secs_since_last_cmd", 9),
        ("4:UDP", "UDP"),
        ("4:addr", "udp:127.0.0.1:11211"),
        ("4:state", "conn_read"),
        ("4:secs_since_last_cmd", 8),
        ("5:addr", "tcp:127.0.0.1:50000"),
        ("5:listen_addr", "tcp:127.0.0.1:11211"),
        ("5:state", "conn_nread"),
        ("5:secs_since_last_cmd", 7),
    ]


def test_latencies_are_in_microseconds():
    some = LatencySummary(
        samples=2, total=5000, p50=2000, p90=3000, p99=3000, p999=3000, maximum=3049
    )
    none = LatencySummary(samples=0, total=0, p50=0, p90=0, p99=0, p999=0, maximum=0)
    shown = dict(memcached_stats.latency(LatencyStats(64, {"get": some, "store": none})))
    assert shown["sample_interval"] == 64
    assert (shown["get:samples"], shown["get:mean_us"], shown["get:max_us"]) == (2, "2.5", "3.0")
    assert (shown["store:samples"], shown["store:mean_us"]) == (0, "0.0")


def test_statistics_of_the_store():
    memory = MemoryStats("memory://", items=1, bytes=2, overhead=3, withheld=4)
    assert dict(memcached_stats.storage(memory)) == {
        "url": "memory://", "items": 1, "bytes": 2, "overhead_bytes": 3, "withheld_bytes": 4,
    }  # fmt: skip
    backend = BackendStats("file:///x", errors=5, figures={"items": 6})
    assert list(memcached_stats.storage(backend)) == [
        ("url", "file:///x"), ("storage_errors", 5), ("items", 6),
    ]  # fmt: skip


def test_items_by_size_class():
    found = ItemClassStats(
        class_id=31, items=2, bytes=300, age=7, evicted=4, evicted_nonzero=3, evicted_time=9,
        evicted_unfetched=1, reclaimed=5, crawler_reclaimed=6,
    )  # fmt: skip
    shown = dict(memcached_stats.items([found]))
    assert {name: value for name, value in shown.items() if value} == {
        "items:31:number": 2, "items:31:number_cold": 2, "items:31:age": 7,
        "items:31:mem_requested": 300, "items:31:evicted": 4, "items:31:evicted_nonzero": 3,
        "items:31:evicted_time": 9, "items:31:reclaimed": 5, "items:31:evicted_unfetched": 1,
        "items:31:crawler_reclaimed": 6,
    }  # fmt: skip


def test_slabs_are_filled_page_by_page():
    shown = dict(memcached_stats.slabs(SlabStats((SlabClassStats(1, 11, 96, 10),), bytes=500)))
    assert (shown["1:total_pages"], shown["1:used_chunks"]) == (2, 11)
    assert (shown["active_slabs"], shown["total_malloced"]) == (1, 500)


def test_sizes():
    assert list(memcached_stats.sizes({64: 2, 32: 1})) == [("32", 1), ("64", 2)]
    assert list(memcached_stats.sizes({})) == []
    assert list(memcached_stats.sizes(None)) == [("sizes_status", "disabled")]
