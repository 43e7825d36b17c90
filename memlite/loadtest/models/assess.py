"""Compares predicted with measured values: where a model holds, where it does not, and why."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from memlite.lab import exponentiality
from memlite.loadtest.models.build import Inputs, Model, Prediction
from memlite.loadtest.models.sweep import Load, Sweep
from memlite.loadtest.models.traces import RESOLUTION
from memlite.loadtest.results import Interval
from memlite.loadtest.units import duration, percent, short

__all__ = [
    "BOUND",
    "BUSY",
    "Assessment",
    "Check",
    "Outcome",
    "assess",
    "busiest_share",
    "doubts",
    "with_article",
]

BOUND: Final = 0.1
"""A prediction holds if it is off by at most this share of the measured value, or within the
measured value's 95% confidence interval."""

# A value whose interval is wider than this share of it is too imprecise to test a model.
_MAX_WIDTH: Final = 0.5
# A demand that differs between loads by more than this factor is given as a reason.
_CHANGES: Final = 1.25
BUSY: Final = 0.85
"""A station that is never busier than this does not limit throughput."""
# Coefficients of variation that count as 1.
_RANDOM: Final = (0.8, 1.25)
# Repetitions that differ by more make any comparison doubtful.
_MAX_SPREAD: Final = 0.1


@dataclass(frozen=True, slots=True)
class Check:
    """One predicted value, compared with the measured one.

    Attributes:
        clients: the load's number of clients.
        quantity: ``throughput``, in requests per second, or ``response time``, in seconds.
        measured: the mean.
        predicted: None if the model has no steady state there.
        error: (predicted - measured) / measured; infinite if there is no prediction.
        tolerance: the largest acceptable error.
        tests: whether the check tests the model: not where the model was calibrated, nor if the
            measured value's interval is wider than ±50%.
    """

    clients: int
    quantity: str
    measured: float
    predicted: float | None
    error: float
    tolerance: float
    tests: bool

    @property
    def holds(self) -> bool:
        """Whether the prediction is right, within the tolerance."""
        return abs(self.error) <= self.tolerance


class Outcome(StrEnum):
    """The outcome of comparing a model with measured values."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "could not be tested"


@dataclass(frozen=True, slots=True)
class Assessment:
    """The assessment of a model by comparison with measured values.

    Attributes:
        model: the model.
        checks: the checks of all loads.
        verdict: in a sentence.
        outcome: whether it holds at all loads at which it was tested; known only if these were at
            least half of the loads.
        reasons: why it does not hold, in sentences.
    """

    model: Model
    checks: tuple[Check, ...]
    verdict: str
    outcome: Outcome
    reasons: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether it is known to hold."""
        return self.outcome is Outcome.HOLDS

    def holds_at(self, clients: int) -> bool:
        """Return whether all predictions of a load hold."""
        return all(one.holds for one in self.checks if one.clients == clients)


def assess(sweep: Sweep, inputs: Inputs, model: Model) -> Assessment:
    """Compare a model with the measured values."""
    loads = {one.clients: one for one in sweep.loads}
    checks = tuple(
        check
        for prediction in model.predictions
        for check in _checks(loads[prediction.clients], prediction, model, inputs)
    )
    tests = [one for one in checks if one.tests]
    tested = list(dict.fromkeys(one.clients for one in tests))
    failed = [one for one in tested if any(c.clients == one and not c.holds for c in tests)]
    reasons: list[str] = []
    if failed:
        reasons = list(_why(sweep, inputs, model, [loads[one] for one in failed], checks)) or [
            "none of the assumptions that these data can check is violated"
        ]
    # The model is not tested where it was calibrated; most of the other loads must be precise
    # enough.
    enough = 2 * len(tested) >= len(model.predictions) - 1 > 0
    outcome = Outcome.FAILS if failed else Outcome.HOLDS if enough else Outcome.UNKNOWN
    return Assessment(model, checks, _verdict(tested, failed), outcome, tuple(reasons))


