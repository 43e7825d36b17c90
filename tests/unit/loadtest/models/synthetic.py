"""Results of systems with known stations, as a perfect measurement would find them."""

import random
from collections.abc import Callable, Mapping, Sequence

from memlite.lab import Station, exact_mva
from memlite.loadtest.results import (
    Latency,
    MachineUse,
    Point,
    Repetition,
    Results,
    ServerUse,
    TargetInfo,
)
from memlite.loadtest.statistics import point

CLIENTS = (1, 2, 4, 8, 16, 32)
STARTED = 1_790_000_000.0
SECONDS = 2.0


def repetition(
    number: int,
    started: float,
    throughput: float,
    response_time: float,
    demands: Mapping[str, float],
    *,
    generator: float = 0.0,
    threads: int = 1,
) -> Repetition:
    """Return a repetition; times are in seconds, and demands are those of processes."""
    uses = {
        name: ServerUse(
            throughput * demand * SECONDS,
            throughput * demand,
            1_000_000,
            throughput * demand / threads,
        )
        for name, demand in demands.items()
    }
    total = sum(one.cpu_seconds for one in uses.values())
    count = round(throughput * SECONDS)
    return Repetition(
        number,
        started,
        SECONDS,
        count,
        response={"all": Latency(count, response_time * 1e6)},
        server=ServerUse(total, total / SECONDS, 1_000_000, total / SECONDS / threads)
        if demands
        else None,
        generator_cpu=generator * 1e6,
        processes=uses if len(uses) > 1 else {},
        machine=MachineUse(0.01, 0.0),
    )


def points(
    name: str,
    stations: Sequence[Station],
    demands: Callable[[int], Mapping[str, float]],
    *,
    generator: float = 0.0,
    noise: float = 0.01,
    threads: int = 1,
    clients: Sequence[int] = CLIENTS,
) -> list[Point]:
    """Return the points of a target that behaves like a network.

    Args:
        name: the name of the target.
        stations: the stations of the network.
        demands: processor times of the target's processes with a number of clients.
        generator: processor time of the load generator.
        noise: the standard deviation of throughputs, as a share of them.
        threads: the number of threads that share processor time evenly.
        clients: the loads.
    """
    chance = random.Random(4)
    states = exact_mva(stations, max(clients))
    found = []
    for index, count in enumerate(clients):
        repetitions = []
        for number in range(1, 4):
            throughput = states[count - 1].throughput * chance.gauss(1, noise)
            started = STARTED + index * 100 + number * 10
            repetitions.append(
                repetition(
                    number, started, throughput, count / throughput, demands(count),
                    generator=generator, threads=threads,
                )
            )  # fmt: skip
        found.append(point(name, count, 0.0, 100, repetitions))
    return found


def results(measured: Sequence[Point], cores: int = 8) -> Results:
    names = dict.fromkeys(one.target for one in measured)
    return Results(
        title="synthetic",
        started=STARTED,
        seconds=1000.0,
        partial=False,
        command=("memlite", "bench"),
        seed=1,
        client="text",
        workers=1,
        machine={"cores": cores},
        versions={},
        workload={"name": "mixed", "kind": "steady", "load": {"pipeline": 1}},
        targets=tuple(TargetInfo(name, "server", "127.0.0.1:1") for name in names),
        points=tuple(measured),
    )
