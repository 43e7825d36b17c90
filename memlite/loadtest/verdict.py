"""What a run says, in sentences."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from memlite.loadtest import selection
from memlite.loadtest.results import Interval, Latency, Point, Results
from memlite.loadtest.units import duration, grouped, percent, size

__all__ = ["overlap", "verdict"]

_KEPT_UP = 0.98
"""The share of a rate that has to be reached for a target to have kept up with it."""
_AS_MANY = 0.995
"""The share of a throughput that is not worth a number."""
_KINDS_OF_ERRORS = 3
_REASONS = {
    "throughput": "more clients bring no more throughput",
    "slo": "beyond it responses take longer than was allowed",
    "start": "it began there, and responses take longer than was allowed; let it begin with less",
    "limit": "the search ended there, at its limit",
}


def verdict(results: Results) -> list[str]:
    """Return what was found out, the most important first.

    Args:
        results: of one run, or of several that were put together.

    Returns:
        Sentences; the warnings, if there are any, come last.
    """
    if not results.points:
        return [*_partial(results), "Nothing was measured."]
    if selection.is_concurrent(results):
        sentences = [*_concurrent(results)]
    else:
        sentences = [*_closed(results), *_knees(results), *_open(results), *_bursts(results)]
    return [
        *sentences,
        *_generator(results.points),
        *_errors(results),
        *_once(results.points),
        *_partial(results),
    ]


def overlap(one: Interval, other: Interval) -> bool | None:
    """Return whether two confidence intervals overlap; None where one is not known."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    return one.low <= other.high and other.low <= one.high


# Closed loop


def _closed(results: Results) -> Iterator[str]:
    points = selection.closed_loop(results)
    sizes = selection.value_sizes(points)
    for value_size in sizes:
        chosen = [point for point in points if point.value_size == value_size]
        groups = selection.by_target(results, chosen)
        load = f"this workload with values of {size(value_size)}" if sizes[1:] else "this workload"
        yield _throughput(groups, load)
        if value_size == selection.of_main_size(points)[0].value_size:
            yield from _no_difference(_ranked(groups), "throughput")
            yield from _response(groups)


def _throughput(groups: Mapping[str, Sequence[Point]], load: str) -> str:
    first, *others = _ranked(groups)
    parts = [
        (
            f"For {load} {first.target} serves {grouped(first.throughput.mean)} operations a "
            f"second at {_clients(first.clients)}{_growth(first, groups[first.target])}"
        )
    ]
    for point in others:
        share = point.throughput.mean / first.throughput.mean if first.throughput.mean else 0.0
        parts.append(
            f"{point.target} {_reaches(share)}, "
            f"{grouped(point.throughput.mean)} operations a second at "
            f"{_clients(point.clients)}{_growth(point, groups[point.target], briefly=True)}"
        )
    return "; ".join(parts) + "."


def _reaches(share: float) -> str:
    return "serves as many" if share >= _AS_MANY else f"reaches {_factor(share)} of that"


def _ranked(groups: Mapping[str, Sequence[Point]]) -> list[Point]:
    """Return where each target is saturated, the fastest first."""
    points = [selection.saturation(points) for points in groups.values()]
    return sorted(points, key=lambda point: -point.throughput.mean)


def _growth(point: Point, points: Sequence[Point], *, briefly: bool = False) -> str:
    most = max(one.clients for one in points)
    if most == min(one.clients for one in points):
        return ""
    if point.clients == most:
        return " (still growing)" if briefly else ", the most that were tried, and still grows"
    if briefly:
        return " (saturated)"
    return f" and does not grow beyond (saturates at {_clients(point.clients)})"


