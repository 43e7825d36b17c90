"""Where targets saturate, from a sweep over numbers of clients in a closed loop."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from memlite.lab.saturation import LoadState, Saturation, find_saturation
from memlite.lab.scalability import Scalability, fit_scalability
from memlite.loadtest import selection
from memlite.loadtest.doubt import doubt_about_saturation, machine_doubt
from memlite.loadtest.results import Estimate, Point, Results, SaturationFound, UslFit
from memlite.loadtest.units import grouped

__all__ = ["Sweep", "between", "findings", "ranges", "sweeps", "with_saturation"]

# The law has three parameters, so it fits any three loads.
_FEWEST_FOR_LAW: Final = 4


@dataclass(frozen=True, slots=True)
class Sweep:
    """A target measured with several numbers of clients.

    Attributes:
        target: its name.
        value_size: size of a value in bytes.
        points: the measurements, in order of clients.
        saturation: where it saturates.
        law: the Universal Scalability Law, fitted to all repetitions; None with too few loads.
        warnings: conclusions that the data do not support, each as a sentence.
    """

    target: str
    value_size: float
    points: Sequence[Point]
    saturation: Saturation
    law: Scalability | None
    warnings: tuple[str, ...]

    @property
    def law_is_plausible(self) -> bool:
        """Whether nothing casts doubt on the law, or on the points to which it is fitted."""
        law = self.law
        return (
            law is not None
            and not law.warnings
            and not any(_contradiction(self.saturation, law))
            and not any(point.generator_limited for point in self.points)
            and not machine_doubt(self.points)
        )


def sweeps(results: Results) -> list[Sweep]:
    """Return the sweeps in results, by target and value size.

    Args:
        results: the results of one run, or of several combined.
    """
    if selection.is_concurrent(results):
        return []
    points = [
        point
        for point in selection.closed_loop(results)
        if point.repetitions and all(one.throughput for one in point.repetitions)
    ]
    found = []
    for size in selection.value_sizes(points):
        chosen = [point for point in points if point.value_size == size]
        for target, of_target in selection.by_target(results, chosen).items():
            if len(of_target) > 1:
                found.append(_sweep(target, size, of_target))
    return found


def _sweep(target: str, size: float, points: Sequence[Point]) -> Sweep:
    throughput = [[one.throughput for one in point.repetitions] for point in points]
    clients = [point.clients for point in points]
    times = [point.response["all"].mean if "all" in point.response else 0.0 for point in points]
    saturation = find_saturation(clients, throughput, times if all(times) else None)
    law = None
    if len(points) >= _FEWEST_FOR_LAW:
        law = _fit_law(
            tuple(point.clients for point in points for _ in point.repetitions),
            tuple(value for values in throughput for value in values),
        )
    return Sweep(
        target,
        size,
        points,
        saturation,
        law,
        (
            *saturation.warnings,
            *(law.warnings if law is not None else ()),
            *(_contradiction(saturation, law) if law is not None else ()),
            *_generator_warning(points),
        ),
    )


@lru_cache(maxsize=32)
def _fit_law(clients: tuple[int, ...], throughput: tuple[float, ...]) -> Scalability:
    """Fit the law; cached, because a report needs it in several places."""
    return fit_scalability(clients, throughput, relative=True)


def _contradiction(found: Saturation, law: Scalability) -> Iterator[str]:
    falls = law.throughput(found.best) < selection.PLATEAU * law.peak_throughput
    if falls and law.peak_clients < found.best:
        yield (
            f"The law puts the peak at {law.peak_clients:.0f} clients, but measured throughput "
            "does not fall beyond it."
        )


def _generator_warning(points: Sequence[Point]) -> Iterator[str]:
    limited = [point for point in points if point.generator_limited]
    if limited:
        yield (
            f"The load generator was the bottleneck at {len(limited)} of {len(points)} loads: this "
            "is where the generator saturates, rather than the server."
        )


def with_saturation(results: Results) -> Results:
    """Return results with the saturation of each target added.

    Args:
        results: the results of one run.
    """
    return replace(results, saturation=tuple(map(_saved, sweeps(results))))


def _saved(sweep: Sweep) -> SaturationFound:
    found = sweep.saturation
    above, at_most = found.knee_interval
    return SaturationFound(
        target=sweep.target,
        value_size=sweep.value_size,
        under=_counts(found.clients(LoadState.UNDER)),
        saturated=_counts(found.clients(LoadState.SATURATED)),
        over=_counts(found.clients(LoadState.OVER)),
        uncertain=_counts([load.clients for load in found.loads if not load.certain]),
        knee=None if found.knee is None else int(found.knee),
        knee_above=int(above),
        knee_at_most=int(at_most) if math.isfinite(at_most) else None,
        asymptotic_knee=round(found.asymptotic_knee, 3),
        most_power=None if found.most_power is None else int(found.most_power),
        usl=None if sweep.law is None else _saved_law(sweep.law),
        warnings=sweep.warnings,
    )


def _counts(clients: Sequence[float]) -> tuple[int, ...]:
    return tuple(int(one) for one in clients)


def _saved_law(law: Scalability) -> UslFit:
    return UslFit(
        contention=_estimate(law.contention, law.contention_interval),
        coherency=_estimate(law.coherency, law.coherency_interval),
        rate=_estimate(law.rate, law.rate_interval),
        peak_clients=_estimate(law.peak_clients, law.peak_clients_interval),
        peak_throughput=_estimate(law.peak_throughput, law.peak_throughput_interval),
        explained=law.explained,
        warnings=law.warnings,
    )


def _estimate(value: float, interval: tuple[float, float]) -> Estimate:
    found = (one if math.isfinite(one) else None for one in (value, *interval))
    return Estimate(*found)


def findings(results: Results) -> list[str]:
    """Return where targets saturate: one sentence for each target, for the main value size.

    Args:
        results: see `sweeps`.
    """
    points = selection.with_main_value_size(selection.closed_loop(results))
    main = {point.value_size for point in points}
    kinds = {target.name: target.kind for target in results.targets}
    return [
        _sentence(sweep, kinds.get(sweep.target, ""))
        for sweep in sweeps(results)
        if sweep.value_size in main and sweep.law is not None
    ]


def _sentence(sweep: Sweep, kind: str) -> str:
    found = sweep.saturation
    knee = found.best if found.knee is None else found.knee
    reason = doubt_about_saturation(
        [point for point in sweep.points if point.clients >= knee],
        # Below the knee, a server may be idle.
        "" if found.knee is None else kind,
    )
    if not reason and not any(load.certain for load in found.loads):
        reason = "repetitions vary too much"
    if reason:
        return f"The saturation point of {sweep.target} cannot be determined: {reason}."
    above, at_most = found.knee_interval
    unsure = [load.clients for load in found.loads if not load.certain]
    doubt = f" (uncertain at {_listed(unsure)})" if unsure else ""
    return (
        f"{sweep.target} is {ranges(found)} clients{doubt}. Its knee is "
        f"{between(above, at_most)}{_law_text(sweep)}."
    )


def ranges(found: Saturation) -> str:
    """Return the ranges of loads in words: "under-saturated at 1, 2 and 4, saturated at 8"."""
    return ", ".join(
        f"{state} at {_listed(found.clients(state))}" for state in LoadState if found.clients(state)
    )


def between(above: float, at_most: float) -> str:
    """Return the range of a knee in words: "above 4 and at most 8 clients"."""
    if math.isinf(at_most):
        return f"above {above:g} client{'s' if above > 1 else ''}" if above else "not certain"
    lower = f"above {above:g} and " if above else ""
    return f"{lower}at most {at_most:g} clients"


def _law_text(sweep: Sweep) -> str:
    law = sweep.law
    if law is None or not sweep.law_is_plausible:
        return ""
    low, high = law.peak_clients_interval
    most = sweep.points[-1].clients
    beyond = f", beyond the measured {most}," if law.peak_clients > most else ""
    return (
        f"; the Universal Scalability Law (σ = {law.contention:.2g}, κ = {law.coherency:.2g}) puts "
        f"the peak at {law.peak_clients:.0f} clients ({low:.0f} to {high:.0f}){beyond or ','} with "
        f"{grouped(law.peak_throughput)} operations per second"
    )


def _listed(clients: Sequence[float]) -> str:
    *first, last = (f"{one:g}" for one in clients)
    return f"{', '.join(first)} and {last}" if first else last
