"""The verdict: the findings of a run as sentences."""

from collections.abc import Iterator, Mapping, Sequence

from memlite.loadtest import overview, scaling, selection, sweep
from memlite.loadtest.checking import doubts
from memlite.loadtest.doubt import Comparison, compare, doubt_about_saturation, machine_doubt
from memlite.loadtest.results import Knee, Latency, Point, Results
from memlite.loadtest.units import duration, grouped, percent, size

__all__ = ["findings", "generator_warnings", "warnings"]

_KEEPS_UP = 0.98
"""A target keeps up with a rate if it completes at least this share of it."""
_MAX_ERROR_KINDS = 3
_MAX_DOUBTED = 2
_REASONS = {
    "throughput": "a higher load does not raise throughput",
    "slo": "a higher load exceeds the SLO",
    "start": "the first load already exceeds the SLO; start the search with a lower one",
    "limit": "the search reached its upper limit",
    "connections": "the server does not accept more connections (-c)",
}


def findings(results: Results) -> list[str]:
    """Return the findings as sentences, the most important first.

    Args:
        results: the results of one run, or of several combined.
    """
    if not results.points:
        return ["Nothing was measured."]
    if selection.is_concurrent(results):
        return [*_concurrent(results)]
    if overview.summarises(results):
        return [*overview.findings(results), *_knees(results), *_bursts(results)]
    return [
        *_closed_loop(results),
        *sweep.findings(results),
        *scaling.findings(results),
        *_knees(results),
        *_open_loop(results),
        *_bursts(results),
    ]


def warnings(results: Results) -> list[str]:
    """Return caveats about the findings as sentences, besides those of `generator_warnings`.

    Args:
        results: see `findings`.
    """
    return [
        *_machine_warning(results),
        *_check_warning(results.points),
        *_error_warnings(results),
        *_single_repetition(results.points),
        *_mixed_warning(results),
        *_partial_warning(results),
    ]


# Closed loop


def _closed_loop(results: Results) -> Iterator[str]:
    points = selection.closed_loop(results)
    sizes = selection.value_sizes(points)
    for value_size in sizes:
        chosen = [point for point in points if point.value_size == value_size]
        groups = selection.by_target(results, chosen)
        load = f"this workload and values of {size(value_size)}" if sizes[1:] else "this workload"
        kinds = {target.name: target.kind for target in results.targets}
        yield _throughput(groups, load, kinds)
        if value_size == selection.with_main_value_size(points)[0].value_size:
            yield from _response_times(groups)


def _throughput(groups: Mapping[str, Sequence[Point]], load: str, kinds: Mapping[str, str]) -> str:
    first, *others = _ranked(groups)

    def growth(point: Point, *, briefly: bool = False) -> str:
        kind = kinds.get(point.target, "")
        return _growth(point, groups[point.target], kind, briefly=briefly)

    parts = [
        (
            f"With {load}, {first.target} sustains {grouped(first.throughput.mean)} operations per "
            f"second at {_clients(first.clients)}{growth(first)}"
        )
    ]
    for point in others:
        compared = compare(point, first, lambda one: one.throughput)
        grown = growth(point, briefly=True)
        measured = (
            f"{grouped(point.throughput.mean)} operations per second at {_clients(point.clients)}"
            + ("" if compared.doubt and compared.doubt in grown else grown)  # not twice
        )
        if compared.doubt:
            parts.append(f"{point.target} {measured}, {_which_is_faster(compared)}")
        else:
            parts.append(f"{point.target} reaches {compared.times('at most')} that, {measured}")
    return "; ".join(parts) + "."


def _which_is_faster(compared: Comparison) -> str:
    return f"but it is unclear which is faster: {compared.doubt}"


def _ranked(groups: Mapping[str, Sequence[Point]]) -> list[Point]:
    """Return each target's saturation point, the fastest target first."""
    points = [selection.saturation(points) for points in groups.values()]
    return sorted(points, key=lambda point: -point.throughput.mean)


def _growth(point: Point, points: Sequence[Point], kind: str, *, briefly: bool = False) -> str:
    most = max(one.clients for one in points)
    if most == min(one.clients for one in points):
        return ""
    doubt = doubt_about_saturation([one for one in points if one.clients >= point.clients], kind)
    if doubt:
        if briefly:
            return f" (cannot tell whether it is saturated: {doubt})"
        return f"; cannot tell whether that is where it saturates: {doubt}"
    if point.clients == most:
        return " (not saturated)" if briefly else ", the highest load tested, without saturating"
    return " (saturated)" if briefly else ", where it saturates"


