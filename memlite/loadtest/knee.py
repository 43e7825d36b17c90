"""The search for a target's knee: the load at which its throughput stops growing."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from memlite.loadtest.levels import Level
from memlite.loadtest.limits import TooManyClientsError
from memlite.loadtest.results import Knee, Latency, Point

__all__ = ["KneeSearch", "find_knee"]

# Throughput is saturated when doubling the load raises it by less than this factor.
_MIN_GROWTH = 1.05
# For smaller steps, the factor is the growth in load raised to this power (2 ** 0.07 ≈ 1.05).
_MIN_GROWTH_EXPONENT = 0.07


@dataclass(frozen=True, slots=True)
class KneeSearch:
    """The bounds of the search for a target's knee, the load at which it saturates.

    Attributes:
        max_load: the highest load to try: clients, or operations per second for an open loop.
        slo: the highest acceptable 99th percentile of response times, in µs; 0 for no limit.
    """

    max_load: float
    slo: float = 0.0


def find_knee(level: Level, search: KneeSearch, measure: Callable[[Level], Point]) -> Knee:
    """Double the load until throughput stops growing, then bisect the last interval.

    Args:
        level: the load level to start at.
        search: the bounds of the search.
        measure: measures the target at a load level.
    """
    best = measure(level)
    too_slow = search.slo and _p99(best) > search.slo
    reason = "start" if too_slow else "limit"
    low = high = _load(level)
    while reason == "limit" and high < search.max_load:
        high = min(2 * high, search.max_load)
        try:
            found = measure(_with_load(level, high))
        except TooManyClientsError:
            reason = "connections"
            break
        reason = _stop_reason(best, found, search) or "limit"
        if reason == "limit":
            best, low = found, high
    if reason in ("throughput", "slo"):
        for _ in range(2):
            middle = _middle(level, low, high)
            if middle in (low, high):
                break
            found = measure(_with_load(level, middle))
            if _stop_reason(best, found, search, (middle / low) ** _MIN_GROWTH_EXPONENT):
                high = middle
            else:
                best, low = found, middle
    return Knee(
        best.target,
        best.clients,
        best.rate,
        best.throughput.mean,
        _p99(best),
        reason,
    )


def _load(level: Level) -> float:
    return level.rate or level.clients


def _with_load(level: Level, load: float) -> Level:
    return replace(level, rate=load) if level.rate else replace(level, clients=round(load))


def _middle(level: Level, low: float, high: float) -> float:
    middle = (low * high) ** 0.5
    return float(middle if level.rate else round(middle))


def _stop_reason(
    before: Point, after: Point, search: KneeSearch, min_growth: float = _MIN_GROWTH
) -> str:
    """Return why the search stops at the load of `after`; empty to continue."""
    if search.slo and _p99(after) > search.slo:
        return "slo"
    reached = after.throughput.mean
    return "" if reached and reached >= before.throughput.mean * min_growth else "throughput"


def _p99(point: Point) -> float:
    """Return the 99th percentile of response times; 0 if all operations failed."""
    return point.response.get("all", Latency()).p99
