"""The models of a target: built from measured service demands, solved at each measured load."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from memlite.lab import (
    Bounds,
    Estimate,
    NetworkState,
    Queue,
    Station,
    UnstableError,
    balanced_job_bounds,
    closed_mmm,
    exact_mva,
    fit_demands,
    mmm,
)
from memlite.loadtest.models.fitting import best_queue
from memlite.loadtest.models.sweep import GENERATOR, SERVER, Load, Resource, Sweep
from memlite.loadtest.results import Interval
from memlite.loadtest.units import duration

__all__ = ["REST", "WORKERS", "Inputs", "Model", "Prediction", "Use", "inputs_of", "models_of"]

WORKERS: Final = "proxies' workers"
"""The station that stands for the workers of proxies, where these have no trace."""

REST: Final = "rest"
"""The station without a queue that stands for all time not attributed to a measured processor."""

_AT_RANDOM: Final = (
    "requests arrive at random, no matter how many are waiting; service times are exponential"
)
_FEWEST_TO_FIT: Final = 4  # loads, for two times and a number of servers
_SERVERS: Final = (*range(1, 9), 12, 16, 24, 32, 48, 64)
_NOTHING: Final = 1e-8  # seconds
_MEASURED: Final = "processor time"
_TRACED: Final = "trace with the fewest clients"
_FITTED: Final = "fitted to throughput"
_CALIBRATED: Final = "response time with the fewest clients"


@dataclass(frozen=True, slots=True)
class Use:
    """A model's prediction for a station.

    Attributes:
        utilisation: its utilisation, from 0 to 1.
        queue_length: the mean number of requests there.
    """

    utilisation: float
    queue_length: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """A model's prediction for a load; unpredicted quantities are None.

    Attributes:
        clients: the number of requests in the whole system.
        throughput: requests per second; None if it is an input of the model.
        response_time: mean, in seconds; None if there is no steady state.
        uses: the use of each station, by name.
        measured: the response time to compare with, in seconds, with its interval, if it is a
            proxy's and not the clients'.
    """

    clients: int
    throughput: float | None
    response_time: float | None
    uses: dict[str, Use]
    measured: Interval | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model and what it predicts.

    Attributes:
        name: such as ``M/M/1``.
        describes: the part of the system that it models, with its parameters.
        assumes: its assumptions, in words.
        predictions: one for each load.
        clients: whether it knows how many clients there are; otherwise the measured throughput is
            its rate of arrivals.
        station: the station's name, for a single queue; empty for a network.
        by_load: whether it uses the demand measured at each load.
        fitted: the parameters that were fitted to the measurement, in seconds.
        servers: the station's number of servers.
    """

    name: str
    describes: str
    assumes: str
    predictions: tuple[Prediction, ...]
    clients: bool
    station: str = ""
    by_load: bool = False
    fitted: dict[str, Estimate] = field(default_factory=dict)
    servers: int = 1


@dataclass(frozen=True, slots=True)
class Inputs:
    """The stations of a target, with their service demands.

    Attributes:
        stations: in order; the last is `REST`.
        demands: each station's demand with its interval, in seconds.
        sources: where each demand comes from, in a few words.
        calibrated: the number of clients at which `REST` was determined, where predictions do not
            test the model; 0 if all loads were used.
        bounds: the bounds of throughput and response time at each load.
        bottleneck: the name of the station with the highest demand for each of its servers.
        knee: N*, the number of clients above which requests must wait, by asymptotic bounds.
    """

    stations: tuple[Station, ...]
    demands: dict[str, Estimate]
    sources: dict[str, str]
    calibrated: int
    bounds: tuple[Bounds, ...]
    bottleneck: str
    knee: float


