"""All models of a run's targets, compared with the measured values."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memlite.core.errors import ConfigError
from memlite.lab import Station
from memlite.loadtest.models.assess import (
    BUSY,
    Assessment,
    Outcome,
    assess,
    busiest_share,
    doubts,
    with_article,
)
from memlite.loadtest.models.build import Inputs, inputs_of, models_of
from memlite.loadtest.models.sweep import Sweep, sweeps
from memlite.loadtest.models.traces import Traced, read_trace
from memlite.loadtest.results import Results
from memlite.loadtest.units import duration, grouped, percent

__all__ = ["TargetModels", "model_targets"]


@dataclass(frozen=True, slots=True)
class TargetModels:
    """A target's models.

    Attributes:
        sweep: the measured loads.
        inputs: the stations and their demands.
        assessments: the assessment of each model.
    """

    sweep: Sweep
    inputs: Inputs
    assessments: tuple[Assessment, ...]

    @property
    def doubts(self) -> list[str]:
        """Reasons to doubt the measurement itself, in sentences."""
        return list(doubts(self.sweep))

    @property
    def answer(self) -> list[str]:
        """The target's bottleneck, and the models that hold, in sentences."""
        return [_bottleneck(self.sweep, self.inputs), *_outcomes(self.assessments)]


def model_targets(
    results: Results, traces: Sequence[Path] = (), servers: int | None = None
) -> list[TargetModels]:
    """Model the targets of a run.

    Args:
        results: the run's results.
        traces: files that proxies wrote during the run.
        servers: how many requests a server can serve at a time, if known.

    Raises:
        ConfigError: a trace cannot be read, or is from another time; or there is nothing to model.
    """
    found = []
    for sweep in sweeps(results, servers, _traced(results, traces)):
        inputs = inputs_of(sweep)
        if inputs is not None:
            models = models_of(sweep, inputs, servers)
            found.append(
                TargetModels(sweep, inputs, tuple(assess(sweep, inputs, one) for one in models))
            )
    if not found:
        raise ConfigError(
            "bench: models of a server whose processor time was not measured require at least two "
            "loads: measure with --clients 1,4,16,64"
        )
    return found


def _traced(results: Results, traces: Sequence[Path]) -> list[dict[str, Traced]]:
    """Return the traces' data for each point, by the name of the proxy."""
    periods = [
        [(one.started, one.started + one.seconds) for one in point.repetitions]
        for point in results.points
    ]
    found: list[dict[str, Traced]] = [{} for _ in periods]
    for number, path in enumerate(traces, 1):
        name = "proxy's workers" if len(traces) == 1 else f"proxy {number}'s workers"
        read = read_trace(path, periods)
        if not any(one.requests for one in read):
            raise ConfigError(
                f"bench: --trace {path} has no requests from the time of this run's measurements"
            )
        for of_point, one in zip(found, read, strict=True):
            if one.requests:
                of_point[name] = one
    return found


def _bottleneck(sweep: Sweep, inputs: Inputs) -> str:
    """Return the bottleneck of the throughput, if it was measured."""
    station = next(one for one in inputs.stations if one.name == inputs.bottleneck)
    if not station.demand:
        return f"{sweep.target}: no station takes a measurable amount of time."
    name, each = with_article(station.name), duration(station.demand / station.servers * 1e6)
    most = _at_most(sweep, inputs, station)
    busiest = busiest_share(sweep, station.name)
    if busiest is not None and busiest < BUSY:
        return (
            f"{sweep.target}: none of the measured stations is the bottleneck. {_capital(name)} "
            f"takes the most time, {each} per request, and was busy for at most {percent(busiest)} "
            f"of the time, which alone would allow up to {most} requests per second. Either "
            "requests wait for something else, or there were too few clients."
        )
    return (
        f"{sweep.target}: of the measured stations, the bottleneck is {name}, with {each} per "
        f"request: at most {most} requests per second, and queueing from {grouped(inputs.knee)} "
        "clients on."
    )


def _at_most(sweep: Sweep, inputs: Inputs, station: Station) -> str:
    """Return the highest possible throughput with its interval, no lower than the measured one."""
    measured = max(one.throughput.mean for one in sweep.loads)
    demand = inputs.demands[station.name]
    shortest, longest = demand.interval
    most, low, high = (
        max(station.servers / each, measured) if each else math.inf
        for each in (station.demand, longest, shortest)
    )
    if not math.isfinite(longest) or math.isinf(high):
        return grouped(most)
    texts = [grouped(one) for one in (low, most, high)]
    return texts[1] if len(set(texts)) == 1 else f"{texts[1]} ({texts[0]} to {texts[2]})"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _outcomes(assessments: Sequence[Assessment]) -> Iterator[str]:
    """Yield sentences: which models hold, which could not be tested, and how the fits compare."""
    found = {
        outcome: [
            one.model.name for one in assessments if one.outcome is outcome and not one.model.fitted
        ]
        for outcome in Outcome
    }
    if found[Outcome.HOLDS]:
        names = "; ".join(found[Outcome.HOLDS])
        yield f"Models that hold wherever they can be tested: {names}."
    elif found[Outcome.FAILS]:
        yield "No model of the measured times holds at all loads."
    if found[Outcome.UNKNOWN]:
        names = "; ".join(found[Outcome.UNKNOWN])
        yield f"Models that could not be tested (too few loads, or values vary too much): {names}."
    agrees = {
        Outcome.HOLDS: "agrees with the measurements at all loads",
        Outcome.FAILS: "does not agree with the measurements at all loads",
        Outcome.UNKNOWN: "cannot be compared, because values vary too much",
    }
    for one in assessments:
        if one.model.fitted:
            yield f"The best fit, {one.model.describes}: {agrees[one.outcome]}."
