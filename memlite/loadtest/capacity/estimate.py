"""How many servers and proxies a load needs: a range, from measured figures and a model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.lab.capacity import sustainable_rate
from memlite.loadtest.capacity.balance import Balance
from memlite.loadtest.capacity.measured import TAIL, Measured, Part, measured
from memlite.loadtest.capacity.request import Request, UnknowableError
from memlite.loadtest.results import Interval, Point, Results, TargetInfo
from memlite.loadtest.units import duration, grouped, percent
from memlite.loadtest.workload import Keys

__all__ = ["FARTHEST", "Estimate", "Range", "estimate"]

FARTHEST: Final = 10
"""A plan extrapolates to at most this many times the servers, or proxies, that were measured."""
# A server that was not busy is assumed to handle at most this many times its measured load.
_MAX_MORE: Final = 2.0
# Without a model, this share of a closed loop's throughput counts as certain.
_WITHOUT_MODEL: Final = 0.7
_TOO_NOISY: Final = (
    "throughput varied too much between repetitions for an estimate; measure on a quiet machine, "
    "with more repetitions"
)


@dataclass(frozen=True, slots=True)
class Range:
    """The likely range of a value.

    Attributes:
        low: the lower end.
        high: the upper end.
    """

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The number of servers of one kind that a load needs.

    Attributes:
        measured: the measurement it is based on.
        servers: the number of servers, or nodes.
        proxies: the number of proxies; 0 if there was none.
        each: operations per second that one server can handle.
        utilisation: that of a server's threads at the given rate, with the most and the fewest
            servers; None if processor times are unknown.
        bottleneck: what limits throughput.
        extrapolation: the number of servers, or proxies, as a multiple of the number measured.
    """

    measured: Measured
    servers: Range
    proxies: Range
    each: Range
    utilisation: Range | None
    bottleneck: str
    extrapolation: float


def estimate(results: Results, target: TargetInfo, request: Request) -> Estimate:
    """Estimate how many servers a load needs.

    Args:
        results: the measurements.
        target: the kind of server.
        request: the load.

    Raises:
        UnknowableError: the measurements do not allow an estimate.
    """
    known = measured(results, target, request)
    servers = next((part for part in known.parts if part.name != "proxy"), None)
    proxy = next((part for part in known.parts if part.name == "proxy"), None)
    each = _each(known, servers, request)
    count = _spread(each, request.rate, Balance(_keys(results)), known.servers)
    proxies = Range(0, 0)
    if proxy is not None:
        each_proxy = _each(known, proxy, request)
        proxies = Range(
            math.ceil(request.rate / each_proxy.high), math.ceil(request.rate / each_proxy.low)
        )
    measured_proxies = proxy.count if proxy else 1
    farthest = max(count.high / known.servers, proxies.high / measured_proxies)
    if farthest > FARTHEST:
        also = f" and {proxies.high:,.0f} proxies" if proxy else ""
        raise UnknowableError(
            f"it would take up to {count.high:,.0f} servers{also}, {farthest:,.0f} times as many "
            "as were measured, which is too far to extrapolate; measure larger clusters "
            "(--cluster), or plan for a lower rate"
        )
    utilisation = None
    if servers is not None:
        busy = request.rate * servers.demand.mean / 1e6 / servers.workers
        utilisation = Range(busy / count.high, busy / count.low)
    return Estimate(
        known, count, proxies, each, utilisation, _bottleneck(known), max(1.0, farthest)
    )


def _keys(results: Results) -> Keys:
    table = results.workload.get("keys", {})
    return Keys(**{name: table[name] for name in Keys.__slots__ if name in table})


def _each(known: Measured, part: Part | None, request: Request) -> Range:
    """Return how many operations per second one of these processes can handle.

    Raises:
        UnknowableError: the measurements do not allow an estimate.
    """
    count = known.servers if part is None else part.count
    peak = _peak(known.points, count)
    open_loop = _fast_enough([one for one in known.points if one.rate], request.p99, count)
    if part is None or not known.fits:
        return _seen(known, part, request, count)
    slow, fast = _by_model(known, part, request)
    most = part.workers / max(_low(part.demand), part.demand.mean / 2) * 1e6
    if part.limits:
        high = min(fast, peak.high, most)
    elif known.shared:
        high = min(fast, most)
    else:
        high = min(fast, _MAX_MORE * peak.high, most)
    low = min(slow, peak.low, high)
    if open_loop is not None:  # measured in open loop: no model needed
        low, high = max(low, open_loop.low), max(high, open_loop.high)
    return Range(low, high)