def inputs_of(sweep: Sweep) -> Inputs | None:
    """Return the stations of a target; None if its loads are too few to find their demands."""
    stations = [
        Station(one.name, one.demand.value if one.demand else 0.0, one.servers)
        for one in sweep.resources
    ]
    unknown = [one.name for one in sweep.resources if one.demand is None]
    demands = {one.name: one.demand for one in sweep.resources if one.demand is not None}
    sources = {one.name: _TRACED if one.traced else _MEASURED for one in sweep.resources}
    loads = sweep.loads if unknown else sweep.loads[:1]
    if len({one.clients for one in loads}) < len(unknown) + 1:
        return None
    fit = fit_demands(
        [*stations, Station(REST, 0.0, 0)],
        [*unknown, REST],
        [one.clients for one in loads],
        [one.throughput.mean for one in loads],
        sweep.think_time if unknown else loads[0].think_time,
    )
    demands |= fit.demands
    sources |= dict.fromkeys(unknown, _FITTED)
    sources[REST] = _FITTED if unknown else _CALIBRATED
    queues = [one for one in fit.stations if one.servers]
    bottleneck = max(queues, key=lambda one: one.demand / one.servers)
    total = sweep.think_time + math.fsum(one.demand for one in fit.stations)
    slowest = bottleneck.demand / bottleneck.servers
    return Inputs(
        fit.stations,
        demands,
        sources,
        0 if unknown else sweep.loads[0].clients,
        tuple(
            balanced_job_bounds(fit.stations, one.clients, one.think_time) for one in sweep.loads
        ),
        bottleneck.name,
        total / slowest if slowest else math.inf,
    )


def models_of(sweep: Sweep, inputs: Inputs, servers: int | None = None) -> list[Model]:
    """Return the models for which there is data, the simplest first.

    Args:
        sweep: the measured loads.
        inputs: the stations.
        servers: how many requests the server can serve at a time, if known.
    """
    found = [_open(sweep, inputs, 1)]
    main = _main(inputs)
    if main.servers > 1:
        found.append(_open(sweep, inputs, main.servers))
    found.append(_closed(sweep, inputs))
    if len([one for one in inputs.stations if one.servers and one.demand]) > 1:
        found.append(_network(sweep, inputs))
    if all(one.demands.keys() >= {r.name for r in sweep.resources} for one in sweep.loads):
        found.append(_network_by_load(sweep, inputs))
    traced = any(load.traced for load in sweep.loads)
    if sweep.cores and not traced and all(one.demand for one in sweep.resources):
        found.append(_machine(sweep))
    fitted = _fitted(sweep, servers)
    return [*found, *([fitted] if fitted else []), *(_proxies(sweep) or _workers(sweep))]


def _main(inputs: Inputs) -> Station:
    """Return the busiest station that is not the load generator."""
    queues = [one for one in inputs.stations if one.servers and one.name != GENERATOR]
    return max(queues, key=lambda one: one.demand / one.servers)


def _time(seconds: float) -> str:
    if math.isinf(seconds):
        return "any time"
    return duration(seconds * 1e6) if seconds > _NOTHING else "0 µs"


# Single queues


def _open(sweep: Sweep, inputs: Inputs, servers: int) -> Model:
    main = _main(inputs)
    others = math.fsum(one.demand for one in inputs.stations) - main.demand
    # The single server of M/M/1 is as fast as all of the station's servers together.
    rate = servers / main.demand if servers == main.servers else main.servers / main.demand
    each = rate / servers
    predictions = []
    for load in sweep.loads:
        arrivals = load.throughput.mean
        queue = _open_queue(arrivals, each, servers)
        predictions.append(
            Prediction(load.clients, None, None, {main.name: Use(arrivals / rate, math.inf)})
            if queue is None
            else Prediction(
                load.clients,
                None,
                queue.response_time + others,
                {main.name: Use(queue.utilisation, queue.in_system)},
            )
        )
    name = "M/M/1" if servers == 1 else "M/M/m"
    workers = "one server" if servers == 1 else f"{servers} servers"
    return Model(
        name,
        f"{main.name} as {workers}, {_time(1 / each)} per request; {_time(others)} elsewhere",
        _AT_RANDOM,
        tuple(predictions),
        clients=False,
        station=main.name,
    )