def _checks(load: Load, one: Prediction, model: Model, inputs: Inputs) -> Iterator[Check]:
    # At this load, the remaining time was chosen so that the network's prediction is exact.
    tests = load.clients != inputs.calibrated or bool(model.fitted) or one.measured is not None
    if one.throughput is not None:
        yield _check(load.clients, "throughput", load.throughput, one.throughput, tests=tests)
    measured = one.measured or load.response_time
    yield _check(load.clients, "response time", measured, one.response_time, tests=tests)


def _check(
    clients: int, quantity: str, measured: Interval, predicted: float | None, *, tests: bool
) -> Check:
    mean, width = measured.mean, 0.0
    if measured.high is not None and mean:
        width = (measured.high - mean) / mean
    error = math.inf if predicted is None or not mean else predicted / mean - 1
    tests = tests and width <= _MAX_WIDTH
    return Check(clients, quantity, mean, predicted, error, max(BOUND, width), tests)


def _verdict(tested: Sequence[int], failed: Sequence[int]) -> str:
    if not tested:
        return "cannot be tested: there are too few loads, or measured values vary too much"
    held = [one for one in tested if one not in failed]
    if not failed:
        return f"holds at {_clients(tested)}"
    if len(held) < len(tested) / 2:
        return "does not fit" + (f": holds only at {_clients(held)}" if held else "")
    return f"holds at {_clients(held)}, but not at {_clients(failed)}"


def _clients(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers))
    return f"{text} client{'' if text == '1' else 's'}"


def busiest_share(sweep: Sweep, station: str) -> float | None:
    """Return the highest utilisation of a station, or of the cores it shares; None if unknown."""
    known = [
        max(one.utilisations[station], one.own or 0.0)
        for one in sweep.loads
        if station in one.utilisations
    ]
    return max(known, default=None)


def with_article(station: str) -> str:
    """Return a station's name as used in a sentence: a node's is a proper name."""
    number = station.rpartition("-")[2]
    return station if number.isdigit() else f"the {station}"


# Reasons


def doubts(sweep: Sweep) -> Iterator[str]:
    """Yield reasons to doubt the measurement itself, in sentences."""
    if sweep.doubt:
        yield f"While {sweep.target} was measured, {sweep.doubt}."
    spread = max(_spread(one.throughput) for one in sweep.loads)
    if spread > _MAX_SPREAD:
        yield f"{sweep.target}: throughput varies by up to ±{percent(spread)} between repetitions."
    if all(one.throughput.high is None for one in sweep.loads):
        yield f"{sweep.target}: with only one repetition, values have no confidence intervals."
    limited = [one.clients for one in sweep.loads if one.generator_limited]
    if limited:
        yield f"{sweep.target}: the load generator was the bottleneck at {_clients(limited)}."
    unlawful = [one.clients for one in sweep.loads if not one.lawful]
    if unlawful:
        yield (
            f"{sweep.target}: at {_clients(unlawful)}, R differs from N/X − Z: response times, "
            "think times or throughput do not cover all requests."
        )


def _spread(value: Interval) -> float:
    return (value.high - value.mean) / value.mean if value.high is not None and value.mean else 0.0


def _why(
    sweep: Sweep, inputs: Inputs, model: Model, failed: Sequence[Load], checks: Sequence[Check]
) -> Iterator[str]:
    limited = [one.clients for one in failed if one.generator_limited]
    if limited and (model.station and model.station != "machine"):
        yield f"the load generator was the bottleneck at {_clients(limited)}"
    if not model.clients:
        yield from _open_arrivals(sweep, model, failed)
    if model.name.startswith("network"):
        yield from _shared_cores(sweep, failed)
    if not model.by_load and not model.fitted:
        yield from _changing_demands(sweep, model)
    yield from _variation(model, failed)
    yield from _hidden_limit(sweep, inputs, model, failed, checks)
    if not model.clients:
        return
    yield from _retrograde(sweep, failed)


