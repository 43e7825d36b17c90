"""Snapshots for the tests of renderers."""

import dataclasses

from memlite.telemetry.counters import Counters
from memlite.telemetry.snapshot import CounterValues, GeneralStats, WatchStats

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
