"""The periodic line of statistics (``--stats-interval``)."""

from collections.abc import Mapping

from memlite.telemetry.snapshot import GeneralStats

__all__ = ["as_text", "figures"]


def figures(before: GeneralStats, now: GeneralStats, interval: float) -> dict[str, int | float]:
    """Return the figures on the line, by name.

    Args:
        before: the statistics at the time of the previous line.
        now: the current statistics.
        interval: the seconds between the two.
    """
    earlier, later = before.counters, now.counters
    operations = _growth(earlier.operations, later.operations)
    return {
        "operations_per_second": round(operations / interval, 1),
        "hits": _growth(earlier.get_hits, later.get_hits),
        "misses": _growth(earlier.get_misses, later.get_misses),
        "evictions": _growth(earlier.evictions, later.evictions),
        "items": now.items,
        "bytes": now.bytes,
        "connections": now.connections,
    }


def _growth(earlier: int, later: int) -> int:
    # Negative if "stats reset" was sent in between.
    return max(0, later - earlier)


def as_text(values: Mapping[str, int | float]) -> str:
    """Return the line, which consists of ``name=value`` pairs."""
    return " ".join(f"{name}={value}" for name, value in values.items())
