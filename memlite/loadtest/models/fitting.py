"""A queue whose parameters fit the throughputs of a closed loop best."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from memlite.lab import Estimate, closed_mmm
from memlite.loadtest.models.sweep import Load

__all__ = ["QueueFit", "best_queue"]

_Floats = npt.NDArray[np.float64]
_CONFIDENCE: Final = 0.95
_SHORTEST: Final = 1e-6  # as a share of the longest cycle


@dataclass(frozen=True, slots=True)
class QueueFit:
    """A closed M/M/m, fitted to measured throughputs.

    Attributes:
        servers: the number of servers.
        service: the time that a server takes for a request, in seconds.
        elsewhere: the time that a request spends elsewhere, without queueing, in seconds.
        deviation: the standard deviation of the measured throughputs from the fitted ones, as a
            share of them.
    """

    servers: int
    service: Estimate
    elsewhere: Estimate
    deviation: float


def best_queue(loads: Sequence[Load], servers: Sequence[int]) -> QueueFit:
    """Find the queue that fits best: a nonlinear regression for each number of servers.

    The logarithms of throughputs are fitted. Unlike for a network of stations, the computing time
    for a single queue grows only with the number of clients, so thousands of them are no problem.

    An interval is the wider of two: by how far the loads' means are from the fit, and by how much
    repetitions of a load differ. A few loads may happen to lie close to the curve although each is
    uncertain; and a queue that does not fit may be off by more than repetitions differ. (Draper and
    Smith, *Applied Regression Analysis*, third edition (1998), section 2.1: lack of fit and pure
    error.)

    Args:
        loads: three or more.
        servers: the numbers of servers to try; more servers than clients make no difference.
    """
    return min((_fit(loads, one) for one in servers), key=lambda one: one.deviation)


def _fit(loads: Sequence[Load], servers: int) -> QueueFit:
    # Imported here because they are slow to import.
    from scipy.optimize import OptimizeWarning, curve_fit
    from scipy.special import stdtrit

    measured = np.log([one.throughput.mean for one in loads])

    def predicted(_: _Floats, service: float, elsewhere: float) -> _Floats:
        return np.log(
            [
                closed_mmm(
                    one.clients,
                    one.think_time + math.exp(elsewhere),
                    math.exp(-service),
                    servers,
                ).throughput
                for one in loads
            ]
        )

    cycle = max(one.clients / one.throughput.mean for one in loads)
    lowest, highest = math.log(cycle * _SHORTEST), math.log(cycle * 1e3)
    fastest = max(one.throughput.mean for one in loads)
    start = np.log([servers / fastest, loads[0].response_time.mean / 2])
    with warnings.catch_warnings():
        # If the covariance cannot be estimated, the intervals are infinite; no warning is needed.
        warnings.simplefilter("ignore", OptimizeWarning)
        # The covariance is that of points with a standard deviation of 1; it is scaled below.
        found, covariance = curve_fit(
            predicted,
            np.array([one.clients for one in loads], float),
            measured,
            np.clip(start, lowest + 1e-6, highest - 1e-6),
            bounds=(lowest, highest),
            xtol=1e-10,
            ftol=1e-12,
            absolute_sigma=True,
        )
    missed = predicted(measured, *found) - measured
    freedom = len(loads) - 2
    deviation = math.sqrt(float((missed**2).sum()) / freedom)
    widths = [
        float(stdtrit(degrees, (1 + _CONFIDENCE) / 2)) * error
        for error, degrees in ((deviation, freedom), _between_repetitions(loads))
        if degrees
    ]
    reach = max(widths) * np.sqrt(np.diag(covariance))
    service, elsewhere = (
        Estimate(math.exp(value), _exp(value - width), _exp(value + width))
        for value, width in zip(found.tolist(), reach.tolist(), strict=True)
    )
    return QueueFit(servers, service, elsewhere, deviation)


def _between_repetitions(loads: Sequence[Load]) -> tuple[float, int]:
    """Return the standard error of a load's mean, as a share of it, and its degrees of freedom."""
    repeated = [np.log(one.rates) for one in loads if len(one.rates) > 1]
    if not repeated:
        return 0.0, 0
    variances = [float(one.var(ddof=1)) / len(one) for one in repeated]
    return math.sqrt(math.fsum(variances) / len(variances)), sum(len(one) - 1 for one in repeated)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