def _closed(sweep: Sweep, inputs: Inputs) -> Model:
    main = _main(inputs)
    others = math.fsum(one.demand for one in inputs.stations) - main.demand
    return Model(
        f"closed M/M/{main.servers}",
        f"{main.name} with {main.servers} server{'s' if main.servers > 1 else ''}, "
        f"{_time(main.demand)} per request; {_time(others)} elsewhere, without a "
        "queue",
        "the measured number of clients, each with one request at a time; service times are "
        "exponential, and requests wait for nothing else",
        tuple(
            _repairman(load, main.name, others, 1 / main.demand, main.servers)
            for load in sweep.loads
        ),
        clients=True,
        station=main.name,
    )


def _repairman(load: Load, name: str, others: float, rate: float, servers: int) -> Prediction:
    queue = closed_mmm(load.clients, load.think_time + others, rate, servers)
    return Prediction(
        load.clients,
        queue.throughput,
        queue.response_time + others,
        {name: Use(queue.utilisation, queue.in_system)},
    )


def _machine(sweep: Sweep) -> Model:
    """All processes on the cores that they share."""
    total = math.fsum(one.demand.value for one in sweep.resources if one.demand)
    machine = Station("machine", total, sweep.cores)
    others = _rest([machine], sweep.loads[0]).demand
    return Model(
        "shared machine",
        f"the machine's {sweep.cores} cores, {_time(total)} per request in all processes; "
        f"{_time(others)} elsewhere, without a queue",
        "any core can run any process, one request at a time; service times are exponential",
        tuple(_repairman(load, "machine", others, 1 / total, sweep.cores) for load in sweep.loads),
        clients=True,
        station="machine",
    )


# Networks


def _network(sweep: Sweep, inputs: Inputs) -> Model:
    loads = list(zip(sweep.loads, _states(sweep, inputs), strict=True))
    return Model(
        "network",
        ", ".join(
            f"{one.name} {_time(one.demand)}"
            + (f" × {one.servers} servers" if one.servers > 1 else "")
            for one in inputs.stations
        ),
        "requests move from station to station independently; service times are exponential and "
        "the same at any load; stations do not slow each other down",
        tuple(
            Prediction(
                load.clients,
                state.throughput,
                state.response_time,
                {one.name: Use(one.utilisation, one.queue_length) for one in state.stations},
            )
            for load, state in loads
        ),
        clients=True,
    )


def _states(sweep: Sweep, inputs: Inputs) -> list[NetworkState]:
    """Return the state of the network at each load."""
    thinking = {load.think_time for load in sweep.loads}
    if len(thinking) == 1:
        # A solution covers all smaller numbers of clients.
        states = exact_mva(inputs.stations, sweep.loads[-1].clients, *thinking)
        return [states[load.clients - 1] for load in sweep.loads]
    return [exact_mva(inputs.stations, load.clients, load.think_time)[-1] for load in sweep.loads]


def _network_by_load(sweep: Sweep, inputs: Inputs) -> Model:
    predictions = []
    first = sweep.loads[0]
    rest = _rest(_at(first, inputs), first)
    for load in sweep.loads:
        state = exact_mva([*_at(load, inputs), rest], load.clients, load.think_time)[-1]
        predictions.append(
            Prediction(
                load.clients,
                state.throughput,
                state.response_time,
                {one.name: Use(one.utilisation, one.queue_length) for one in state.stations},
            )
        )
    return Model(
        "network, demands by load",
        "the same stations, with the processor time that a request took at each load",
        "as for the network, but a server may need less time per request when it has more requests",
        tuple(predictions),
        clients=True,
        by_load=True,
    )


def _at(load: Load, inputs: Inputs) -> list[Station]:
    """Return the stations with the demands of a load, without `REST`."""
    return [replace(one, demand=load.demands[one.name]) for one in inputs.stations[:-1]]


