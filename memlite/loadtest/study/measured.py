"""Everything that a study has measured and calculated, for its report and its file."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memlite.loadtest import checking, selection
from memlite.loadtest.doubt import machine_doubt
from memlite.loadtest.factorial.analysis import Analysis
from memlite.loadtest.factorial.design import Design
from memlite.loadtest.factorial.runs import Measured as Run
from memlite.loadtest.factorial.sentences import answer as of_experiment
from memlite.loadtest.models.study import TargetModels
from memlite.loadtest.multigets.analysis import Comparison, sentence
from memlite.loadtest.multigets.analysis import doubts as doubts_of_gets
from memlite.loadtest.multigets.runs import Run as MultiGets
from memlite.loadtest.results import Point, Results
from memlite.loadtest.study.design import Study, Sweep
from memlite.loadtest.study.sections import Line, lines
from memlite.loadtest.units import duration, grouped, percent

__all__ = ["Measured", "answer", "doubts"]

_WORDS = {"read-only": "reads", "write-only": "writes", "mixed": "reads and writes (10 to 1)"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A study that is complete.

    Attributes:
        study: what was measured.
        sweeps: the results of each sweep.
        design: that of the experiment.
        runs: its runs.
        analyses: the analysis of each response of the experiment.
        gets: the measurements of gets of several keys.
        multigets: sharded against from one node, by their size.
        models: the models of some targets: the title of each, and what they say.
    """

    study: Study
    sweeps: Mapping[Sweep, Results]
    design: Design
    runs: Sequence[Run]
    analyses: Sequence[Analysis]
    gets: Sequence[MultiGets]
    multigets: Sequence[Comparison]
    models: Mapping[str, TargetModels]

    @property
    def first(self) -> Results:
        """The results of the first sweep, which say where all was measured."""
        return next(iter(self.sweeps.values()))

    @property
    def points(self) -> list[Point]:
        """All measurements."""
        points = [point for results in self.sweeps.values() for point in results.points]
        return [*points, *(run.point for run in self.runs)]

    @property
    def failed(self) -> int:
        """How many requests failed, but for gets of several keys that did."""
        return sum(sum(point.errors.values()) for point in self.points)


def doubts(measured: Measured) -> Iterator[str]:
    """Yield what speaks against the figures, the gravest first."""
    points = measured.points
    limited = sum(point.generator_limited for point in points)
    if limited:
        yield (
            f"The load generator was the bottleneck in {limited} of {len(points)} measurements: "
            "servers and proxies may be able to do more."
        )
    doubt = machine_doubt(points)
    if doubt:
        yield f"While it was measured, {doubt}: on a quiet machine the figures may differ."
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
            f"Checks doubt {len(found)} of {len(points)} measurements of the sweeps; the commonest "
            f"reason is {reason!r}, of {count}."
        )


def answer(measured: Measured) -> Iterator[str]:
    """Yield what was found, in sentences."""
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
    for models in measured.models.values():
        yield models.answer[0]


def _of_servers(workload: str, found: Sequence[Line]) -> str:
    parts = [
        f"{grouped(one.saturated.throughput.mean)} with {one.name.partition(',')[0]} "
        f"({_clients(one.saturated)})"
        for one in found
    ]
    return f"Without a proxy, {_WORDS[workload]} per second: {'; '.join(parts)}."


def _of_proxies(workload: str, found: Sequence[Line], direct: Sequence[Line]) -> str:
    best = max(found, key=lambda one: one.saturated.throughput.mean)
    alone = direct[0].saturated
    share = best.saturated.throughput.mean / alone.throughput.mean
    points = {point.clients: point for point in selection.closed_loop(best.results)}
    fewest = min(points)
    alone_points = {point.clients: point for point in selection.closed_loop(direct[0].results)}
    more = points[fewest].response["all"].mean - alone_points[fewest].response["all"].mean
    return (
        f"One node behind {best.name}: up to {grouped(best.saturated.throughput.mean)} "
        f"{_WORDS[workload]} per second, {percent(share)} of those without a proxy; without load, "
        f"a response takes {duration(abs(more))} {'longer' if more >= 0 else 'less'}."
    )


def _of_writes(found: Sequence[Line]) -> str:
    parts = [
        f"{grouped(one.saturated.throughput.mean)} with {one.sweep.in_flight} in flight"
        for one in found
    ]
    return f"Writes per second to all nodes through the proxies: {'; '.join(parts)}."


def _clients(point: Point) -> str:
    return "1 client" if point.clients == 1 else f"{grouped(point.clients)} clients"