def _open_arrivals(sweep: Sweep, model: Model, failed: Sequence[Load]) -> Iterator[str]:
    loads = {one.clients: one for one in failed}
    for one in model.predictions:
        use = one.uses.get(model.station)
        if one.clients not in loads or use is None:
            continue
        if math.isinf(use.queue_length):
            yield (
                f"with {_clients([one.clients])} the station would be {use.utilisation:.0%} busy, "
                "and its queue would grow without bound; in a closed loop, clients wait instead"
            )
            return
        if use.queue_length > one.clients:
            yield (
                "arrivals are not independent of the queue: the model predicts "
                f"{short(use.queue_length)} requests there, but there are only "
                f"{_clients([one.clients])}"
            )
            return


def _shared_cores(sweep: Sweep, failed: Sequence[Load]) -> Iterator[str]:
    busy = max((one.machine or 0.0 for one in failed), default=0.0)
    if sweep.cores and busy >= BUSY:
        yield (
            f"the stations are not independent: all processes share this machine's {sweep.cores} "
            f"cores, which were up to {percent(busy)} busy"
        )


def _changing_demands(sweep: Sweep, model: Model) -> Iterator[str]:
    for one in sweep.resources:
        if model.station not in ("", one.name, "machine"):
            continue
        known = [
            (load.demands[one.name], load.clients)
            for load in sweep.loads
            if one.name in load.demands
        ]
        positive = [each for each in known if each[0] > 0]
        if len(positive) > 1 and max(positive)[0] > _CHANGES * min(positive)[0]:
            (most, at_most), (least, at_least) = max(positive), min(positive)
            yield (
                f"service times depend on the load: a request takes {duration(most * 1e6)} at "
                f"{one.name} with {_clients([at_most])}, and {duration(least * 1e6)} with "
                f"{_clients([at_least])}"
            )


def _variation(model: Model, failed: Sequence[Load]) -> Iterator[str]:
    """State which times in the proxies' traces are not exponentially distributed."""
    for load in failed:
        for name, traced in load.traced.items():
            if model.station not in ("", name):
                continue
            for times, what, unit in (
                (traced.service, "service times", "exponential"),
                (traced.gaps, "times between arrivals", "exponential"),
            ):
                if times is traced.gaps and load.sampled:
                    continue
                test = exponentiality(times, RESOLUTION)
                if (
                    test is None
                    or not test.rejected
                    or (_RANDOM[0] < times.cv < _RANDOM[1] and test.distance < BOUND)
                ):
                    continue
                yield (
                    f"{what} at {name} are not {unit}: with {_clients([load.clients])} their "
                    f"coefficient of variation is {times.cv:.2g}, not 1; A² = "
                    f"{test.statistic:.3g}, above {test.critical:.3g} (Anderson-Darling, 5%, "
                    f"{test.count} values)"
                )
        if load.traced:
            return


def _hidden_limit(
    sweep: Sweep, inputs: Inputs, model: Model, failed: Sequence[Load], checks: Sequence[Check]
) -> Iterator[str]:
    """State that something else limits throughput, if no station is busy."""
    if model.fitted or not model.clients:
        return
    too_fast = [
        one
        for one in failed
        if any(
            each.clients == one.clients
            and each.quantity == "throughput"
            and each.error > each.tolerance
            for each in checks
        )
    ]
    if not too_fast:
        return
    last = too_fast[-1]
    busiest = max(last.utilisations.values(), default=0.0)
    crowded = last.own is not None and last.own >= BUSY
    if busiest < BUSY and not crowded:
        yield (
            f"requests wait for something that is not measured: with {_clients([last.clients])} no "
            f"station was busier than {percent(busiest)}"
            + (f"; {sweep.doubt}" if sweep.doubt else "")
        )


def _retrograde(sweep: Sweep, failed: Sequence[Load]) -> Iterator[str]:
    best = max(sweep.loads, key=lambda one: one.throughput.mean)
    falls = [
        one
        for one in failed
        if one.clients > best.clients
        and one.throughput.mean < best.throughput.mean * (1 - BOUND)
        and (one.throughput.high or 0.0) < best.throughput.mean
    ]
    if falls:
        yield (
            f"throughput falls beyond {_clients([best.clients])}, which no queue of this kind "
            "explains"
        )
