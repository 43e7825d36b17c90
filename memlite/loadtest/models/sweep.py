"""What a target did at different numbers of clients: the inputs of models."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from memlite.core.errors import ConfigError
from memlite.lab import Estimate, service_demand
from memlite.loadtest import selection
from memlite.loadtest.doubt import machine_doubt
from memlite.loadtest.models.traces import Traced
from memlite.loadtest.results import Interval, Point, Repetition, Results, ServerUse, TargetInfo
from memlite.loadtest.statistics import interval

__all__ = ["GENERATOR", "SERVER", "Load", "Resource", "Sweep", "sweeps"]

SERVER: Final = "server"
GENERATOR: Final = "load generator"
# Threads of a server that hardly do anything are not counted.
_IDLE: Final = 0.15
_NODE: Final = "node-"
# The quantile of the normal distribution for intervals of 95%, of means over many requests.
_NORMAL: Final = 1.96


@dataclass(frozen=True, slots=True)
class Resource:
    """A part of the system that requests use, such as a process.

    Attributes:
        name: its name.
        servers: how many requests it can serve at a time.
        demand: processor time that a request takes there, in seconds; None if not measured.
    """

    name: str
    servers: int
    demand: Estimate | None


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured with a number of clients. Times are in seconds.

    Attributes:
        clients: how many requests there were at a time: clients, times what each has in flight.
        throughput: requests per second.
        response_time: the mean.
        think_time: from a reply to the client's next request: N/X - R.
        utilisations: of each resource that was measured, of 1.
        demands: of each resource that was measured: processor time per request.
        generator_limited: whether the load generator was the bottleneck.
        machine: the share of this machine's cores that was busy with anything; None if unknown.
        own: the share that was busy with the processes that were measured; likewise.
        traced: what a proxy's trace has of it, by the proxy's name.
    """

    clients: int
    throughput: Interval
    response_time: Interval
    think_time: float
    utilisations: Mapping[str, float]
    demands: Mapping[str, float]
    generator_limited: bool
    machine: float | None
    own: float | None
    traced: Mapping[str, Traced]

    def arrivals(self, proxy: str) -> float:
        """Return the requests per second of a proxy that is traced: its share of all.

        Not the number of lines, as a trace can be a sample.
        """
        total = math.fsum(one.throughput for one in self.traced.values())
        return self.throughput.mean * self.traced[proxy].throughput / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """A target at several loads.

    Attributes:
        target: its name.
        resources: what requests use, the load generator last.
        loads: in order of the number of clients.
        think_time: the mean over the loads, in seconds.
        cores: of this machine, if the target ran on it as well; otherwise 0.
        doubt: what else kept the machine busy meanwhile; empty if nothing did.
    """

    target: str
    resources: tuple[Resource, ...]
    loads: tuple[Load, ...]
    think_time: float
    cores: int
    doubt: str = ""


def sweeps(
    results: Results,
    servers: int | None = None,
    traced: Sequence[Mapping[str, Traced]] = (),
) -> list[Sweep]:
    """Return what was measured of each target in a closed loop.

    Args:
        results: of a run; of several sizes of values, the most common one counts.
        servers: how many requests a server can serve at a time; None to take the number of its
            threads that did anything.
        traced: for each of the points, what proxies' traces have of it.

    Raises:
        ConfigError: the results have nothing to model.
    """
    load = results.workload.get("load", {})
    pipeline = _whole(load.get("pipeline")) if isinstance(load, Mapping) else 1
    traces = {id(point): one for point, one in zip(results.points, traced, strict=False)}
    points = [
        point
        for point in selection.with_main_value_size(selection.closed_loop(results))
        if any(_rate(one) for one in point.repetitions)
    ]
    if selection.is_concurrent(results) or not points:
        raise ConfigError(
            "bench: models need a closed loop: results of a steady workload without --rate"
        )
    infos = {target.name: target for target in results.targets}
    return [
        _sweep(
            name,
            of_target,
            _servers(infos.get(name), of_target, servers),
            results,
            pipeline,
            traces,
        )
        for name, of_target in selection.by_target(results, points).items()
    ]


def _sweep(
    name: str,
    points: Sequence[Point],
    counts: Mapping[str, int],
    results: Results,
    pipeline: int,
    traces: Mapping[int, Mapping[str, Traced]],
) -> Sweep:
    """Return what was measured of one target.

    Args:
        name: the target's.
        points: its points, in order of the number of clients.
        counts: its resources, and how many requests each can serve at a time.
        results: the whole run.
        pipeline: how many requests a client has in flight.
        traces: what proxies' traces have of a point, by its identity.
    """
    counts = {**counts, GENERATOR: results.workers}
    cores = int(results.machine.get("cores", 0))
    loads = [_load(one, pipeline, counts, cores, traces.get(id(one), {})) for one in points]
    resources = [Resource(one, count, _demand(one, points)) for one, count in counts.items()]
    if not any(one.demand and one.demand.value for one in resources if one.name != GENERATOR):
        # No processor time was long enough to be measured.
        resources[0] = replace(resources[0], demand=None)
    queues = _proxies(loads)
    if queues:
        # A worker of a proxy is busy for as long as a node takes, with its queue.
        resources = [one for one in resources if not one.name.startswith(_NODE)]
        loads = [_with_proxies(load, queues) for load in loads]
    local = all(one.server is not None for point in points for one in point.repetitions)
    return Sweep(
        name,
        (*queues, *resources),
        tuple(loads),
        math.fsum(one.think_time for one in loads) / len(loads),
        cores if local else 0,
        machine_doubt(points),
    )


