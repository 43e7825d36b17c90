"""All models of a run's targets, compared with what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memlite.core.errors import ConfigError
from memlite.loadtest.models.assess import Assessment, assess, doubts
from memlite.loadtest.models.build import Inputs, inputs_of, models_of
from memlite.loadtest.models.sweep import Sweep, sweeps
from memlite.loadtest.models.traces import Traced, read_trace
from memlite.loadtest.results import Results
from memlite.loadtest.units import duration, grouped

__all__ = ["TargetModels", "model_targets"]


@dataclass(frozen=True, slots=True)
class TargetModels:
    """A target's models.

    Attributes:
        sweep: what was measured.
        inputs: the stations and their demands.
        assessments: of each model.
    """

    sweep: Sweep
    inputs: Inputs
    assessments: tuple[Assessment, ...]

    @property
    def doubts(self) -> list[str]:
        """What speaks against the measurement itself, in sentences."""
        return list(doubts(self.sweep))

    @property
    def answer(self) -> list[str]:
        """What limits the target, and which models hold, in sentences."""
        inputs = self.inputs
        station = next(one for one in inputs.stations if one.name == inputs.bottleneck)
        found = []
        if station.demand:
            most = grouped(station.servers / station.demand)
            found.append(
                f"{self.sweep.target}: of what was measured, the bottleneck is the {station.name}, "
                f"with {duration(station.demand / station.servers * 1e6)} for each request: at "
                f"most {most} requests per second, and queues from {grouped(inputs.knee)} clients "
                "on."
            )
        fitting = [one.model.name for one in self.assessments if one.fits and not one.model.fitted]
        if fitting:
            found.append(f"Models that hold wherever they can be tested: {'; '.join(fitting)}.")
        else:
            found.append("No model of the measured times holds at all loads.")
        for one in self.assessments:
            if one.model.fitted:
                fits = "agrees with all loads" if one.fits else "does not agree with all loads"
                found.append(f"The best fit, {one.model.describes}: {fits}.")
        return found


def model_targets(
    results: Results, traces: Sequence[Path] = (), servers: int | None = None
) -> list[TargetModels]:
    """Model the targets of a run.

    Args:
        results: the run's.
        traces: files that proxies wrote meanwhile.
        servers: how many requests a server can serve at a time, if that is known.

    Raises:
        ConfigError: a trace cannot be read, or is of another time; or there is nothing to model.
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
            "bench: models of a server whose processor time was not measured need two loads or "
            "more: measure with --clients 1,4,16,64"
        )
    return found


def _traced(results: Results, traces: Sequence[Path]) -> list[dict[str, Traced]]:
    """Return what the traces have of each point, by the name of the proxy."""
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
                f"bench: --trace {path} has no request of the time of this run's measurements"
            )
        for of_point, one in zip(found, read, strict=True):
            if one.requests:
                of_point[name] = one
    return found