def _response_times(groups: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    points = selection.at_common_load(groups)
    if len({point.clients for point in points}) > 1:
        return
    parts = [
        f"{point.target} {duration(point.response['all'].p50)} and "
        f"{duration(point.response['all'].p99)}"
        for point in points
        if "all" in point.response
    ]
    if parts:
        yield (
            f"Median and 99th percentile of response times at {_clients(points[0].clients)}: "
            + "; ".join(parts)
            + "."
        )


def _knees(results: Results) -> Iterator[str]:
    for knee in results.knees:
        load = (
            f"a rate of {grouped(knee.rate)} operations per second"
            if knee.rate
            else _clients(knee.clients)
        )
        reason = _REASONS.get(knee.reason, knee.reason)
        yield (
            f"The search for {knee.target}'s knee ended at {load}, with a throughput of "
            f"{grouped(knee.throughput)} operations per second and a 99th percentile of "
            f"{duration(knee.p99)}: {reason}{_doubt_about_knee(results, knee)}."
        )


def _doubt_about_knee(results: Results, knee: Knee) -> str:
    """Return a doubt about the reason for which a search ended; empty if there is none."""
    if knee.reason not in ("throughput", "slo", "start"):
        return ""
    higher = [
        point
        for point in results.points
        if point.target == knee.target
        and (point.rate >= knee.rate if knee.rate else point.clients >= knee.clients)
    ]
    kind = next((target.kind for target in results.targets if target.name == knee.target), "")
    if knee.reason == "throughput" and not knee.rate:
        doubt = doubt_about_saturation(higher, kind)
    else:
        doubt = machine_doubt(higher)
    return f"; cannot tell whether the server is the reason: {doubt}" if doubt else ""


# Open loop


def _open_loop(results: Results) -> Iterator[str]:
    points = selection.with_main_value_size(selection.open_loop(results))
    for name, of_target in selection.by_target(results, points).items():
        sustained = [
            point for point in of_target if point.throughput.mean >= _KEEPS_UP * point.rate
        ]
        missed = [point for point in of_target if point not in sustained]
        if sustained:
            highest = sustained[-1]
            text = (
                f"At {grouped(highest.rate)} operations per second {name} keeps up, with a 99th "
                f"percentile of {duration(_p99(highest))} from when requests were due"
            )
        else:
            text = f"{name} keeps up with none of the rates tested"
        higher = [point for point in missed if not sustained or point.rate > sustained[-1].rate]
        if higher:
            first = higher[0]
            text += (
                f"; at {grouped(first.rate)} it completes {grouped(first.throughput.mean)}, with a "
                f"99th percentile of {duration(_p99(first))}"
            )
        yield text + "."


def _p99(point: Point) -> float:
    return point.response.get("all", Latency()).p99


# Bursts: clients that all arrive at once, run their operations and disconnect


def _concurrent(results: Results) -> Iterator[str]:
    groups = selection.by_target(results, selection.with_main_value_size(results.points))
    points = selection.at_common_load(groups)
    yield from _total_times(points)
    for name, of_target in groups.items():
        least, most = of_target[0], of_target[-1]
        if least.clients < most.clients and least.seconds.mean:
            yield (
                f"With {_factor(most.clients / least.clients)} times the clients ("
                f"{least.clients} to {most.clients}), {name} took "
                f"{_factor(most.seconds.mean / least.seconds.mean)} times as long "
                f"({duration(least.seconds.mean * 1e6)} to {duration(most.seconds.mean * 1e6)})."
            )
    yield from _single_set(points)


def _bursts(results: Results) -> Iterator[str]:
    """Summarise the bursts measured alongside a steady workload."""
    groups = selection.by_target(results, selection.with_main_value_size(results.bursts))
    points = selection.at_common_load(groups)
    if points:
        yield from _total_times(points, results.points)
        yield from _single_set(points)


def _total_times(points: Sequence[Point], beside: Sequence[Point] = ()) -> Iterator[str]:
    first, *others = sorted(points, key=lambda point: point.seconds.mean)
    same = _same_load(points)
    parts = [
        (
            f"{_clients(first.clients).capitalize()} at once, each setting and getting a value, "
            f"took {duration(first.seconds.mean * 1e6)} in total with {first.target}"
        )
    ]
    for point in others:
        load = "" if same else f" ({_clients(point.clients)})"
        compared = f", {_as_long(point, first, beside)}" if same else ""
        parts.append(f"{duration(point.seconds.mean * 1e6)} with {point.target}{load}{compared}")
    yield "; ".join(parts) + "."


def _as_long(point: Point, first: Point, beside: Sequence[Point]) -> str:
    both = [one for one in beside if one.target in (point.target, first.target)]
    compared = compare(point, first, lambda one: one.seconds, both)
    if compared.doubt:
        return _which_is_faster(compared)
    return f"{compared.times('at least')} as long"


def _single_set(points: Sequence[Point]) -> Iterator[str]:
    ranked = sorted(points, key=lambda point: point.seconds.mean)
    sets = [
        f"{duration(point.response['set'].p50)} with {point.target}"
        for point in ranked
        if "set" in point.response
    ]
    if sets:
        load = f" at {_clients(ranked[0].clients)}" if _same_load(points) else ""
        yield f"Median response time of a single set{load}: " + "; ".join(sets) + "."


def _same_load(points: Sequence[Point]) -> bool:
    return len({point.clients for point in points}) == 1


# Warnings


def _machine_warning(results: Results) -> Iterator[str]:
    points = [*results.points, *results.bursts]
    disturbed = [point for point in points if machine_doubt([point])]
    if disturbed:
        *names, last = dict.fromkeys(point.target for point in disturbed)
        measured = f"{', '.join(names)} and {last} were" if names else f"{last} was"
        if overview.summarises(results):
            measured = f"{overview.named(results, [*names, last])} were"
        yield (
            f"While {measured} measured, {machine_doubt(disturbed)}: on a quiet machine the "
            "figures may differ."
        )


def generator_warnings(results: Results) -> Iterator[str]:
    """Yield warnings that the load generator was the bottleneck, to be shown before any figure.

    Args:
        results: see `findings`.
    """
    if overview.summarises(results):
        names = dict.fromkeys(one.target for one in results.points if one.generator_limited)
        if names:
            yield (
                f"The load generator was the bottleneck for {overview.named(results, names)}: they "
                "may be faster than these figures suggest."
            )
        return
    for name, of_target in selection.by_target(results, results.points).items():
        limited = [point for point in of_target if point.generator_limited]
        if limited:
            loads = ", ".join(dict.fromkeys(_load(point) for point in limited))
            where = "throughout" if len(limited) == len(of_target) > 1 else f"at {loads}"
            yield (
                f"The load generator, not {name}, was the bottleneck {where}: the server may be "
                "faster than these figures suggest."
            )


def _check_warning(points: Sequence[Point]) -> Iterator[str]:
    found = [(point, doubts(point)) for point in points]
    doubted = [(point, some) for point, some in found if some]
    if not doubted:
        return
    named = [
        f"{point.target} at {_load(point)} ({', '.join(some)})"
        for point, some in doubted[:_MAX_DOUBTED]
    ]
    more = " and others" if doubted[_MAX_DOUBTED:] else ""
    yield (
        f"Checks cast doubt on {len(doubted)} of {len(points)} measurements: {', '.join(named)}"
        f"{more}."
    )


def _error_warnings(results: Results) -> Iterator[str]:
    for name, points in selection.by_target(results, [*results.points, *results.bursts]).items():
        kinds: dict[str, int] = {}
        for point in points:
            for kind, count in point.errors.items():
                kinds[kind] = kinds.get(kind, 0) + count
        failed = sum(kinds.values())
        if not failed:
            continue
        total = failed + sum(one.operations for point in points for one in point.repetitions)
        by_count = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
        named = [f"{kind} ({count:,})" for kind, count in by_count[:_MAX_ERROR_KINDS]]
        more = ", and others" if by_count[_MAX_ERROR_KINDS:] else ""
        yield (
            f"{name}: {failed:,} of {total:,} operations failed ({percent(failed / total)}): "
            + ", ".join(named)
            + f"{more}."
        )


def _single_repetition(points: Sequence[Point]) -> Iterator[str]:
    if points and all(len(point.repetitions) == 1 for point in points):
        yield "Each load was measured only once, so the random variation is unknown."


def _mixed_warning(results: Results) -> Iterator[str]:
    if results.mixed:
        yield f"{results.mixed[0].upper()}{results.mixed[1:]}."


def _partial_warning(results: Results) -> Iterator[str]:
    if results.failure:
        yield f"The run ended early, so these results are partial: {results.failure}."
    elif results.partial:
        yield "The run was interrupted: these results are partial."


# Wording


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"


def _load(point: Point) -> str:
    if point.rate:
        return f"{grouped(point.rate)} operations per second"
    return _clients(point.clients)


def _factor(value: float) -> str:
    return f"{value:.2g}" if value < 10 else grouped(value)
