"""Models of measured systems: queues, networks of queues, scalability, factorial experiments.

Everything here is a function of numbers: of rates, times and measured values. Times are in seconds
and rates per second throughout, unless all arguments of a function are in another unit of time.
Needs the extra ``bench``.
"""

from memlite.lab.bounds import Bounds, asymptotic_bounds, balanced_job_bounds
from memlite.lab.capacity import sustainable_rate
from memlite.lab.demands import NetworkFit, fit_demands, service_demand
from memlite.lab.estimate import Estimate
from memlite.lab.factorial import analyse_factorial
from memlite.lab.factorial_models import Models, compare_models
from memlite.lab.factorial_result import Effect, FactorialResult
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
from memlite.lab.times import Exponentiality, Times, exponentiality

__all__ = [
    "Bounds",
    "Effect",
    "Estimate",
    "Exponentiality",
    "FactorialResult",
    "Models",
    "NetworkFit",
    "NetworkState",
    "Queue",
    "Scalability",
    "Station",
    "StationState",
    "Times",
    "UnstableError",
    "analyse_factorial",
    "approximate_mva",
    "asymptotic_bounds",
    "balanced_job_bounds",
    "closed_mmm",
    "compare_models",
    "exact_mva",
    "exponentiality",
    "fit_demands",
    "fit_scalability",
    "mg1",
    "mm1",
    "mmm",
    "mmmk",
    "service_demand",
    "sustainable_rate",
]