def _proxies(loads: Sequence[Load]) -> list[Resource]:
    """Return the workers of each proxy that has a queue, by its trace."""
    found = []
    for name in dict.fromkeys(name for load in loads for name in load.traced):
        known = [load for load in loads if load.traced[name].service.count > 1]
        # With few clients, not all workers are ever used; there are as many as with most.
        workers = max((load.traced[name].workers for load in loads), default=0)
        if not known or not workers:
            continue
        # With the fewest clients, as later service times include queues at the nodes.
        first, times = known[0], known[0].traced[name].service
        visits = first.arrivals(name) / first.throughput.mean
        reach = _NORMAL * math.sqrt(times.variance / times.count)
        low, high = max(times.mean - reach, 0.0), times.mean + reach
        demand = Estimate(times.mean * visits, low * visits, high * visits)
        found.append(Resource(name, workers, demand))
    return found


def _with_proxies(load: Load, queues: Sequence[Resource]) -> Load:
    demands, utilisations = dict(load.demands), dict(load.utilisations)
    for one in queues:
        arrivals, service = load.arrivals(one.name), load.traced[one.name].service.mean
        demands[one.name] = service * arrivals / load.throughput.mean
        utilisations[one.name] = service * arrivals / one.servers
    return replace(load, demands=demands, utilisations=utilisations)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _rate(one: Repetition) -> float:
    """Return the requests per second of a repetition; a request of several keys is one."""
    latency = one.response.get("all")
    return latency.count / one.seconds if latency and one.seconds else 0.0


def _usable(points: Sequence[Point]) -> list[Repetition]:
    return [one for point in points for one in point.repetitions if _rate(one)]


def _uses(one: Repetition) -> dict[str, ServerUse]:
    if one.processes:
        return dict(one.processes)
    return {SERVER: one.server} if one.server is not None else {}


def _busy(one: Repetition) -> dict[str, float]:
    """Return the processor seconds per second of each resource."""
    busy = {name: use.cpu_seconds / one.seconds for name, use in _uses(one).items()}
    busy[GENERATOR] = one.generator_cpu * 1e-6 * one.operations / one.seconds
    return busy


def _servers(
    info: TargetInfo | None, points: Sequence[Point], servers: int | None
) -> dict[str, int]:
    """Return the resources of a target, and how many requests each can serve at a time."""
    names = dict.fromkeys(name for one in _usable(points) for name in _uses(one))
    found = {name: servers or _threads(name, points) for name in names}
    if not found:
        return {SERVER: servers or 1}
    if info is not None and info.cluster is not None and servers:
        found = {name: 1 if name == "proxy" else count for name, count in found.items()}
    return found


def _threads(name: str, points: Sequence[Point]) -> int:
    """Return the number of threads that share a process's work evenly, by processor time."""
    uses = [_uses(one).get(name) for one in _usable(points)]
    shares = [
        (use.cpu_share, use.cpu_share / use.thread_share)
        for use in uses
        if use and use.thread_share
    ]
    # At the highest utilisation, where processor times are long compared with their resolution.
    return max(1, math.ceil(max(shares)[1] - _IDLE)) if shares else 1


def _demand(name: str, points: Sequence[Point]) -> Estimate | None:
    known = [(_busy(one)[name], _rate(one)) for one in _usable(points) if name in _busy(one)]
    if not known:
        return None
    return service_demand([busy for busy, _ in known], [rate for _, rate in known])


def _load(
    point: Point,
    pipeline: int,
    servers: Mapping[str, int],
    cores: int,
    traced: Mapping[str, Traced],
) -> Load:
    usable = _usable([point])
    rates = [_rate(one) for one in usable]
    times = [one.response["all"].mean * 1e-6 for one in usable]
    clients = point.clients * pipeline
    busy = [_busy(one) for one in usable]
    known = [name for name in servers if all(name in one for one in busy)]
    mean = {name: math.fsum(one[name] for one in busy) / len(busy) for name in known}
    rate, time = interval(rates), interval(times)
    return Load(
        clients,
        rate,
        time,
        max(clients / rate.mean - time.mean, 0.0),
        {name: used / servers[name] for name, used in mean.items()},
        {name: used / rate.mean for name, used in mean.items()},
        point.generator_limited,
        _busy_share(usable, cores, others=True),
        _busy_share(usable, cores, others=False),
        traced,
    )


def _busy_share(usable: Sequence[Repetition], cores: int, *, others: bool) -> float | None:
    """Return the share of the machine's cores that was busy, with other programs or without."""
    if not cores or any(one.server is None for one in usable):
        return None
    shares = []
    for one in usable:
        share = ((one.server.cpu_share if one.server else 0.0) + _busy(one)[GENERATOR]) / cores
        if others and one.machine:
            share += one.machine.other + one.machine.steal
        shares.append(min(share, 1.0))
    return math.fsum(shares) / len(shares)
