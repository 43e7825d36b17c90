"""How many servers and proxies a load needs: a range, from measured figures and a model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.lab.capacity import sustainable_rate
from memlite.loadtest.capacity.balance import Balance
from memlite.loadtest.capacity.measured import Measured, Part, measured
from memlite.loadtest.capacity.request import Request, UnknowableError
from memlite.loadtest.results import Interval, Point, Results, TargetInfo
from memlite.loadtest.units import duration, grouped, percent
from memlite.loadtest.workload import Keys

__all__ = ["FARTHEST", "Estimate", "Range", "estimate"]

FARTHEST: Final = 10
"""A plan extrapolates to at most this many times the servers, or proxies, that were measured."""
# A server that was not busy counts as able to do at most this many times what it did.
_MOST_MORE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Range:
    """Both ends of what is likely.

    Attributes:
        low: the lower one.
        high: the higher one.
    """

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a load needs of a kind of server.

    Attributes:
        measured: what it is based on.
        servers: how many servers, or nodes.
        proxies: how many proxies; 0 if there was none.
        each: operations per second that one server can take.
        utilisation: of a server's threads at the given rate, with the most and the fewest servers;
            None if processor times are unknown.
        bottleneck: what limits throughput.
        extrapolation: how many times the servers, or proxies, that were measured.
    """

    measured: Measured
    servers: Range
    proxies: Range
    each: Range
    utilisation: Range | None
    bottleneck: str
    extrapolation: float


def estimate(results: Results, target: TargetInfo, request: Request) -> Estimate:
    """Return what a load needs.

    Args:
        results: the measurements.
        target: the kind of server.
        request: the load.

    Raises:
        UnknowableError: the measurements do not tell.
    """
    known = measured(results, target, request)
    observed = _observed(known.points, request.p99)
    servers = next((part for part in known.parts if part.name != "proxy"), None)
    proxy = next((part for part in known.parts if part.name == "proxy"), None)
    each = _each(known, servers, observed, request)
    count = _spread(each, request.rate, Balance(_keys(results)), known.servers)
    proxies = Range(0, 0)
    if proxy is not None:
        each_proxy = _each(known, proxy, observed, request)
        proxies = Range(
            math.ceil(request.rate / each_proxy.high), math.ceil(request.rate / each_proxy.low)
        )
    measured_proxies = proxy.count if proxy else 1
    farthest = max(count.high / known.servers, proxies.high / measured_proxies)
    if farthest > FARTHEST:
        also = f" and {proxies.high:,.0f} proxies" if proxy else ""
        raise UnknowableError(
            f"it would take up to {count.high:,.0f} servers{also}, {farthest:,.0f} times what was "
            "measured, which is too far to tell; measure more (--cluster), or ask for less"
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


def _observed(points: Sequence[Point], p99: float) -> Range:
    """Return the highest throughput that was measured with responses that are fast enough.

    Raises:
        UnknowableError: they were at no load.
    """
    surely = [one for one in points if _high(one.p99) <= p99]
    maybe = [one for one in points if _low(one.p99) <= p99]
    if not maybe:
        fastest = min(points, key=lambda one: one.p99.mean)
        raise UnknowableError(
            f"99 of 100 responses took up to {duration(fastest.p99.mean)} at the lightest load "
            f"that was measured, {grouped(fastest.throughput.mean)} a second; more servers do not "
            "make a single one faster"
        )
    lows = [_low(one.throughput) for one in surely or maybe]
    low = max(lows) if surely else min(lows)
    if not low:
        raise UnknowableError(
            "throughput varied so much between repetitions that it may be anything; measure on a "
            "quiet machine, with more repetitions"
        )
    return Range(low, max(_high(one.throughput) for one in maybe))


def _each(known: Measured, part: Part | None, observed: Range, request: Request) -> Range:
    """Return how many operations per second one of these processes can take."""
    count = known.servers if part is None else part.count
    seen = Range(observed.low / count, observed.high / count)
    if part is None or not known.fits:
        return seen
    # Each part may take its share of the time that is left.
    limit = known.fixed + (request.p99 - known.fixed) / len(known.parts)
    slow, fast = (
        1e6 * sustainable_rate(demand, part.workers, limit, fixed=known.fixed)
        if limit > known.fixed
        else 0.0
        for demand in (_high(part.demand), max(_low(part.demand), 0.5 * part.demand.mean))
    )
    if part.limits:
        return Range(min(seen.low, slow) or seen.low, seen.high)
    # It was not busy: it can do at least what it did, and perhaps as much as the model says.
    return Range(seen.low, max(seen.high, min(fast, _MOST_MORE * seen.high)))


def _spread(each: Range, rate: float, balance: Balance, count: int) -> Range:
    """Return how many servers are needed so that the busiest one is not overloaded.

    Raises:
        UnknowableError: a single key needs more than a server.
    """
    if rate * balance.hottest > each.high:
        raise UnknowableError(
            f"{percent(balance.hottest)} of operations are for one key, which is on one server: "
            f"{grouped(rate * balance.hottest)} a second, and one takes at most "
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
        return "unknown: the load generator was the limit of the measurement"
    if not known.parts:
        return "unknown: processor times of a remote server are not measured"
    return "not the processors: none was busy all the time, most of a response is waiting elsewhere"


def _low(one: Interval) -> float:
    return one.mean if one.low is None else max(one.low, 0.0)


def _high(one: Interval) -> float:
    return one.mean if one.high is None else one.high
