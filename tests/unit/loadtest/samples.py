"""Realistic sample results, generated from a simple model of a server under load."""

import functools
import random
from statistics import NormalDist

from memlite.loadtest.results import (
    Intervals,
    Knee,
    Repetition,
    Results,
    ServerUse,
    Slice,
    TargetInfo,
)
from memlite.loadtest.statistics import latency, new_histogram, point

CLIENTS = (10, 20, 40, 70, 100)

# For each server: its maximum throughput per second, the response time of an idle server in
# seconds, and the standard deviation of the logarithm of response times.
SPEED = {
    "memory": (41_200.0, 0.0006, 0.35),
    "file": (18_500.0, 0.0011, 0.6),
    "gcs": (1_450.0, 0.034, 0.45),
}
_QUANTILES = [NormalDist().inv_cdf((number + 0.5) / 250) for number in range(250)]


def speed(kind, clients):
    """Return operations per second and mean response time in seconds for a number of clients."""
    most, idle_time, _ = SPEED[kind]
    unlimited = clients / idle_time
    throughput = (unlimited**-3 + most**-3) ** (-1 / 3)
    return throughput, clients / throughput


def times(mean, sigma, count, noise):
    """Return a `Latency` of `count` lognormal response times; `mean` is in seconds."""
    histogram = new_histogram()
    scale = noise.lognormvariate(0, 0.02) * mean * 1e6 / 2.718281828 ** (sigma * sigma / 2)
    for quantile in _QUANTILES:
        value = max(1, round(scale * 2.718281828 ** (sigma * quantile)))
        histogram.record_value(value, max(1, count // len(_QUANTILES)))
    histogram.record_value(round(scale * 2.718281828 ** (sigma * 4.5)))
    return latency(histogram)


def repetition(number, kind, throughput, response, noise, *, seconds=4.0, **more):
    throughput *= noise.gauss(1, 0.012)
    sigma = SPEED[kind][2]
    operations = round(throughput * seconds)
    gets, sets = operations * 10 // 11, operations - operations * 10 // 11
    hits = round(gets * 0.93)
    whole = times(response, sigma, operations, noise)
    series = [
        Slice(
            second,
            round(throughput * noise.gauss(1, 0.03)),
            0,
            whole.p50 * noise.gauss(1, 0.03),
            whole.p99 * noise.lognormvariate(0, 0.15),
        )
        for second in range(int(seconds))
    ]
    arguments = {
        "hits": hits,
        "misses": gets - hits,
        "bytes_sent": operations * 60,
        "bytes_received": operations * 120,
        "response": {
            "get": times(response * 0.95, sigma, gets, noise),
            "set": times(response * 1.3, sigma, sets, noise),
            "all": whole,
        },
        "series": tuple(series),
        "intervals": intervals(throughput, whole, seconds, random.Random(number)),
        "server": ServerUse(
            seconds * min(0.98, throughput / SPEED[kind][0]),
            min(0.98, throughput / SPEED[kind][0]),
            38_000_000 + operations * 40,
        ),
        "generator_share": 0.62,
        "generator_cpu": 11.0,
    } | more
    return Repetition(number, 1_790_000_000.0 + number * 5, seconds, operations, **arguments)


def intervals(throughput, whole, seconds, noise):
    numbers = range(int(seconds * 10))
    return Intervals(
        0.1,
        tuple(round(throughput / 10 * noise.gauss(1, 0.02)) for _ in numbers),
        tuple(whole.p50 * noise.gauss(1, 0.03) for _ in numbers),
        tuple(whole.p99 * noise.lognormvariate(0, 0.15) for _ in numbers),
    )


def closed_points(kinds, clients, sizes, repetitions, noise):
    for kind in kinds:
        for size in sizes:
            for count in clients:
                throughput, response = speed(kind, count)
                slower = 1 + size / 20_000
                yield point(
                    kind,
                    count,
                    0.0,
                    size,
                    [
                        repetition(number, kind, throughput / slower, response * slower, noise)
                        for number in range(1, repetitions + 1)
                    ],
                )


def open_points(kinds, rates, repetitions, noise):
    for kind in kinds:
        most, idle_time, sigma = SPEED[kind]
        for rate in rates:
            utilisation = min(rate / most, 0.97)
            response = idle_time / (1 - utilisation) if rate < most else 1.5
            service = min(response, idle_time * (1 + utilisation))
            yield point(
                kind,
                50,
                rate,
                100,
                [
                    repetition(
                        number,
                        kind,
                        min(rate, most),
                        response,
                        noise,
                        service={"all": times(service, sigma, round(rate * 4), noise)},
                        lateness=90.0,
                    )
                    for number in range(1, repetitions + 1)
                ],
            )


def concurrent_points(kinds, clients, repetitions, noise):
    for kind in kinds:
        for count in clients:
            throughput, response = speed(kind, count)
            yield point(
                kind,
                count,
                0.0,
                100,
                [
                    concurrent_repetition(number, kind, count, throughput, response, noise)
                    for number in range(1, repetitions + 1)
                ],
            )


def concurrent_repetition(number, kind, clients, throughput, response, noise):
    seconds = noise.gauss(1, 0.02) * (0.004 + 0.0001 * clients + 2 * clients / throughput)
    sigma = SPEED[kind][2]
    return Repetition(
        number,
        1_790_000_000.0,
        seconds,
        2 * clients,
        hits=clients,
        response={
            "connect": times(response / 2, 0.3, clients * 5, noise),
            "set": times(response * 1.2, sigma, clients * 5, noise),
            "get": times(response, sigma, clients * 5, noise),
            "all": times(response, sigma, clients * 10, noise),
        },
        generator_share=0.4,
    )


@functools.cache
def results(
    *,
    kinds=("memory", "file", "gcs"),
    clients=CLIENTS,
    sizes=(100,),
    rates=(),
    repetitions=3,
    kind="steady",
    title="Backends compared",
    seed=1,
    knees=(),
    version="0.1.0",
):
    """Return the results of a run; the same arguments always give the same results."""
    noise = random.Random(seed)
    if kind == "concurrent":
        points = tuple(concurrent_points(kinds, clients, repetitions, noise))
    else:
        points = tuple(closed_points(kinds, clients, sizes, repetitions, noise))
        points += tuple(open_points(kinds, rates, repetitions, noise))
    return Results(
        title=title,
        started=1_790_000_000.0,
        seconds=412.5,
        partial=False,
        command=("memlite", "bench", "--clients", "10..100", "--seed", str(seed)),
        seed=seed,
        client="text",
        workers=2,
        machine={
            "cpu": "Example CPU at 2.8 GHz",
            "cores": 4,
            "memory_bytes": 16_000_000_000,
            "system": "Linux 6.1",
            "python": "3.11.7",
        },
        versions={"memlite": version, "uvloop": "0.21.0"},
        workload={
            "name": "read-mostly",
            "description": "ten gets for a set",
            "kind": kind,
            "mix": {"get": 10.0, "set": 1.0},
            "keys": {"count": 10_000, "distribution": "uniform"},
            "values": {"distribution": "fixed", "size": 100},
            "load": {"repetitions": repetitions, "duration": 4.0},
        },
        targets=tuple(
            TargetInfo(
                name, name, f"127.0.0.1:{11211 + index}", f"memlite {version}", details(name)
            )
            for index, name in enumerate(kinds)
        ),
        points=points,
        knees=knees,
    )


def details(kind):
    if kind == "gcs":
        return {"bucket": "emulator", "latency": "regional: 12 ms reads, 34 ms writes"}
    return {"durability": "interval"} if kind == "file" else {}


KNEE = Knee("memory", 40, 0.0, 40_100.0, 2_100.0, "throughput")
