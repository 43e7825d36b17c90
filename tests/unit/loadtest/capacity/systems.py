"""Measurements of systems whose capacity is known: networks of queues, solved exactly."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

from memlite.lab import Station, exact_mva
from memlite.loadtest.results import (
    ClusterInfo,
    Latency,
    Point,
    Repetition,
    Results,
    ServerUse,
    TargetInfo,
)
from memlite.loadtest.statistics import latency, new_histogram, point
from tests.unit.loadtest.samples import results

SECONDS = 4.0
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
# The relative throughput of the repetitions.
NOISE = (0.99, 1.0, 1.01)


def system(
    *,
    demand: float = 10.0,
    proxy: float = 0.0,
    network: float = 100.0,
    nodes: int = 0,
    kind: str = "memory",
    clients: Sequence[int] = CLIENTS,
    size: int = 100,
    slowdown: float = 1.0,
    noise: Sequence[float] = NOISE,
    hits: float = 1.0,
) -> Results:
    """Return the results of a closed loop with a server, or with nodes and perhaps a proxy.

    Args:
        demand: processor time of an operation at the server, or at all nodes, in microseconds.
        proxy: processor time of an operation at the proxy, in microseconds.
        network: time without a queue, in microseconds.
        nodes: the number of nodes; 0 for a single server.
        kind: the backend.
        clients: the loads.
        size: the size of values.
        slowdown: the factor by which everything took longer than these demands explain.
        noise: the throughput of each repetition, relative to that of the network of queues.
        hits: the share of reads that found an item.
    """
    stations = [Station(f"node-{one}", demand / max(1, nodes)) for one in range(max(1, nodes))]
    if proxy:
        stations.append(Station("proxy", proxy))
    states = exact_mva([*stations, Station("network", network, 0)], clients=max(clients))
    path = "proxied" if proxy else "direct"
    name = f"{nodes} nodes, {path}" if nodes else kind
    points: list[Point] = []
    for count in clients:
        state = states[count - 1]
        repetitions = [
            _repetition(
                number,
                state.throughput * 1e6 / slowdown * factor,
                state.response_time * slowdown / factor,
                {station.name: station.demand for station in stations},
                single=not nodes,
                hits=hits,
            )
            for number, factor in enumerate(noise, 1)
        ]
        points.append(point(name, count, 0.0, size, repetitions))
    cluster = ClusterInfo(nodes, path) if nodes else None
    target = TargetInfo(name, "cluster" if nodes else kind, "127.0.0.1:1", cluster=cluster)
    return dataclasses.replace(results(), targets=(target,), points=tuple(points))


def _repetition(
    number: int,
    throughput: float,
    response: float,
    demands: Mapping[str, float],
    *,
    single: bool,
    hits: float,
) -> Repetition:
    operations = round(throughput * SECONDS)
    processes = {
        name: ServerUse(operations * demand / 1e6, throughput * demand / 1e6, 100_000_000)
        for name, demand in demands.items()
    }
    return Repetition(
        number,
        1_790_000_000.0,
        SECONDS,
        operations,
        hits=round(operations * hits),
        misses=operations - round(operations * hits),
        response={"all": _exponential(response)},
        server=processes["node-0"] if single else None,
        processes={} if single else processes,
        generator_share=0.4,
    )


@functools.cache
def _exponential(mean: float) -> Latency:
    """Return exponentially distributed response times, as those of a single queue nearly are."""
    histogram = new_histogram()
    for quantile in range(1000):
        histogram.record_value(max(1, round(-math.log(1 - (quantile + 0.5) / 1000) * mean)))
    return latency(histogram)