def _rest(stations: Sequence[Station], load: Load) -> Station:
    """Return the station without a queue with which the network has the throughput of a load."""
    fit = fit_demands(
        [*stations, Station(REST, 0.0, 0)],
        [REST],
        [load.clients],
        [load.throughput.mean],
        load.think_time,
    )
    return fit.stations[-1]


# Queues of proxies, by their traces


def _proxies(sweep: Sweep) -> list[Model]:
    traced = {name for load in sweep.loads for name in load.traced}
    return [_proxy(one, sweep) for one in sweep.resources if one.name in traced]


def _proxy(proxy: Resource, sweep: Sweep) -> Model:
    predictions = []
    name, workers = proxy.name, proxy.servers
    for load in sweep.loads:
        one = load.traced.get(name)
        if one is None or not one.service.mean:
            continue
        arrivals = load.arrivals(name)
        rate = 1 / one.service.mean
        queue = _open_queue(arrivals, rate, workers)
        predictions.append(
            Prediction(
                load.clients,
                None,
                queue.response_time if queue else None,
                {name: Use(arrivals / rate / workers, queue.in_system if queue else math.inf)},
                measured=Interval(one.queue.mean + one.service.mean),
            )
        )
    return Model(
        f"M/M/{workers} of {name}",
        f"the proxy's queue and its {workers} worker{'s' if workers > 1 else ''}, with the "
        "arrivals and service times from its trace at each load",
        _AT_RANDOM,
        tuple(predictions),
        clients=False,
        station=name,
        by_load=True,
    )


def _workers(sweep: Sweep) -> list[Model]:
    """Return the model of proxies' workers from their own counters, without a trace."""
    loads = [(load, load.workers) for load in sweep.loads if load.workers is not None]
    if not sweep.in_flight or not sweep.proxies or not loads:
        return []
    workers, name = sweep.in_flight, WORKERS
    predictions = []
    for load, one in loads:
        arrivals, rate = load.throughput.mean / sweep.proxies, 1 / one.service
        queue = _open_queue(arrivals, rate, workers)
        predictions.append(
            Prediction(
                load.clients,
                None,
                queue.response_time if queue else None,
                {name: Use(arrivals / rate / workers, queue.in_system if queue else math.inf)},
                measured=one.response,
            )
        )
    each = "the proxy's queue" if sweep.proxies == 1 else "the queue of each proxy"
    return [
        Model(
            "M/M/m of the proxies' workers",
            f"{each} and its {workers} worker{'s' if workers > 1 else ''}, with the arrivals and "
            "service times that they counted at each load",
            _AT_RANDOM,
            tuple(predictions),
            clients=False,
            station=name,
            by_load=True,
        )
    ]


# Stations that are not busy, but wait: a disk, a bucket, another server


def _fitted(sweep: Sweep, servers: int | None) -> Model | None:
    """Return the queue whose service time and number of servers best explain the throughputs."""
    loads = sweep.loads
    clients = [one.clients for one in loads]
    if len(set(clients)) < _FEWEST_TO_FIT:
        return None
    counts = [servers] if servers else [one for one in _SERVERS if one <= max(clients)]
    fit = best_queue(loads, counts)
    count, service, others = fit.servers, fit.service, fit.elsewhere.value
    return Model(
        f"fitted M/M/{count}",
        f"a server that processes {count} request{'s' if count > 1 else ''} at a time, "
        f"{_time(service.value)} each ({_time(service.interval[0])} to "
        f"{_time(service.interval[1])}); {_time(others)} elsewhere, without a "
        "queue",
        "as for the closed queue; its parameters were fitted to these throughputs, so agreement "
        "with them is not a test",
        tuple(_repairman(load, SERVER, others, 1 / service.value, count) for load in loads),
        clients=True,
        station=SERVER,
        fitted={"service time": service, "elsewhere": fit.elsewhere},
        servers=count,
    )


def _open_queue(arrivals: float, rate: float, servers: int) -> Queue | None:
    try:
        return mmm(arrivals, rate, servers)
    except UnstableError:
        return None
