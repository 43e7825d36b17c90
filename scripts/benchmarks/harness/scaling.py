"""Predictions for machines with more cores, from measurements with several threads."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.workers import Sample

__all__ = ["CORES", "Row", "Scaling", "rows", "scalings"]

CORES: Final = (4, 8, 16)
"""The numbers of cores for which throughput is predicted."""

_FEWEST: Final = 3  # numbers of threads that the fit needs


@dataclass(frozen=True, slots=True)
class Row:
    """A server with a number of threads under a load: medians over the rounds.

    Attributes:
        load: the name of the load.
        server: a contestant's name.
        threads: its threads or workers.
        microseconds: processor time per operation, of all of them.
        relative: the same divided by that of one thread, within a round.
        efficiency: memcached's with as many threads divided by this server's, within a round.
        rate: operations per second.
        busiest: the share of the busiest of them, divided by the fair share.
    """

    load: str
    server: str
    threads: int
    microseconds: float
    relative: float
    efficiency: float
    rate: float
    busiest: float


@dataclass(frozen=True, slots=True)
class Scaling:
    """The Universal Scalability Law, fitted to a server's processor time under a load.

    Attributes:
        load: the name of the load.
        server: a contestant's name.
        contention: its σ.
        coherency: its κ.
        capacities: for each of `CORES`, the throughput relative to that of one core, and the bounds
            of its 95% confidence interval.
    """

    load: str
    server: str
    contention: float
    coherency: float
    capacities: tuple[tuple[float, float, float], ...]


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Return the medians; the first server is the reference."""
    costs = {_key(one): one.microseconds for one in samples}
    peer, least = samples[0].server, min(one.threads for one in samples)
    groups: dict[tuple[str, str, int], list[Sample]] = {}
    for one in samples:
        groups.setdefault((one.load, one.server, one.threads), []).append(one)
    median = statistics.median
    return [
        Row(
            *which,
            microseconds=median(one.microseconds for one in group),
            relative=median(
                one.microseconds / costs[one.load, one.round, one.server, least] for one in group
            ),
            efficiency=median(
                costs[one.load, one.round, peer, one.threads] / one.microseconds for one in group
            ),
            rate=median(one.rate for one in group),
            busiest=median(one.busiest for one in group),
        )
        for which, group in groups.items()
    ]


def _key(sample: Sample) -> tuple[str, int, str, int]:
    return sample.load, sample.round, sample.server, sample.threads


def scalings(samples: Sequence[Sample]) -> list[Scaling]:
    """Fit the law to each server under each load, if there are three numbers of threads.

    If N workers take c(N) seconds of processor time per operation, N busy cores carry out N / c(N)
    operations a second. That is the throughput in the law, so that
    c(N) = c(1) · (1 + σ(N − 1) + κN(N − 1)). Differences between rounds come from the machine, so
    each round is divided by its geometric mean.
    """
    if len({one.threads for one in samples}) < _FEWEST:
        return []
    from memlite.lab.scalability import fit_scalability  # needs numpy and scipy

    groups: dict[tuple[str, str], list[Sample]] = {}
    for one in samples:
        groups.setdefault((one.load, one.server), []).append(one)
    found = []
    for which, group in groups.items():
        points = list(_points(group))
        fit = fit_scalability(*zip(*points, strict=True), relative=True)
        capacities = tuple(
            tuple(one / fit.rate for one in (fit.throughput(cores), *fit.band(cores)))
            for cores in CORES
        )
        found.append(Scaling(*which, fit.contention, fit.coherency, capacities))
    return found


def _points(samples: Iterable[Sample]) -> Iterable[tuple[int, float]]:
    """Yield the threads and the capacity of each sample."""
    rounds: dict[int, list[Sample]] = {}
    for one in samples:
        rounds.setdefault(one.round, []).append(one)
    for group in rounds.values():
        rates = [one.threads / one.microseconds for one in group]
        mean = math.exp(statistics.fmean(map(math.log, rates)))
        yield from ((one.threads, rate / mean) for one, rate in zip(group, rates, strict=True))