def _response(groups: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    points = selection.at_common_load(dict(_lists(groups)))
    if len({point.clients for point in points}) > 1:
        return
    parts = [
        f"{_of(point.target)} within {duration(point.response['all'].p50)} and 99% within "
        f"{duration(point.response['all'].p99)}"
        for point in points
        if "all" in point.response
    ]
    if parts:
        yield (
            f"At {_clients(points[0].clients)} half of the responses came: " + "; ".join(parts)
        ) + "."


def _no_difference(ranked: Sequence[Point], what: str) -> Iterator[str]:
    for one, other in pairwise(ranked):
        ours, theirs = (
            (one.seconds, other.seconds)
            if what != "throughput"
            else (one.throughput, other.throughput)
        )
        if overlap(ours, theirs):
            yield (
                f"The confidence intervals of {one.target} and {other.target} overlap: there is "
                f"no difference in {what} that these repetitions can show."
            )


def _knees(results: Results) -> Iterator[str]:
    for knee in results.knees:
        load = (
            f"{grouped(knee.rate)} operations a second sent"
            if knee.rate
            else _clients(knee.clients)
        )
        reason = _REASONS.get(knee.reason, knee.reason)
        yield (
            f"The search for {_of(knee.target)} limit ended at {load}, with "
            f"{grouped(knee.throughput)} operations a second and 99% of the responses within "
            f"{duration(knee.p99)}: {reason}."
        )


# Open loop


def _open(results: Results) -> Iterator[str]:
    points = selection.of_main_size(selection.open_loop(results))
    for name, of_one in selection.by_target(results, points).items():
        good = [point for point in of_one if point.throughput.mean >= _KEPT_UP * point.rate]
        bad = [point for point in of_one if point not in good]
        if good:
            last = good[-1]
            text = (
                f"Sent {grouped(last.rate)} operations a second, {name} keeps up; 99% of the "
                f"responses come within {duration(_p99(last))} of when they were due"
            )
        else:
            text = f"{name} keeps up with none of the rates that were tried"
        later = [point for point in bad if not good or point.rate > good[-1].rate]
        if later:
            first = later[0]
            text += (
                f"; of {grouped(first.rate)} it serves {grouped(first.throughput.mean)}, and "
                f"99% come within {duration(_p99(first))}"
            )
        yield text + "."


def _p99(point: Point) -> float:
    return point.response.get("all", Latency()).p99


# Clients that come, do their work and leave


def _concurrent(results: Results) -> Iterator[str]:
    groups = selection.by_target(results, selection.of_main_size(results.points))
    points = selection.at_common_load(groups)
    yield from _at_once(points)
    yield from _no_difference(
        sorted(points, key=lambda point: point.seconds.mean), "total execution time"
    )
    for name, of_one in groups.items():
        least, most = of_one[0], of_one[-1]
        if least.clients < most.clients and least.seconds.mean:
            yield (
                f"With {_factor(most.clients / least.clients)} times the clients ("
                f"{least.clients} to {most.clients}) {name} took "
                f"{_factor(most.seconds.mean / least.seconds.mean)} times as long "
                f"({duration(least.seconds.mean * 1e6)} to {duration(most.seconds.mean * 1e6)})."
            )
    yield from _single_set(points)


def _bursts(results: Results) -> Iterator[str]:
    """Say the same, shorter, of what was measured beside a steady workload."""
    groups = selection.by_target(results, selection.of_main_size(results.bursts))
    points = selection.at_common_load(groups)
    if points:
        yield from _at_once(points)
        yield from _single_set(points)


def _at_once(points: Sequence[Point]) -> Iterator[str]:
    first, *others = sorted(points, key=lambda point: point.seconds.mean)
    same = _same_load(points)
    parts = [
        (
            f"{_clients(first.clients).capitalize()} at once that each set a value and get it took "
            f"{duration(first.seconds.mean * 1e6)} in all with {first.target}"
        )
    ]
    for point in others:
        times = point.seconds.mean / first.seconds.mean if first.seconds.mean else 0.0
        compared = f", {_factor(times)} times as long" if same else ""
        load = "" if same else f" ({_clients(point.clients)})"
        parts.append(f"{duration(point.seconds.mean * 1e6)} with {point.target}{load}{compared}")
    yield "; ".join(parts) + "."


def _single_set(points: Sequence[Point]) -> Iterator[str]:
    ranked = sorted(points, key=lambda point: point.seconds.mean)
    sets = [
        f"{duration(point.response['set'].p50)} with {point.target}"
        for point in ranked
        if "set" in point.response
    ]
    if sets:
        load = f" at {_clients(ranked[0].clients)}" if _same_load(points) else ""
        yield f"A single set took (median){load}: " + "; ".join(sets) + "."


def _same_load(points: Sequence[Point]) -> bool:
    return len({point.clients for point in points}) == 1


# Warnings


def _generator(points: Sequence[Point]) -> Iterator[str]:
    for name in dict.fromkeys(point.target for point in points):
        of_one = [point for point in points if point.target == name]
        limited = [point for point in of_one if point.generator_limited]
        if limited:
            loads = ", ".join(dict.fromkeys(_load(point) for point in limited))
            where = "throughout" if len(limited) == len(of_one) > 1 else f"at {loads}"
            yield (
                f"The load generator, not {name}, was the limit {where}: the server may be "
                "faster than these numbers say."
            )


def _errors(results: Results) -> Iterator[str]:
    for name, points in selection.by_target(results, [*results.points, *results.bursts]).items():
        kinds: dict[str, int] = {}
        for point in points:
            for kind, count in point.errors.items():
                kinds[kind] = kinds.get(kind, 0) + count
        failed = sum(kinds.values())
        if not failed:
            continue
        tried = failed + sum(one.operations for point in points for one in point.repetitions)
        common = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
        named = [f"{kind} ({count:,})" for kind, count in common[:_KINDS_OF_ERRORS]]
        more = ", and others" if common[_KINDS_OF_ERRORS:] else ""
        yield (
            f"{name}: {failed:,} of {tried:,} operations failed ({percent(failed / tried)}): "
            + ", ".join(named)
            + f"{more}."
        )


def _once(points: Sequence[Point]) -> Iterator[str]:
    if all(len(point.repetitions) == 1 for point in points):
        yield "Each load was measured once: how far chance moves these numbers is not known."


def _partial(results: Results) -> Iterator[str]:
    if results.partial:
        yield "The run was interrupted: these results are partial."


# Words


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"


def _load(point: Point) -> str:
    if point.rate:
        return f"{grouped(point.rate)} operations a second"
    return _clients(point.clients)


def _factor(value: float) -> str:
    return f"{value:.2g}" if value < 10 else grouped(value)


def _of(name: str) -> str:
    return f"{name}'s"


def _lists(groups: Mapping[str, Sequence[Point]]) -> Iterator[tuple[str, list[Point]]]:
    for name, points in groups.items():
        yield name, list(points)
