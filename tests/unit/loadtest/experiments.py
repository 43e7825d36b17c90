"""Factorial experiments with known effects, as if they had been measured."""

import dataclasses
import math
import random
from collections.abc import Callable, Sequence

from memlite.loadtest.factorial.analysis import Analysis, analyse
from memlite.loadtest.factorial.design import Design, design_of
from memlite.loadtest.factorial.runs import Measured
from memlite.loadtest.statistics import point
from tests.unit.loadtest.samples import results

Experiment = tuple[Design, list[Measured], list[Analysis]]


def experiment(
    factors: Sequence[str],
    throughput: Callable[..., float],
    *,
    repetitions: int = 3,
    noise: float = 0.01,
    multiplies: bool = True,
) -> Experiment:
    """Return an experiment.

    Args:
        factors: the values of the ``--factor`` options.
        throughput: the throughput of a run with these levels, without noise.
        repetitions: how often each combination is measured.
        noise: the standard deviation of errors: of the logarithm, or as a share of 1,000.
        multiplies: whether errors multiply rather than add.
    """
    design = design_of(factors, [], repetitions, 1)
    measured = [
        _measured(run, number, throughput(*run.levels), noise, multiplies=multiplies)
        for number, run in enumerate(design.runs)
    ]
    return design, measured, analyse(design, measured)


def _measured(run, order, expected, noise, *, multiplies):
    source = random.Random(f"{run.name}")
    error = source.gauss(0, noise)
    throughput = expected * math.exp(error) if multiplies else expected + 1000 * error
    made = results(kinds=("memory",), clients=(10,))
    one = made.points[0].repetitions[0]
    one = dataclasses.replace(one, seconds=10.0, operations=round(throughput * 10))
    only = point("memory", 10, 0.0, 100, [one])
    return Measured(
        run, dataclasses.replace(made, points=(only,), bursts=(), started=1_800_000_000.0 + order)
    )
