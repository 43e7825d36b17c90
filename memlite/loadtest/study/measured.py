"""Everything that a study has measured and calculated, for its report and its file."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.loadtest import checking, selection
from memlite.loadtest.doubt import machine_doubt, spread
from memlite.loadtest.factorial.analysis import Analysis
from memlite.loadtest.factorial.design import Design
from memlite.loadtest.factorial.runs import Measured as Run
from memlite.loadtest.factorial.sentences import answer as of_experiment
from memlite.loadtest.models.study import TargetModels
from memlite.loadtest.multigets.analysis import Comparison, sentence
from memlite.loadtest.multigets.analysis import doubts as doubts_of_gets
from memlite.loadtest.multigets.runs import Run as MultiGets
from memlite.loadtest.results import Point, Repetition, Results
from memlite.loadtest.statistics import ratio
from memlite.loadtest.study.design import Study, Sweep
from memlite.loadtest.study.sections import Line, lines, plus_minus
from memlite.loadtest.units import duration, grouped, percent

__all__ = ["Measured", "answer", "doubts"]

_WORDS = {"read-only": "reads", "write-only": "writes", "mixed": "reads and writes (10 to 1)"}
_NOT_SIGNIFICANT: Final = "the difference is not statistically significant"
# The half-width of an interval, as a share of the mean, above which a warning is due.
_MAX_SPREAD: Final = 0.25


@dataclass(frozen=True, slots=True)
class Measured:
    """A completed study.

    Attributes:
        study: the study.
        sweeps: the results of each sweep.
        design: the design of the experiment.
        runs: its runs.
        analyses: the analysis of each response of the experiment.
        gets: the measurements of gets of several keys.
        multigets: comparisons of sharded gets with gets from one node, by size.
        models: the models of some targets, by title.
        mixed: how the systems it was measured on differ; empty if there was only one.
    """

    study: Study
    sweeps: Mapping[Sweep, Results]
    design: Design
    runs: Sequence[Run]
    analyses: Sequence[Analysis]
    gets: Sequence[MultiGets]
    multigets: Sequence[Comparison]
    models: Mapping[str, TargetModels]
    mixed: str = ""

    @property
    def first(self) -> Results:
        """The results of the first sweep, which describe the system that was measured."""
        return next(iter(self.sweeps.values()))

    @property
    def points(self) -> list[Point]:
        """All measurements."""
        points = [point for results in self.sweeps.values() for point in results.points]
        return [*points, *(run.point for run in self.runs)]

    @property
    def failed(self) -> int:
        """The number of failed requests, without failed multi-gets."""
        return sum(sum(point.errors.values()) for point in self.points)


def doubts(measured: Measured) -> Iterator[str]:
    """Yield reasons to doubt the figures, the most serious first."""
    if measured.mixed:
        yield f"{measured.mixed[0].upper()}{measured.mixed[1:]}."
    points = measured.points
    limited = sum(point.generator_limited for point in points)
    if limited:
        yield (
            f"The load generator was the bottleneck in {limited} of {len(points)} measurements: "
            "servers and proxies may be faster than the figures suggest."
        )
    doubt = machine_doubt(points)
    if doubt:
        yield f"During the measurements, {doubt}: on a quiet machine the figures may differ."
    widest = max(
        (spread(point) for results in measured.sweeps.values() for point in results.points),
        default=0.0,
    )
    if widest > _MAX_SPREAD:
        yield f"Throughput varied by up to ±{percent(widest)} between repetitions."
    yield from _of_checks(list(measured.sweeps.values()))
    if measured.failed:
        yield f"{grouped(measured.failed)} requests failed."
    for doubt in doubts_of_gets(measured.gets):
        yield f"Gets of several keys: {doubt[0].lower()}{doubt[1:]}"


def _of_checks(sweeps: Sequence[Results]) -> Iterator[str]:
    points = [point for results in sweeps for point in results.points]
    found = [reasons for point in points if (reasons := checking.doubts(point))]
    if found:
        often = Counter(reason for reasons in found for reason in reasons)
        ((reason, count),) = often.most_common(1)
        yield (
            f"Checks cast doubt on {len(found)} of {len(points)} measurements of the sweeps; the "
            f"most common reason is {reason!r}, in {count} of them."
        )


def answer(measured: Measured) -> Iterator[str]:
    """Yield the findings, in sentences."""
    direct = {
        workload: lines(measured.sweeps, "direct", workload)
        for workload in ("read-only", "write-only")
    }
    for workload, found in direct.items():
        yield _of_servers(workload, found)
    for workload in ("read-only", "write-only"):
        yield _of_proxies(workload, lines(measured.sweeps, "proxied", workload), direct[workload])
    yield _of_writes(lines(measured.sweeps, "writes"))
    yield sentence(measured.multigets)
    yield from list(of_experiment(measured.design, measured.analyses[0]))[:2]
    for title, models in measured.models.items():
        yield from _of_models(title, models)


def _of_servers(workload: str, found: Sequence[Line]) -> str:
    parts = [
        f"{plus_minus(one.saturated.throughput)} with {one.name.partition(',')[0]} "
        f"({_clients(one.saturated.clients)})"
        for one in found
    ]
    return f"Without a proxy, {_WORDS[workload]} per second: {'; '.join(parts)}{_doubt_of(found)}."


def _of_proxies(workload: str, found: Sequence[Line], direct: Sequence[Line]) -> str:
    best = max(found, key=lambda one: one.saturated.throughput.mean)
    alone = direct[0].saturated
    share = best.saturated.throughput.mean / alone.throughput.mean
    doubt = "" if _differ(best.saturated, alone, _throughput) else f" ({_NOT_SIGNIFICANT})"
    return (
        f"One node behind {best.name}: up to {plus_minus(best.saturated.throughput)} "
        f"{_WORDS[workload]} per second, {percent(share)} of the rate without a proxy{doubt}; "
        f"{_delay(best, direct[0])}."
    )


def _delay(proxied: Line, direct: Line) -> str:
    """Return the response time that a proxy adds, at the lowest load measured for both."""
    points = {point.clients: point for point in selection.closed_loop(proxied.results)}
    others = {point.clients: point for point in selection.closed_loop(direct.results)}
    fewest = min(points.keys() & others.keys())
    one, other = points[fewest], others[fewest]
    if not _differ(one, other, _response_time):
        return f"with {_clients(fewest)}, the difference in response time is not significant"
    more = one.response["all"].mean - other.response["all"].mean
    longer = "longer" if more >= 0 else "less"
    return f"with {_clients(fewest)}, a response takes {duration(abs(more))} {longer}"


def _of_writes(found: Sequence[Line]) -> str:
    parts = [
        f"{plus_minus(one.saturated.throughput)} with {one.sweep.in_flight} in flight"
        for one in found
    ]
    return (
        f"Writes per second to all nodes through the proxies: {'; '.join(parts)}{_doubt_of(found)}."
    )


def _of_models(title: str, models: TargetModels) -> Iterator[str]:
    """Yield the bottleneck if a model that was not fitted agrees with the measurement."""
    start = f"{models.sweep.target}: "
    found = models.answer[0]
    if found.startswith(start) and any(
        one.fits and not one.model.fitted for one in models.assessments
    ):
        yield f"{title[0].upper()}{title[1:]}: {found.removeprefix(start)}"


def _doubt_of(found: Sequence[Line]) -> str:
    """Return a warning if the lowest and the highest throughput cannot be told apart."""
    points = sorted((one.saturated for one in found), key=lambda one: one.throughput.mean)
    if len(points) < 2 or _differ(points[0], points[-1], _throughput):
        return ""
    return f" ({_NOT_SIGNIFICANT})"


def _differ(one: Point, other: Point, value: Callable[[Repetition], float]) -> bool:
    """Return whether two measurements differ by more than repetitions do, by Welch's t-test."""
    values = [[value(each) for each in point.repetitions] for point in (one, other)]
    found = ratio(*values)
    return found.low is not None and found.high is not None and not found.low <= 1 <= found.high


def _throughput(one: Repetition) -> float:
    return one.throughput


def _response_time(one: Repetition) -> float:
    return one.response["all"].mean


def _clients(number: int) -> str:
    return "1 client" if number == 1 else f"{grouped(number)} clients"
