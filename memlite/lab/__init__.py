"""Models of measured systems: queues, networks of queues, scalability, factorial experiments.

Everything here is a function of numbers: of rates, times and measured values. Times are in seconds
and rates per second throughout, unless all arguments of a function are in another unit of time.
Needs the extra ``bench``.
"""

from memlite.lab.capacity import sustainable_rate
from memlite.lab.factorial import analyse_factorial
from memlite.lab.factorial_models import Models, compare_models
from memlite.lab.factorial_result import Effect, Estimate, FactorialResult
from memlite.lab.network import NetworkState, Station, StationState, approximate_mva, exact_mva
from memlite.lab.queues import (
    Queue,
    UnstableError,
    closed_mmm,
    mg1,
    mm1,
    mmm,
    mmmk,
)
from memlite.lab.scalability import Scalability, fit_scalability

__all__ = [
    "Effect",
    "Estimate",
    "FactorialResult",
    "Models",
    "NetworkState",
    "Queue",
    "Scalability",
    "Station",
    "StationState",
    "UnstableError",
    "analyse_factorial",
    "approximate_mva",
    "closed_mmm",
    "compare_models",
    "exact_mva",
    "fit_scalability",
    "mg1",
    "mm1",
    "mmm",
    "mmmk",
    "sustainable_rate",
]
