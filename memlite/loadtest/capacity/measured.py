"""What a measurement tells about a server, or a cluster, that a plan can use."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.lab import Station, exact_mva
from memlite.loadtest import selection
from memlite.loadtest.capacity.request import Request, UnknowableError
from memlite.loadtest.defaults import PROXIED
from memlite.loadtest.doubt import machine_doubt
from memlite.loadtest.results import Interval, Point, Repetition, Results, TargetInfo
from memlite.loadtest.statistics import interval
from memlite.loadtest.units import grouped, percent, size

__all__ = ["MODEL_ERROR", "Measured", "Part", "measured"]

MODEL_ERROR: Final = 0.3
"""A model whose throughput is off by more than this share, at any measured load, is not used."""

# What uses this share of its threads is the limit.
_BUSY: Final = 0.85
# Hit ratios that differ by less are the same.
_SAME_HIT_RATIO: Final = 0.05


@dataclass(frozen=True, slots=True)
class Part:
    """Processes of one kind that requests pass, and of which there can be more.

    Attributes:
        name: ``server``, ``node`` or ``proxy``.
        count: how many were measured.
        workers: how many threads of each do the work.
        demand: processor time of an operation, in microseconds, over all of them.
        limits: whether it was what limited the highest throughput.
    """

    name: str
    count: int
    workers: int
    demand: Interval
    limits: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """A target as it was measured.

    Attributes:
        target: which one.
        points: the measurements with values of the size in question, by rate and clients.
        saturated: the one of a closed loop at which throughput stops growing, or the highest rate.
        parts: what requests pass; empty if processor times are unknown, as of a remote server.
        fixed: the 99th percentile of response times at the lightest load, without the processor
            time of the parts, in microseconds.
        model_error: by which share the throughput of a network of these parts is off, at most; None
            if it is unknown.
        doubts: what speaks against the measurement.
    """

    target: TargetInfo
    points: Sequence[Point]
    saturated: Point
    parts: Sequence[Part]
    fixed: float
    model_error: float | None
    doubts: Sequence[str]

    @property
    def fits(self) -> bool:
        """Whether the model can be used."""
        return self.model_error is not None and self.model_error <= MODEL_ERROR

    @property
    def servers(self) -> int:
        """How many servers, or nodes, were measured."""
        return 1 if self.target.cluster is None else self.target.cluster.nodes


def measured(results: Results, target: TargetInfo, request: Request) -> Measured:
    """Return what is known about a target.

    Args:
        results: the measurements.
        target: one of their targets.
        request: the size of values and the hit ratio to look at.

    Raises:
        UnknowableError: there is no measurement of that.
    """
    if selection.is_concurrent(results):
        raise UnknowableError("clients connected for a single set and get; measure a steady load")
    ours = [one for one in results.points if one.target == target.name and one.throughput.mean]
    if not ours:
        raise UnknowableError("no operation succeeded")
    points = _of_size(ours, request.value_size)
    _check_hit_ratio(points, request.hit_ratio)
    closed = [one for one in points if not one.rate]
    saturated = selection.saturation(closed) if closed else selection.highest_throughput(points)
    parts = tuple(_parts(target, saturated))
    lightest = min(points, key=lambda one: one.throughput.mean)
    busy = sum(part.demand.mean for part in _parts(target, lightest))
    think_time = results.workload.get("load", {}).get("think_time", 0.0) * 1e6
    return Measured(
        target,
        points,
        saturated,
        parts,
        max(0.0, lightest.p99.mean - busy),
        _model_error(closed, parts, lightest.response["all"].mean - busy + think_time),
        tuple(_doubts(points, saturated)),
    )


def _of_size(points: Sequence[Point], wanted: int | None) -> list[Point]:
    if wanted is None:
        return selection.with_main_value_size(points)
    sizes = selection.value_sizes(points)
    enough = [one for one in sizes if one >= wanted]
    if not enough:
        raise UnknowableError(
            f"values of {size(wanted)} are larger than any that was measured ({size(sizes[-1])}); "
            "measure with --value-size"
        )
    return [one for one in points if one.value_size == enough[0]]


def _check_hit_ratio(points: Sequence[Point], wanted: float | None) -> None:
    repetitions = [one for point in points for one in point.repetitions]
    hits, misses = sum(one.hits for one in repetitions), sum(one.misses for one in repetitions)
    if wanted is None:
        return
    if not hits + misses:
        raise UnknowableError("nothing was read; a hit ratio cannot be planned for")
    found = hits / (hits + misses)
    if abs(found - wanted) > _SAME_HIT_RATIO:
        raise UnknowableError(
            f"{percent(found)} of reads found an item, and what reads cost that do not may be "
            f"something else; measure a workload with a hit ratio of {percent(wanted)}"
        )


def _parts(target: TargetInfo, point: Point) -> Iterator[Part]:
    """Yield what requests pass, with processor times from all repetitions."""
    known = [one for one in point.repetitions if one.operations]
    if target.cluster is None:
        shares = [
            (one.server.cpu_seconds / one.operations * 1e6, one.server.cpu_share)
            for one in known
            if one.server is not None
        ]
        if shares:
            yield _part("server", 1, shares)
        return
    known = [one for one in known if one.processes]
    if not known:
        return
    if target.cluster.path == PROXIED:
        proxies = sum(name.startswith("proxy") for name in known[0].processes)
        yield _part("proxy", proxies, [_used(one, proxy=True) for one in known])
    yield _part("node", target.cluster.nodes, [_used(one, proxy=False) for one in known])


def _used(one: Repetition, *, proxy: bool) -> tuple[float, float]:
    """Return the processor time of an operation, and the utilisation of the busiest process."""
    ours = [use for name, use in one.processes.items() if name.startswith("proxy") == proxy]
    seconds = sum(use.cpu_seconds for use in ours)
    return seconds / one.operations * 1e6, max((use.cpu_share for use in ours), default=0.0)


def _part(name: str, count: int, used: Sequence[tuple[float, float]]) -> Part:
    busiest = sum(share for _, share in used) / len(used)
    workers = max(1, round(busiest + 0.35))  # 1.2 cores: one worker and its helpers; 1.7: two
    demand = interval([time for time, _ in used])
    return Part(name, count, workers, demand, limits=busiest >= _BUSY * workers)


def _model_error(points: Sequence[Point], parts: Sequence[Part], delay: float) -> float | None:
    """Return by which share a closed network's throughput is off, at most."""
    if not points or not parts or not all(part.demand.mean for part in parts):
        return None
    stations = [
        Station(f"{part.name}-{number}", part.demand.mean / part.count, part.workers)
        for part in parts
        for number in range(part.count)
    ]
    states = exact_mva(
        [*stations, Station("elsewhere", max(delay, 0.0), 0)],
        clients=max(point.clients for point in points),
    )
    found = {point.clients: point.throughput.mean for point in points}
    return max(
        abs(states[clients - 1].throughput * 1e6 / throughput - 1)
        for clients, throughput in found.items()
    )


def _doubts(points: Sequence[Point], saturated: Point) -> Iterator[str]:
    if all(len(point.repetitions) == 1 for point in points):
        yield "there was one repetition, so the ranges leave out chance"
    if saturated.generator_limited:
        yield "the load generator was the limit, so servers may be able to do more"
    doubt = machine_doubt(points)
    if doubt:
        yield doubt
    errors: Mapping[str, int] = saturated.errors
    if errors:
        yield f"{grouped(sum(errors.values()))} operations failed at the highest throughput"