def _by_model(known: Measured, part: Part, request: Request) -> tuple[float, float]:
    """Return the rate up to which an M/M/m queue is fast enough, at the highest and lowest demand.

    Raises:
        UnknowableError: it is too slow even without queueing.
    """
    unloaded = known.fixed + len(known.parts) * TAIL * _high(part.demand)
    if request.p99 <= unloaded:
        raise UnknowableError(
            f"99 of 100 responses take up to {duration(unloaded)} even without a queue; more "
            "servers do not make responses faster"
        )
    # Each part may take its share of the remaining time.
    limit = known.fixed + (request.p99 - known.fixed) / len(known.parts)
    slow, fast = (
        1e6 * sustainable_rate(demand, part.workers, limit, fixed=known.fixed)
        for demand in (_high(part.demand), max(_low(part.demand), part.demand.mean / 2))
    )
    return slow, fast


def _peak(points: Sequence[Point], count: int) -> Range:
    """Return the highest measured throughput.

    Raises:
        UnknowableError: its interval is so wide that it includes zero.
    """
    low = max(_low(one.throughput) for one in points)
    if not low:
        raise UnknowableError(_TOO_NOISY)
    return Range(low / count, max(_high(one.throughput) for one in points) / count)


def _fast_enough(points: Sequence[Point], p99: float, count: int) -> Range | None:
    """Return the highest measured throughput with fast enough responses."""
    surely = [_low(one.throughput) for one in points if _high(one.p99) <= p99]
    maybe = [one for one in points if _low(one.p99) <= p99]
    if not maybe:
        return None
    lowest = max(surely) if surely else min(_low(one.throughput) for one in maybe)
    return Range(lowest / count, max(_high(one.throughput) for one in maybe) / count)


def _seen(known: Measured, part: Part | None, request: Request, count: int) -> Range:
    """Return the measured throughput, without a model.

    Clients that wait for their replies queue less than requests that arrive at random, so a server
    cannot be as busy with the latter: only `_WITHOUT_MODEL` of its throughput counts as certain.

    Raises:
        UnknowableError: no load was fast enough.
    """
    found = _fast_enough(known.points, request.p99, count)
    if found is None:
        raise UnknowableError(_too_slow(known))
    low, high = _WITHOUT_MODEL * found.low, found.high
    open_loop = _fast_enough([one for one in known.points if one.rate], request.p99, count)
    if open_loop is not None:
        low = max(low, open_loop.low)
    # Nothing is known between the highest load that was fast enough and the next one.
    slower = [
        one.throughput.mean / count
        for one in known.points
        if _low(one.p99) > request.p99 and one.throughput.mean / count > high
    ]
    high = max(high, min(slower, default=0.0))
    if part is not None and known.shared:
        high = max(high, part.workers / part.demand.mean * 1e6)
    if not low:
        raise UnknowableError(_TOO_NOISY)
    return Range(low, high)


def _too_slow(known: Measured) -> str:
    point = known.lightest
    load = f"{grouped(point.rate)} per second" if point.rate else f"{point.clients} clients"
    if any(part.limits for part in known.parts) and point is known.saturated:
        return (
            f"99 of 100 responses took up to {duration(point.p99.mean)} at the lightest measured "
            f"load, {load}, which already saturated it; measure with fewer clients"
        )
    return (
        f"99 of 100 responses took up to {duration(point.p99.mean)} at the lightest measured load, "
        f"{load}; more servers do not make responses faster"
    )


def _spread(each: Range, rate: float, balance: Balance, count: int) -> Range:
    """Return how many servers are needed so that the busiest one is not overloaded.

    Raises:
        UnknowableError: a single key needs more than one server.
    """
    if rate * balance.hottest > each.high:
        raise UnknowableError(
            f"{percent(balance.hottest)} of operations are for one key, which is on one server: "
            f"{grouped(rate * balance.hottest)} per second, but a server handles at most "
            f"{grouped(each.high)}; such keys need copies (docs: find hot keys)"
        )
    few = _fewest(
        rate / each.high, lambda servers: max(1 / servers, balance.hottest), each.high, rate
    )
    many = _fewest(rate / each.low, balance.busiest, each.low, rate, most=2 * FARTHEST * count)
    return Range(few, max(few, many))


def _fewest(
    start: float, share: Callable[[int], float], each: float, rate: float, most: int = 1_000_000
) -> int:
    servers = max(1, math.ceil(start - 1e-9))
    while servers < most and rate * share(servers) > each * (1 + 1e-9):
        servers += 1
    return servers


def _bottleneck(known: Measured) -> str:
    for part in known.parts:
        if part.limits:
            time = duration(part.demand.mean)
            return f"the {part.name}'s processor: an operation takes {time} of its time"
    if known.saturated.generator_limited:
        return "unknown: the load generator limited the measurement"
    if known.shared:
        return "unknown: the processes that shared the machine kept it fully busy"
    if not known.parts:
        return "unknown: processor times of a remote server are not measured"
    return (
        "not the processors: none was fully busy, and most of the response time is spent elsewhere"
    )


def _low(one: Interval) -> float:
    return one.mean if one.low is None else max(one.low, 0.0)


def _high(one: Interval) -> float:
    return one.mean if one.high is None else one.high
