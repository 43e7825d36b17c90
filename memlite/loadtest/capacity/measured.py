"""The facts about a server, or a cluster, that a plan takes from a measurement."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memlite.lab import Station, exact_mva
from memlite.loadtest import scaling, selection
from memlite.loadtest.capacity.request import Request, UnknowableError
from memlite.loadtest.defaults import PROXIED
from memlite.loadtest.doubt import machine_doubt
from memlite.loadtest.results import (
    Interval,
    Placed,
    Point,
    Repetition,
    Results,
    ServerUse,
    TargetInfo,
)
from memlite.loadtest.statistics import interval
from memlite.loadtest.units import grouped, percent, size

__all__ = ["MODEL_ERROR", "TAIL", "Measured", "Part", "measured"]

MODEL_ERROR: Final = 0.3
"""A model is not used if its throughput is off by more than this share at any measured load."""
TAIL: Final = -math.log(0.01)
"""The 99th percentile of exponentially distributed times, divided by their mean."""

# A process that uses this share of its threads, or a machine this share of its cores, is the limit.
_BUSY: Final = 0.85
# Threads that are busy for less than this share of the busiest one's time are not counted.
_IDLE: Final = 0.15
# Hit ratios that differ by less than this count as equal.
_SAME_HIT_RATIO: Final = 0.05


@dataclass(frozen=True, slots=True)
class Part:
    """Processes of one kind that requests pass through, and whose number can grow.

    Attributes:
        name: ``server``, ``node`` or ``proxy``.
        count: the number that was measured.
        workers: the number of threads of each that do the work.
        demand: processor time per operation, in microseconds, over all of them.
        limits: whether it limited the highest throughput.
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
        target: the target.
        points: the measurements with values of the size in question.
        saturated: the point of a closed loop at which throughput stops growing, or the highest
            rate.
        lightest: the point with the fewest clients, or at the lowest rate.
        parts: the processes that requests pass through; empty if processor times are unknown, as
            for a remote server.
        fixed: the 99th percentile of response times at the lightest load, minus that of the
            processor time of the parts, in microseconds.
        model_error: the largest relative error of the throughput of a network of these parts; None
            if unknown.
        shared: whether the machine, or the load generator, was busy at the highest throughput, so
            that the parts might achieve more elsewhere.
        doubts: reasons to doubt the measurement.
    """

    target: TargetInfo
    points: Sequence[Point]
    saturated: Point
    lightest: Point
    parts: Sequence[Part]
    fixed: float
    model_error: float | None
    shared: bool
    doubts: Sequence[str]

    @property
    def fits(self) -> bool:
        """Whether the model can be used."""
        return self.model_error is not None and self.model_error <= MODEL_ERROR

    @property
    def servers(self) -> int:
        """How many servers, or nodes, were measured."""
        return 1 if self.target.cluster is None else self.target.cluster.nodes

    @property
    def kind(self) -> str:
        """The backend: of a cluster, that of its nodes if they keep items in a file."""
        if self.target.cluster is not None and self.target.details.get("backend") == "file":
            return "file"
        return self.target.kind


def measured(results: Results, target: TargetInfo, request: Request) -> Measured:
    """Return the measured properties of a target.

    Args:
        results: the measurements.
        target: one of their targets.
        request: the size of values and the hit ratio to look at.

    Raises:
        UnknowableError: no measurement matches the request.
    """
    load: dict[str, Any] = dict(results.workload.get("load", {}))
    if selection.is_concurrent(results):
        raise UnknowableError(
            "clients connected for a single set and get; measure a steady workload"
        )
    if load.get("multiget", 1) > 1:
        raise UnknowableError(
            "it was measured with gets of several keys; measure gets of single keys"
        )
    if "replicas=" in target.details.get("proxies' options", ""):
        raise UnknowableError("its items were on several nodes; measure without replicas")
    ours = [one for one in results.points if one.target == target.name and one.throughput.mean]
    if not ours:
        raise UnknowableError("no operation succeeded")
    points = _of_size(ours, request.value_size)
    _check_hit_ratio(points, request.hit_ratio)
    closed = [one for one in points if not one.rate]
    saturated = selection.saturation(closed) if closed else selection.highest_throughput(points)
    lightest = min(closed or points, key=lambda one: (one.clients, one.rate))
    workers = _workers(target, points)
    parts = tuple(_parts(target, saturated, workers))
    busy = sum(part.demand.mean for part in _parts(target, lightest, workers))
    shared = saturated.generator_limited or (
        _one_is_full(saturated, target.placed)
        if target.placed
        else _machine_is_full(saturated, float(results.machine.get("cores", 0)))
    )
    return Measured(
        target=target,
        points=points,
        saturated=saturated,
        lightest=lightest,
        parts=parts,
        fixed=max(0.0, lightest.p99.mean - TAIL * busy),
        model_error=_model_error(closed, parts, _delay(lightest, busy, load), load),
        shared=shared,
        doubts=tuple(_doubts(results, target, points, saturated, shared=shared)),
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
        raise UnknowableError("nothing was read, so a hit ratio cannot be taken into account")
    found = hits / (hits + misses)
    if abs(found - wanted) > _SAME_HIT_RATIO:
        raise UnknowableError(
            f"{percent(found)} of reads found an item, and misses may cost more or less than "
            f"hits; measure a workload with a hit ratio of {percent(wanted)}"
        )


def _uses(one: Repetition) -> dict[str, ServerUse]:
    """Return the resources of each process of a target."""
    if one.processes:
        return dict(one.processes)
    return {} if one.server is None else {"server": one.server}


def _workers(target: TargetInfo, points: Sequence[Point]) -> dict[bool, int]:
    """Return how many threads do the work: of a proxy (True), and of a server or node (False).

    Measured at the highest utilisation, where processor times are long compared with their
    resolution.
    """
    found: dict[bool, tuple[float, float]] = {}
    for point in points:
        for one in point.repetitions:
            for name, use in _uses(one).items():
                proxy = target.cluster is not None and scaling.is_proxy(name)
                threads = use.cpu_share / use.thread_share if use.thread_share else 1.0
                found[proxy] = max(found.get(proxy, (0.0, 1.0)), (use.cpu_share, threads))
    return {proxy: max(1, math.ceil(threads - _IDLE)) for proxy, (_, threads) in found.items()}


def _parts(target: TargetInfo, point: Point, workers: dict[bool, int]) -> Iterator[Part]:
    """Yield the processes that requests pass through, with processor times from all repetitions."""
    known = [one for one in point.repetitions if one.operations and _uses(one)]
    if not known:
        return
    if target.cluster is None:
        yield _part("server", 1, known, workers.get(False, 1), proxy=None)
        return
    if target.cluster.path == PROXIED:
        count = sum(scaling.is_proxy(name) for name in known[0].processes)
        yield _part("proxy", count, known, workers.get(True, 1), proxy=True)
    yield _part("node", target.cluster.nodes, known, workers.get(False, 1), proxy=False)


def _part(
    name: str, count: int, known: Sequence[Repetition], workers: int, *, proxy: bool | None
) -> Part:
    demands, busiest = [], 0.0
    for one in known:
        ours = [
            use
            for process, use in _uses(one).items()
            if proxy is None or scaling.is_proxy(process) == proxy
        ]
        demands.append(sum(use.cpu_seconds for use in ours) / one.operations * 1e6)
        busiest += max((use.cpu_share for use in ours), default=0.0) / len(known)
    return Part(name, count, workers, interval(demands), limits=busiest >= _BUSY * workers)


def _delay(lightest: Point, busy: float, load: dict[str, Any]) -> float:
    """Return the time between two requests of a client without the parts' processor time."""
    thinking = [one.think_time for one in lightest.repetitions if one.think_time is not None]
    think_time = sum(thinking) / len(thinking) if thinking else load.get("think_time", 0.0) * 1e6
    return max(0.0, lightest.response["all"].mean - busy) + think_time


