"""Snapshots for the tests of renderers."""

import dataclasses

from memlite.telemetry.counters import COMMAND_CLASSES, Counters, LatencyHistogram
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
    )
