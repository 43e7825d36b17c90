"""The activity of a server or a proxy between two snapshots, for a page that plots it over time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from memlite.telemetry.proxy import ProxySnapshot, ProxyStats
from memlite.telemetry.snapshot import BackendStats, Durations, Snapshot

__all__ = ["FIGURES", "WAITING", "Point", "point"]


@dataclass(frozen=True, slots=True)
class Point:
    """The activity of a server in an interval, and its state at the end.

    Attributes:
        figures: the values of `FIGURES`, in their order; None for a missing value.
        durations: for each class of commands, a histogram of the measured durations: pairs of a
            class of `Durations` and a count. Class 0 is below the first of `DURATION_LIMITS`,
            class 1 below the second, and so on. Empty classes are absent. `WAITING` is the time
            in a proxy's queue.
    """

    figures: tuple[float | None, ...]
    durations: Mapping[str, tuple[tuple[int, int], ...]]


FIGURES: Final = (
    "time",
    "hits_per_second",
    "misses_per_second",
    "stores_per_second",
    "others_per_second",
    "hit_ratio",
    "received_bytes_per_second",
    "sent_bytes_per_second",
    "evictions_per_second",
    "evicted_idle_seconds",
    "items",
    "items_bytes",
    "items_limit_bytes",
    "open_connections",
    "failures_per_second",
    "ready",
    "waiting_requests",
    "pending_requests",
    "nodes_up",
    "moving_requests_per_second",
)
"""The names of a point's figures: rates over its interval, and values at its end.

``time`` is the unix time of the end in seconds. ``hit_ratio`` is a share from 0 to 1, None without
reads; ``evicted_idle_seconds`` is None without evictions, else the idle time of the most recently
used of the evicted items. ``failures_per_second`` counts commands that failed in the store, or
because of a node. ``ready`` is 1 or 0. A proxy has no items. Only a proxy has the figures after
``ready``: requests that wait in the queue, None without one; requests that nodes have yet to
answer; how many nodes are up; requests for keys that are moving.
"""

WAITING: Final = "waiting"
"""A pseudo-class of commands in `Point.durations`: how long requests waited in the queue."""


class _Work(NamedTuple):
    """Numbers of commands since the start."""

    hits: int
    misses: int
    stores: int
    others: int
    failures: int
    moving: int


def point(before: Snapshot, now: Snapshot) -> Point:
    """Return the activity between two snapshots.

    Args:
        before: the earlier one.
        now: the later one.
    """
    earlier, later = before.general.counters, now.general.counters
    did, does = _work(before), _work(now)
    seconds = max(now.general.time - before.general.time, 1e-3)

    def rate(old: int, new: int) -> float:
        # Negative if "stats reset" was sent in between.
        return round(max(0, new - old) / seconds, 2)

    hits = max(0, does.hits - did.hits)
    reads = hits + max(0, does.misses - did.misses)
    proxy = now.proxy if isinstance(now, ProxySnapshot) else None
    general = now.general
    return Point(
        (
            round(general.time, 1),
            rate(did.hits, does.hits),
            rate(did.misses, does.misses),
            rate(did.stores, does.stores),
            rate(did.others, does.others),
            round(hits / reads, 4) if reads else None,
            rate(earlier.bytes_read, later.bytes_read),
            rate(earlier.bytes_written, later.bytes_written),
            rate(earlier.evictions, later.evictions) if proxy is None else None,
            _evicted_idle(before, now),
            general.items if proxy is None else None,
            general.bytes if proxy is None else None,
            general.bytes_limit if proxy is None else None,
            general.connections,
            rate(did.failures, does.failures),
            int(not now.troubles),
            *_of_proxy(proxy),
            None if proxy is None else rate(did.moving, does.moving),
        ),
        {
            name: counted
            for name, old, new in _durations(before, now)
            if (counted := _counted(old, new))
        },
    )


def _of_proxy(proxy: ProxyStats | None) -> tuple[float | None, ...]:
    if proxy is None:
        return None, None, None
    nodes = proxy.nodes
    return (
        None if proxy.queue is None else proxy.queue.length,
        sum(node.pending for node in nodes),
        sum(node.up for node in nodes if node.role == "node"),
    )


def _durations(
    before: Snapshot, now: Snapshot
) -> Iterator[tuple[str, Durations | None, Durations]]:
    """Yield each class of commands with its durations before and now."""
    for name, durations in now.commands.items():
        yield name, before.commands.get(name), durations
    if isinstance(now, ProxySnapshot) and now.proxy.queue is not None:
        queue = before.proxy.queue if isinstance(before, ProxySnapshot) else None
        yield WAITING, None if queue is None else queue.waiting, now.proxy.queue.waiting


def _work(snapshot: Snapshot) -> _Work:
    if isinstance(snapshot, ProxySnapshot):
        counts = snapshot.proxy.commands
        hits, misses = counts.get(("get", "hit"), 0), counts.get(("get", "miss"), 0)
        failures = sum(count for (_, result), count in counts.items() if result == "error")
        stores = sum(count for (name, _), count in counts.items() if name == "store")
        others = sum(count for (name, _), count in counts.items() if name not in ("get", "store"))
        moving = snapshot.proxy.moving_requests
        return _Work(hits, misses, stores, others, failures, moving)
    counters = snapshot.general.counters
    return _Work(
        counters.get_hits,
        counters.get_misses,
        counters.cmd_set,
        counters.operations - counters.cmd_get - counters.cmd_set,
        _failures(snapshot),
        0,
    )


def _evicted_idle(before: Snapshot, now: Snapshot) -> int | None:
    earlier = {one.class_id: one.evicted for one in before.evicted}
    found = [one.idle for one in now.evicted if one.evicted > earlier.get(one.class_id, 0)]
    return min(found, default=None)


def _failures(snapshot: Snapshot) -> int:
    storage = snapshot.storage
    return storage.errors if isinstance(storage, BackendStats) else 0


def _counted(before: Durations | None, now: Durations) -> tuple[tuple[int, int], ...]:
    """Return how many durations of each class were added."""
    new = (*now.below, now.samples)
    old = (0,) * len(new) if before is None else (*before.below, before.samples)
    if new[-1] < old[-1]:  # "stats reset" was sent in between
        old = (0,) * len(new)
    grown = [later - earlier for later, earlier in zip(new, old, strict=True)]
    singly = zip(range(len(grown)), grown, [0, *grown[:-1]], strict=True)
    return tuple((index, total - lower) for index, total, lower in singly if total > lower)