def _model_error(
    points: Sequence[Point], parts: Sequence[Part], delay: float, load: dict[str, Any]
) -> float | None:
    """Return the largest relative error of a closed network's throughput."""
    if not points or not parts or not all(part.demand.mean for part in parts):
        return None
    pipeline = int(load.get("pipeline", 1))
    stations = [
        Station(f"{part.name}-{number}", part.demand.mean / part.count, part.workers)
        for part in parts
        for number in range(part.count)
    ]
    states = exact_mva(
        [*stations, Station("elsewhere", delay, 0)],
        clients=max(point.clients for point in points) * pipeline,
    )
    found = {point.clients * pipeline: point.throughput.mean for point in points}
    return max(
        abs(states[number - 1].throughput * 1e6 / throughput - 1)
        for number, throughput in found.items()
    )


def _one_is_full(point: Point, placed: Mapping[str, Placed]) -> bool:
    """Return whether nodes and proxies used the cores of one of several machines."""
    known = [one.processes for one in point.repetitions if one.processes]
    shares = [scaling.machine_shares(one, placed) for one in known]
    machines = {machine for one in shares for machine in one}
    return any(
        sum(one.get(machine, 0.0) for one in shares) / len(shares) >= _BUSY for machine in machines
    )


def _machine_is_full(point: Point, cores: float) -> bool:
    """Return whether everything together used the cores of this machine."""
    known = [one for one in point.repetitions if _uses(one)]
    if not known or not cores:
        return False
    used = [
        sum(use.cpu_share for use in _uses(one).values())
        + one.generator_cpu / 1e6 * one.throughput
        + ((one.machine.other + one.machine.steal) * cores if one.machine else 0.0)
        for one in known
    ]
    return sum(used) / len(used) >= _BUSY * cores


def _doubts(
    results: Results,
    target: TargetInfo,
    points: Sequence[Point],
    saturated: Point,
    *,
    shared: bool,
) -> Iterator[str]:
    if all(len(point.repetitions) == 1 for point in points):
        yield "there was only one repetition, so the ranges do not include random variation"
    if saturated.generator_limited:
        yield "the load generator was the bottleneck, so servers may be faster than measured"
    elif shared and target.placed:
        yield "the processes that shared a machine kept it fully busy; apart, they may be faster"
    elif shared:
        yield (
            "servers and load generator shared a machine and kept it fully busy; apart, they may "
            "be faster"
        )
    doubt = machine_doubt(points)
    if doubt:
        yield doubt
    errors = sum(sum(point.errors.values()) for point in points)
    if errors:
        yield f"{grouped(errors)} operations failed"
    if results.partial:
        yield "the measurement ended early"
