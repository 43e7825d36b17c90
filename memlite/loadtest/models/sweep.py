"""A target's measurements at different numbers of clients: the inputs of models."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from memlite.core.errors import ConfigError
from memlite.lab import Estimate, service_demand
from memlite.loadtest import selection
from memlite.loadtest.checking import check
from memlite.loadtest.doubt import machine_doubt
from memlite.loadtest.models.node_demands import node_demands
from memlite.loadtest.models.traces import Traced
from memlite.loadtest.results import Interval, Point, Repetition, Results, ServerUse, TargetInfo
from memlite.loadtest.statistics import interval

__all__ = ["GENERATOR", "SERVER", "Load", "Resource", "Sweep", "Workers", "sweeps"]

SERVER: Final = "server"
GENERATOR: Final = "load generator"
# Server threads that hardly do anything are not counted.
_IDLE: Final = 0.15
_NODE: Final = "node-"
# A trace with less than this share of all requests is a sample: at most one in two.
_MAX_OF_ALL: Final = 0.75
# The quantile of the normal distribution for intervals of 95%, of means over many requests.
_NORMAL: Final = 1.96


@dataclass(frozen=True, slots=True)
class Resource:
    """A part of the system that requests use, such as a process.

    Attributes:
        name: its name.
        servers: how many requests it can serve at a time.
        demand: processor time that a request takes there, in seconds, at the load with the highest
            throughput; None if not measured.
        traced: whether the demand is instead the time there according to proxies' traces, with the
            fewest clients.
    """

    name: str
    servers: int
    demand: Estimate | None
    traced: bool = False


@dataclass(frozen=True, slots=True)
class Workers:
    """Counters of the workers of all proxies at a load, without a trace. Times are in seconds.

    Attributes:
        service: the mean time for which a worker was busy with a request.
        response: the same, including the time in the queue.
    """

    service: float
    response: Interval


@dataclass(frozen=True, slots=True)
class Load:
    """The measurements with one number of clients. Times are in seconds.

    Attributes:
        clients: the number of concurrent requests: clients, times the requests each has in flight.
        throughput: requests per second.
        rates: the throughput of each repetition.
        response_time: the mean.
        think_time: from a reply to the client's next request: the measured mean. Where it was not
            measured, the mean of N/X - R over such loads.
        utilisations: the utilisation of each measured resource, from 0 to 1.
        demands: processor time per request of each measured resource.
        generator_limited: whether the load generator was the bottleneck.
        lawful: whether R = N/X - Z holds in all repetitions whose think time was measured.
        machine: the share of this machine's cores that was busy with anything; None if unknown.
        own: the share that was busy with the measured processes; likewise.
        traced: the proxies' traces of the load, by the proxy's name.
        workers: the counters of the proxies' workers; None if there are none.
    """

    clients: int
    throughput: Interval
    rates: tuple[float, ...]
    response_time: Interval
    think_time: float
    utilisations: Mapping[str, float]
    demands: Mapping[str, float]
    generator_limited: bool
    lawful: bool
    machine: float | None
    own: float | None
    traced: Mapping[str, Traced]
    workers: Workers | None = None

    def arrivals(self, proxy: str) -> float:
        """Return the requests per second of a traced proxy: its share of all requests.

        The number of lines in the trace is not used, as a trace can be a sample.
        """
        total = self._traced_throughput
        return self.throughput.mean * self.traced[proxy].throughput / total if total else 0.0

    @property
    def sampled(self) -> bool:
        """Whether traces have only some of the requests.

        Times between randomly sampled requests are nearly exponential, whatever the distribution of
        those between all requests.
        """
        return self._traced_throughput < _MAX_OF_ALL * self.throughput.mean

    @property
    def _traced_throughput(self) -> float:
        return math.fsum(one.throughput for one in self.traced.values())


@dataclass(frozen=True, slots=True)
class Sweep:
    """A target at several loads.

    Attributes:
        target: its name.
        resources: the resources that requests use, the load generator last.
        loads: in order of the number of clients.
        think_time: the mean over the loads, in seconds.
        cores: this machine's cores, if all of the target ran on it as well; otherwise 0.
        doubt: what else kept the machine busy at the same time; empty if nothing did.
        proxies: the number of proxies.
        in_flight: how many workers each of them has (``--in-flight``); 0 if it has none.
    """

    target: str
    resources: tuple[Resource, ...]
    loads: tuple[Load, ...]
    think_time: float
    cores: int
    doubt: str = ""
    proxies: int = 0
    in_flight: int = 0


def sweeps(
    results: Results,
    servers: int | None = None,
    traced: Sequence[Mapping[str, Traced]] = (),
) -> list[Sweep]:
    """Return the measurements of each target in a closed loop.

    Args:
        results: the results of a run; with several value sizes, only the most common one is used.
        servers: how many requests a server can serve at a time; None to take the number of its
            threads that did anything.
        traced: for each of the points, the data of proxies' traces.

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
            "bench: models require results of a closed loop: a steady workload without --rate"
        )
    infos = {target.name: target for target in results.targets}
    return [
        _sweep(
            name,
            of_target,
            _servers(infos.get(name), of_target, servers),
            servers or 1,
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
    servers: int,
    results: Results,
    pipeline: int,
    traces: Mapping[int, Mapping[str, Traced]],
) -> Sweep:
    """Return the measurements of one target.

    Args:
        name: the target's name.
        points: its points, in order of the number of clients.
        counts: its resources, and how many requests each can serve at a time.
        servers: how many requests a node shown by traces can serve at a time.
        results: the whole run.
        pipeline: how many requests a client has in flight.
        traces: the data of proxies' traces for a point, by its identity.
    """
    counts = {**counts, GENERATOR: results.workers}
    apart = any(one.name == name and one.placed for one in results.targets)
    cores = 0 if apart else int(results.machine.get("cores", 0))
    loads = _with_think_times(
        [_load(one, pipeline, counts, cores, traces.get(id(one), {})) for one in points], points
    )
    resources = [Resource(one, count, _demand(one, points)) for one, count in counts.items()]
    if not any(one.demand and one.demand.value for one in resources if one.name != GENERATOR):
        # No processor time was long enough to be measured.
        resources[0] = replace(resources[0], demand=None)
    queues = _proxies(loads)
    if queues:
        # A proxy's worker is busy for as long as a node takes, including the node's queue.
        resources = [one for one in resources if not one.name.startswith(_NODE)]
        loads = [_with_proxies(load, queues) for load in loads]
    elif not any(one.name.startswith(_NODE) for one in resources):
        queues = _nodes(loads, servers)
        loads = [_with_nodes(load, queues) for load in loads]
        if queues and resources[0].demand is None:
            resources = resources[1:]
    cluster = next((one.cluster for one in results.targets if one.name == name), None)
    local = all(one.server is not None for point in points for one in point.repetitions)
    return Sweep(
        name,
        (*queues, *resources),
        tuple(loads),
        math.fsum(one.think_time for one in loads) / len(loads),
        cores if local else 0,
        machine_doubt(points),
        cluster.proxies if cluster else 0,
        cluster.in_flight if cluster else 0,
    )


def _proxies(loads: Sequence[Load]) -> list[Resource]:
    """Return the workers of each proxy that has a queue, from its trace."""
    found = []
    for name in dict.fromkeys(name for load in loads for name in load.traced):
        # With one client, only one of several proxies has any requests.
        passing = [load for load in loads if name in load.traced]
        known = [load for load in passing if load.traced[name].service.count > 1]
        # With few clients, not all workers are ever used: take the highest count over all loads.
        workers = max((load.traced[name].workers for load in passing), default=0)
        if not known or not workers:
            continue
        # Measured with the fewest clients, as later service times include queues at the nodes.
        first, times = known[0], known[0].traced[name].service
        visits = first.arrivals(name) / first.throughput.mean
        reach = _NORMAL * math.sqrt(times.variance / times.count)
        low, high = max(times.mean - reach, 0.0), times.mean + reach
        demand = Estimate(times.mean * visits, low * visits, high * visits)
        found.append(Resource(name, workers, demand, traced=True))
    return found


def _nodes(loads: Sequence[Load], servers: int) -> list[Resource]:
    """Return the nodes, if the traces show their service times.

    If the time at a node with the fewest clients implies a utilisation above 1 at another load, the
    node is not limited by its service time.
    """
    demands = node_demands([one.traced for one in loads])
    most = max(one.throughput.mean for one in loads)
    if any(one.interval[0] * most > servers for one in demands.values()):
        return []
    return [Resource(name, servers, one, traced=True) for name, one in demands.items()]


def _with_nodes(load: Load, nodes: Sequence[Resource]) -> Load:
    """Add the nodes' utilisations, by the utilisation law."""
    busy = {
        one.name: min(load.throughput.mean * one.demand.value / one.servers, 1.0)
        for one in nodes
        if one.demand
    }
    return replace(load, utilisations={**load.utilisations, **busy})


def _with_proxies(load: Load, queues: Sequence[Resource]) -> Load:
    demands, utilisations = dict(load.demands), dict(load.utilisations)
    for one in queues:
        if one.name not in load.traced:
            continue
        arrivals, service = load.arrivals(one.name), load.traced[one.name].service.mean
        demands[one.name] = service * arrivals / load.throughput.mean
        utilisations[one.name] = service * arrivals / one.servers
    return replace(load, demands=demands, utilisations=utilisations)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _rate(one: Repetition) -> float:
    """Return the requests per second of a repetition; a multi-get counts as one request."""
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
    """Return the demand at the load with the highest throughput.

    The demand may depend on the load. An upper bound on throughput that is derived from it must
    not be below the highest throughput measured.
    """
    known = [
        one for one in points if any(name in _busy(each) for each in one.repetitions if _rate(each))
    ]
    if not known:
        return None
    best = max(known, key=lambda one: interval([_rate(each) for each in _usable([one])]).mean)
    measured = [one for one in _usable([best]) if name in _busy(one)]
    return service_demand([_busy(one)[name] for one in measured], [_rate(one) for one in measured])


def _with_think_times(loads: Sequence[Load], points: Sequence[Point]) -> list[Load]:
    """Set think times that were not measured to the mean of those derived from the law.

    The think time derived from a single load would make a prediction there agree with its own
    input.
    """
    derived = [
        load.think_time
        for load, point in zip(loads, points, strict=True)
        if _think_time(point) is None
    ]
    if not derived:
        return list(loads)
    mean = math.fsum(derived) / len(derived)
    return [
        replace(load, think_time=mean) if _think_time(point) is None else load
        for load, point in zip(loads, points, strict=True)
    ]


def _think_time(point: Point) -> float | None:
    """Return the mean think time in seconds; None if it was not measured in all repetitions."""
    times = [one.think_time for one in _usable([point])]
    known = [one for one in times if one is not None]
    return math.fsum(known) / len(known) * 1e-6 if len(known) == len(times) else None


def _lawful(point: Point, pipeline: int) -> bool:
    checks = point.checks or check(point, pipeline)
    return all(one.law is None or one.law.holds for one in checks.repetitions)


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
    rate, time, think_time = interval(rates), interval(times), _think_time(point)
    return Load(
        clients,
        rate,
        tuple(rates),
        time,
        max(clients / rate.mean - time.mean, 0.0) if think_time is None else think_time,
        {name: used / servers[name] for name, used in mean.items()},
        {name: used / rate.mean for name, used in mean.items()},
        point.generator_limited,
        _lawful(point, pipeline),
        _busy_share(usable, cores, others=True),
        _busy_share(usable, cores, others=False),
        traced,
        _workers(usable),
    )


def _workers(usable: Sequence[Repetition]) -> Workers | None:
    times = [
        (one.proxies.queue * 1e-6, one.proxies.service * 1e-6)
        for one in usable
        if one.proxies and one.proxies.queue is not None and one.proxies.service
    ]
    if not times:
        return None
    service = math.fsum(one for _, one in times) / len(times)
    return Workers(service, interval([queue + one for queue, one in times]))


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
