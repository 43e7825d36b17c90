"""Snapshots for the tests of renderers."""

import dataclasses

from memlite.telemetry.counters import COMMAND_CLASSES, Counters, LatencyHistogram
from memlite.telemetry.proxy import (
    MoveStats,
    NodeStats,
    ProxySnapshot,
    ProxyStats,
    QueueStats,
)
from memlite.telemetry.snapshot import (
    FSYNC,
    BackendStats,
    CounterValues,
    Durations,
    EvictedStats,
    GeneralStats,
    MemoryStats,
    Snapshot,
    TlsStats,
    UdpStats,
    WatchStats,
)

_GENERAL = GeneralStats(
    time=1_800_000_010.9,
    uptime=10.9,
    pid=7,
    event_loop="asyncio",
    user_seconds=0.25,
    system_seconds=1.5,
    connections=3,
    handshakes=2,
    udp_sockets=1,
    connection_limit=1024,
    idle_timeout=0,
    input_held=0,
    counters=CounterValues.read(Counters()),
    items=5,
    bytes=500,
    bytes_limit=1000,
    crawler_enabled=True,
    crawler_running=False,
    lru_maintainer=True,
    watch=WatchStats(watchers=1, written=2, sent=3, skipped=4),
    tls=None,
)


def general_stats(**changes):
    """Return general statistics; counters can be given by name."""
    counted = {name: changes.pop(name) for name in CounterValues._fields if name in changes}
    counters = _GENERAL.counters._replace(**counted)
    return dataclasses.replace(_GENERAL, counters=counters, **changes)


def snapshot(**changes):
    """Return all figures of a server in memory; counters can be given by name."""
    general = general_stats(
        **{name: changes.pop(name) for name in list(changes) if name not in Snapshot.__slots__}
    )
    usual = Snapshot(
        build="pure",
        general=general,
        storage=MemoryStats("memory://", 5, 500, 50, 0),
        udp=UdpStats(0, 0, 0),
        sample_interval=256,
        commands={name: Durations.read(LatencyHistogram()) for name in COMMAND_CLASSES},
        operations={},
        evicted=(),
        troubles=(),
    )
    return dataclasses.replace(usual, **changes)


def full_snapshot():
    """Return figures in which every metric has a value."""
    histogram = LatencyHistogram()
    for nanoseconds in (500, 1023, 1024, 80_000, 2**40):
        histogram.record(nanoseconds)
    durations = Durations.read(histogram)
    figures = {
        "state": "available", "times_unavailable": 2, "in_flight": 3, "near_items": 4,
        "near_bytes": 5, "near_limit": 6, "near_hits": 7, "near_misses": 8, "write_back_items": 9,
        "write_back_bytes": 10, "write_back_limit": 11, "write_back_coalesced": 12,
        "write_back_failures": 13, "class_a_operations": 14, "class_b_operations": 15,
        "deletions": 16, "commands": 17, "retries": 18, "failures": 19, "throttled": 20,
        "refusals": 21, "lost_acknowledgements": 22, "journal_bytes": 23, "snapshot_bytes": 24,
        "compactions": 25,
    }  # fmt: skip
    return snapshot(
        tls=TlsStats(1.5, session_cache=False),
        storage=BackendStats("file:///x.json", 1, figures),
        commands=dict.fromkeys(COMMAND_CLASSES, durations),
        operations={FSYNC: durations, ("get", "ok"): durations, ("get", "failed"): durations},
        evicted=(EvictedStats(3, 10, 60),),
        troubles=("the store is unavailable",),
        slow_commands=6,
    )


def durations(*nanoseconds):
    """Return durations that were measured."""
    histogram = LatencyHistogram()
    for one in nanoseconds:
        histogram.record(one)
    return Durations.read(histogram)


_NODE = NodeStats(
    name="a", address="127.0.0.1:1", role="node", up=1, count=1, state="up", error="", requests=1,
    failed=2, refused=3, timeouts=4, connects=5, emptied=6, pending=7, share=0.75, next_share=None,
    service=durations(1000),
)  # fmt: skip
_PROXY = ProxyStats(
    commands={("get", "hit"): 0}, nodes=(_NODE,), version=1, epoch=None, hash="ketama", replicas=1,
    multigets=0, failed_requests=0, failed_shards=0, replica_reads=0, gutter_requests=None,
    hot_keys=0, moving_requests=0, move=None, queue=None, unread_bytes=0, unread_disconnects=0,
)  # fmt: skip


def node_stats(**changes):
    """Return the figures of a node that is up."""
    return dataclasses.replace(_NODE, **changes)


def proxy_snapshot(*, time=1.0, troubles=(), **changes):
    """Return all figures of a proxy with one node, which has no queue."""
    base = snapshot(time=time, storage=None, troubles=troubles)
    figures = {one.name: getattr(base, one.name) for one in dataclasses.fields(base)}
    return ProxySnapshot(**figures, proxy=dataclasses.replace(_PROXY, **changes))


def full_proxy_snapshot():
    """Return figures in which every metric of a proxy has a value."""
    queue = QueueStats(8, 2, 3, 4, 5, 6, 7, durations(2000), durations(3000), durations(4000))
    gutter = node_stats(name="g", role="gutter", share=0.0)
    return proxy_snapshot(
        epoch=5, gutter_requests=1, move=MoveStats("move", 10, 30), queue=queue,
        nodes=(node_stats(next_share=0.5), gutter),
    )  # fmt: skip
