"""Checks of measurements: operational laws, warm-up and cool-down, steadiness, outliers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Final

from memlite.lab.laws import check_closed_loop, check_open_loop
from memlite.lab.outliers import Stall, find_outliers, find_stalls, outlier_threshold
from memlite.lab.stationarity import Trend, batch_means, find_trend
from memlite.lab.warmup import Transients, find_transients
from memlite.loadtest import selection
from memlite.loadtest.results import (
    Checks,
    LawCheck,
    LittleCheck,
    Point,
    Repetition,
    RepetitionCheck,
    Results,
    SeriesCheck,
    StallFound,
)

__all__ = ["check", "doubts", "with_checks"]

# Latencies are recorded in whole microseconds, rounded down.
_ROUNDED_OFF: Final = 0.5
_FEWEST_INTERVALS: Final = 20
# Thresholds for reporting: the share by which a warm-up changes the mean, and the share of a
# repetition spent in stalls.
_BIAS: Final = 0.02
_STALLED: Final = 0.02


def with_checks(results: Results) -> Results:
    """Return results with all points checked; existing checks are kept.

    Args:
        results: the results of one run. Bursts are not checked: they have no steady state.
    """
    if selection.is_concurrent(results):
        return results
    load = results.workload.get("load", {})
    pipeline, counted = int(load.get("pipeline", 1)), bool(load.get("operations", 0))
    points = [
        point
        if point.checks is not None
        else replace(point, checks=check(point, pipeline, counted=counted))
        for point in results.points
    ]
    return replace(results, points=tuple(points))


def check(point: Point, pipeline: int = 1, *, counted: bool = False) -> Checks:
    """Check the repetitions of a point.

    Args:
        point: a point of a ``steady`` workload.
        pipeline: maximum number of requests in flight on a connection.
        counted: whether each client ended after a fixed number of operations, rather than all at
            the same time.
    """
    repetitions = point.repetitions
    throughput = [one.throughput for one in repetitions]
    outliers = find_outliers(throughput, outlier_threshold(len(throughput)))
    return Checks(
        tuple(
            RepetitionCheck(
                one.number,
                None if point.rate else _law(one, point.clients * pipeline, counted),
                _series(one),
                _little(one),
            )
            for one in repetitions
        ),
        tuple(repetitions[index].number for index in outliers),
    )


def _law(one: Repetition, clients: int, counted: bool) -> LawCheck | None:
    times = one.response.get("all")
    if one.think_time is None or times is None or not times.count or not one.seconds:
        return None
    found = check_closed_loop(
        clients,
        times.count / one.seconds / 1e6,
        times.mean + _ROUNDED_OFF,
        one.think_time,
        one.seconds * 1e6,
        longest=times.most,
    )
    return LawCheck(
        clients,
        round(found.throughput * 1e6, 3),
        round(found.response_time, 3),
        round(found.think_time, 3),
        round(found.predicted, 3),
        round(found.difference, 6),
        round(found.in_system, 3),
        round(found.tolerance, 6),
        found.holds,
        _failed(one.failed) or ("clients ended at different times" if counted else ""),
    )


def _little(one: Repetition) -> LittleCheck | None:
    times = one.response.get("all")
    if not one.in_system or times is None or not times.count or not one.seconds:
        return None
    found = check_open_loop(
        one.in_system,
        times.count / one.seconds / 1e6,
        times.mean + _ROUNDED_OFF,
        one.seconds * 1e6,
        cut_off=one.cut_off,
        longest=times.most,
    )
    return LittleCheck(
        one.in_system,
        round(found.throughput * 1e6, 3),
        round(found.response_time, 3),
        round(found.predicted, 6),
        round(found.difference, 6),
        round(found.tolerance, 6),
        found.holds,
        _failed(one.failed),
    )


def _failed(count: int) -> str:
    if not count:
        return ""
    return "1 request failed" if count == 1 else f"{count:,} requests failed"


def _series(one: Repetition) -> SeriesCheck | None:
    length, operations = _operations(one)
    if len(operations) < _FEWEST_INTERVALS:
        return None
    stalls = find_stalls(operations)
    found, steady = _steady_part(operations, stalls)
    # A trend is relative to the mean, which must not be zero.
    trend = find_trend(steady) if any(steady) else Trend(0.0, 0.0, 0.0, 0.0)
    mean = batch_means(steady)
    return SeriesCheck(
        warm_up=round(found.warm_up * length, 3),
        cool_down=round(found.cool_down * length, 3),
        known=found.known,
        settles=found.settles,
        bias=round(found.bias, 6),
        trend=round(trend.change, 6),
        trend_low=round(trend.low, 6),
        trend_high=round(trend.high, 6),
        steady=trend.steady,
        throughput=round(mean.mean / length, 3),
        throughput_low=round(mean.low / length, 3),
        throughput_high=round(mean.high / length, 3),
        independent=mean.independent,
        outliers=find_outliers(operations),
        stalls=tuple(
            StallFound(
                round(stall.start * length, 3), round(stall.length * length, 3), round(stall.lost)
            )
            for stall in stalls
        ),
    )


def _steady_part(
    operations: Sequence[int], stalls: Sequence[Stall]
) -> tuple[Transients, Sequence[int]]:
    """Return the transients and the steady part; the whole series if there is no steady state."""
    found = find_transients(_without(operations, stalls))
    steady = operations[found.warm_up : len(operations) - found.cool_down]
    # If a server hangs for good, MSER takes everything before that for a warm-up.
    middle = len(steady) // 2
    if len(steady) >= _FEWEST_INTERVALS and any(steady[:middle]) and any(steady[middle:]):
        return replace(found, bias=fmean(operations) / fmean(steady) - 1), steady
    return Transients(0, 0, known=found.known, settles=False, bias=0.0), operations


def _without(operations: Sequence[int], stalls: Sequence[Stall]) -> list[float]:
    """Return a series with the median in place of stalls, except at the beginning and the end.

    MSER would cut off a stall together with everything before it.
    """
    filled: list[float] = [*operations]
    usual = median(filled)
    for stall in stalls:
        end = stall.start + stall.length
        if stall.start and end < len(filled):
            filled[stall.start : end] = [usual] * stall.length
    return filled


def _operations(one: Repetition) -> tuple[float, Sequence[int]]:
    """Return the length of an interval, in seconds, and the operations in each."""
    if one.intervals is not None:
        return one.intervals.seconds, one.intervals.operations
    # Files of earlier versions have only the series by second, without seconds in which nothing
    # happened.
    by_second = {each.second: each.operations for each in one.series}
    return 1.0, [by_second.get(second, 0) for second in range(int(one.seconds + 0.01))]


def doubts(point: Point) -> list[str]:
    """Return the doubts that a point's checks raise, each in a few words.

    Args:
        point: a point; an unchecked point raises no doubts.
    """
    if point.checks is None:
        return []
    found = [
        *_law_doubt(point, point.checks.repetitions),
        *_little_doubt(point, point.checks.repetitions),
        *(doubt for one in point.checks.repetitions for doubt in _doubts(one, point)),
    ]
    return [*dict.fromkeys(found), *(["outlier"] if point.checks.outliers else [])]


def _law_doubt(point: Point, checks: Sequence[RepetitionCheck]) -> Iterator[str]:
    yield from _broken("R is not N/X − Z", point, {one.number: one.law for one in checks})


def _little_doubt(point: Point, checks: Sequence[RepetitionCheck]) -> Iterator[str]:
    yield from _broken("N is not X·R", point, {one.number: one.little for one in checks})


def _broken(
    said: str, point: Point, laws: Mapping[int, LawCheck | LittleCheck | None]
) -> Iterator[str]:
    broken = {number: law for number, law in laws.items() if law and law.holds is False}
    if broken:
        failed = sum(one.failed for one in point.repetitions if one.number in broken)
        causes = [law.cause for law in broken.values() if law.cause]
        cause = _failed(failed) or (causes[0] if causes else "")
        yield f"{said}: {cause}" if cause else said


def _doubts(one: RepetitionCheck, point: Point) -> Iterator[str]:
    series = one.series
    if series is None:
        return
    if not series.settles:
        yield "no steady state"
    elif abs(series.bias) > _BIAS and series.warm_up:
        yield "warm-up"
    elif abs(series.bias) > _BIAS:
        yield "cool-down"
    if not series.steady:
        yield "drift"
    seconds = next(each.seconds for each in point.repetitions if each.number == one.number)
    if sum(stall.seconds for stall in series.stalls) > _STALLED * seconds:
        yield "stalls"
