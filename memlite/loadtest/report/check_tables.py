"""The rows of the tables of checks and of saturation."""

import math
from collections.abc import Sequence

from memlite.lab.saturation import LoadState
from memlite.loadtest import units
from memlite.loadtest.cells import (
    PER_SECOND,
    UNKNOWN,
    Cell,
    Number,
    count,
    microseconds,
    plain,
    share,
    with_interval,
)
from memlite.loadtest.checking import doubts
from memlite.loadtest.results import (
    Interval,
    LawCheck,
    LittleCheck,
    Point,
    Repetition,
    Results,
    SeriesCheck,
)
from memlite.loadtest.sweep import Sweep, between, sweeps

__all__ = ["check_rows", "sweep_rows"]


def check_rows(results: Results) -> list[dict[str, str]]:
    """Return a row for each point that was checked.

    Args:
        results: the results of one run, or of several combined.
    """
    return [_check_row(point) for point in results.points if point.checks is not None]


def _check_row(point: Point) -> dict[str, str]:
    found = point.checks.repetitions if point.checks is not None else ()
    laws = [one.law for one in found if one.law is not None]
    littles = [one.little for one in found if one.little is not None]
    series = [one.series for one in found if one.series is not None]
    outliers = point.checks.outliers if point.checks is not None else ()
    return {
        "target": point.target,
        "server": _busy([_busiest(one) for one in point.repetitions]),
        "generator": _busy([one.generator_share for one in point.repetitions]),
        **(_little_cells(littles) if littles else _law_cells(laws, point)),
        **_series_cells(series),
        "outliers": ", ".join(map(str, outliers)) or UNKNOWN,
        "doubts": ", ".join([*(["generator"] if point.generator_limited else []), *doubts(point)]),
    }


def _busiest(one: Repetition) -> float | None:
    if one.server is None:
        return None
    return one.server.thread_share or one.server.cpu_share


def _busy(shares: Sequence[float | None]) -> str:
    known = [one for one in shares if one is not None]
    return share(sum(known) / len(known) if known else None)


def _law_cells(laws: Sequence[LawCheck], point: Point) -> dict[str, str]:
    if not laws:
        names = ("throughput", "response", "think", "by_law", "by_little", "difference")
        return {"clients": count(point.clients), **dict.fromkeys(names, UNKNOWN)}
    number = len(laws)
    return {
        "clients": count(laws[0].clients),
        "throughput": plain(sum(one.throughput for one in laws) / number, unit=PER_SECOND),
        "response": microseconds(sum(one.response_time for one in laws) / number),
        "think": microseconds(sum(one.think_time for one in laws) / number),
        "by_law": microseconds(sum(one.predicted for one in laws) / number),
        "by_little": UNKNOWN,
        "difference": _difference([one for one in laws if one.holds is not None]),
    }


def _little_cells(laws: Sequence[LittleCheck]) -> dict[str, str]:
    number = len(laws)
    return {
        "clients": plain(sum(one.in_system for one in laws) / number, _requests),
        "throughput": plain(sum(one.throughput for one in laws) / number, unit=PER_SECOND),
        "response": microseconds(sum(one.response_time for one in laws) / number),
        "think": UNKNOWN,
        "by_law": UNKNOWN,
        "by_little": plain(sum(one.predicted for one in laws) / number, _requests, "requests"),
        "difference": _difference([one for one in laws if one.holds is not None]),
    }


def _requests(number: float) -> str:
    return f"{number:,.3g}"


def _difference(tested: Sequence[LawCheck | LittleCheck]) -> str:
    if not tested:
        return "cannot be tested"
    return _signed(max((one.difference for one in tested), key=abs), 2)


def _series_cells(series: Sequence[SeriesCheck]) -> dict[str, str]:
    if not series:
        names = ("warm_up", "cool_down", "trend", "within", "stalls")
        return dict.fromkeys(names, UNKNOWN)
    stalls = [stall for one in series for stall in one.stalls]
    return {
        "warm_up": _longest([one.warm_up for one in series]),
        "cool_down": _longest([one.cool_down for one in series]),
        "trend": _signed(max((one.trend for one in series), key=abs), 1),
        "within": max((_half_width(one), _within(one)) for one in series)[1],
        "stalls": (
            _stalls(len(stalls), sum(stall.seconds for stall in stalls) * 1e6)
            if stalls
            else UNKNOWN
        ),
    }


def _stalls(number: int, microseconds: float) -> Cell:
    text = f"{number}, {units.duration(microseconds)}"
    return Cell(text, Number(number), Number(microseconds, "µs", "together"))


def _longest(lengths: Sequence[float]) -> str:
    return microseconds(max(lengths) * 1e6 if any(lengths) else None)


def _half_width(one: SeriesCheck) -> float:
    return (one.throughput_high - one.throughput) / one.throughput if one.throughput else 0.0


def _within(one: SeriesCheck) -> str:
    half = _half_width(one)
    text = f"{'' if one.independent else '~'}±{half:.1%}"
    return Cell(text, Number(half * 100, "%"))


def _signed(value: float, decimals: int) -> str:
    text = f"{value:+.{decimals}%}".replace("-", "−")
    return Cell(text, Number(value * 100, "%"))


def sweep_rows(results: Results) -> list[dict[str, str]]:
    """Return a row for each sweep over numbers of clients.

    Args:
        results: the results of one run, or of several combined.
    """
    return [_sweep_row(one) for one in sweeps(results)]


def _sweep_row(sweep: Sweep) -> dict[str, str]:
    found, law = sweep.saturation, sweep.law
    names = ("contention", "coherency", "peak", "highest")
    cells: dict[str, str] = dict.fromkeys(names, UNKNOWN)
    if law is not None:
        estimates = (
            (law.contention, law.contention_interval),
            (law.coherency, law.coherency_interval),
            (law.peak_clients, law.peak_clients_interval),
            (law.peak_throughput, law.peak_throughput_interval),
        )
        forms = ((_small, ""), (_small, ""), (_whole, ""), (_rate, PER_SECOND))
        cells = {
            name: with_interval(
                f"{form(value)} ({form(low)} to {form(high)})", Interval(value, low, high), unit
            )
            for name, (form, unit), (value, (low, high)) in zip(
                names, forms, estimates, strict=True
            )
        }
    return {
        "target": sweep.target,
        "size": plain(sweep.value_size, units.size, "B"),
        "under": _loads(sweep, LoadState.UNDER),
        "saturated": _loads(sweep, LoadState.SATURATED),
        "over": _loads(sweep, LoadState.OVER),
        "knee": between(*found.knee_interval),
        **cells,
        "warnings": " ".join(sweep.warnings),
    }


def _loads(sweep: Sweep, state: LoadState) -> str:
    loads = [load for load in sweep.saturation.loads if load.state == state]
    return ", ".join(f"{load.clients:g}{'' if load.certain else '?'}" for load in loads) or UNKNOWN


def _small(value: float) -> str:
    return "0" if abs(value) < 1e-9 else f"{value:.2g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "∞"


def _rate(value: float) -> str:
    return units.short(value) if math.isfinite(value) else "∞"
