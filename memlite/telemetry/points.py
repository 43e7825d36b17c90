"""What a server did between two snapshots: the figures that a page shows over time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from memlite.telemetry.snapshot import BackendStats, Durations, Snapshot

__all__ = ["FIGURES", "Point", "point"]


@dataclass(frozen=True, slots=True)
class Point:
    """What a server did in a while, and its state at the end.

    Attributes:
        figures: the values of `FIGURES`, in their order; None where there is none.
        durations: for each class of commands, how many of those measured took so long: pairs of a
            class of `Durations` and a number, where 0 stands for below the first of
            `DURATION_LIMITS`, 1 for below the second, and so on. Classes without any are absent.
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
    "store_failures_per_second",
    "ready",
)
"""The names of a point's figures: rates over its time, and values at its end.

``time`` is the unix time of the end in seconds. ``hit_ratio`` is a share from 0 to 1, None without
reads; ``evicted_idle_seconds`` is None without evictions, else for how long the evicted item that
was used last had not been used. ``ready`` is 1 or 0.
"""


def point(before: Snapshot, now: Snapshot) -> Point:
    """Return what happened between two snapshots.

    Args:
        before: the earlier one.
        now: the later one.
    """
    earlier, later = before.general.counters, now.general.counters
    seconds = max(now.general.time - before.general.time, 1e-3)

    def rate(old: int, new: int) -> float:
        # Negative if "stats reset" was sent in between.
        return round(max(0, new - old) / seconds, 2)

    hits = max(0, later.get_hits - earlier.get_hits)
    reads = hits + max(0, later.get_misses - earlier.get_misses)
    reading = later.operations - later.cmd_get - later.cmd_set
    read_before = earlier.operations - earlier.cmd_get - earlier.cmd_set
    return Point(
        (
            round(now.general.time, 1),
            round(hits / seconds, 2),
            rate(earlier.get_misses, later.get_misses),
            rate(earlier.cmd_set, later.cmd_set),
            rate(read_before, reading),
            round(hits / reads, 4) if reads else None,
            rate(earlier.bytes_read, later.bytes_read),
            rate(earlier.bytes_written, later.bytes_written),
            rate(earlier.evictions, later.evictions),
            _evicted_idle(before, now),
            now.general.items,
            now.general.bytes,
            now.general.bytes_limit,
            now.general.connections,
            rate(_failures(before), _failures(now)),
            int(not now.troubles),
        ),
        {
            name: counted
            for name, durations in now.commands.items()
            if (counted := _counted(before.commands.get(name), durations))
        },
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
