"""Checks and models of measured systems: laws, steady states, queues, scalability, experiments.

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
from memlite.lab.laws import (
    ClosedLoopCheck,
    OpenLoopCheck,
    check_closed_loop,
    check_open_loop,
    in_system,
    interactive_response_time,
)
from memlite.lab.network import NetworkState, Station, StationState, approximate_mva, exact_mva
from memlite.lab.outliers import Stall, find_outliers, find_stalls, outlier_threshold
from memlite.lab.plots import network_figure, scalability_figure
from memlite.lab.queues import (
    Queue,
    UnstableError,
    closed_mmm,
    mg1,
    mm1,
    mmm,
    mmmk,
)
from memlite.lab.saturation import LoadRange, LoadState, Saturation, find_saturation
from memlite.lab.scalability import Scalability, fit_scalability
from memlite.lab.stationarity import BatchMeans, Trend, batch_means, find_trend
from memlite.lab.times import Exponentiality, Times, exponentiality
from memlite.lab.warmup import Transients, find_transients, mser

__all__ = [
    "BatchMeans",
    "Bounds",
    "ClosedLoopCheck",
    "Effect",
    "Estimate",
    "Exponentiality",
    "FactorialResult",
    "LoadRange",
    "LoadState",
    "Models",
    "NetworkFit",
    "NetworkState",
    "OpenLoopCheck",
    "Queue",
    "Saturation",
    "Scalability",
    "Stall",
    "Station",
    "StationState",
    "Times",
    "Transients",
    "Trend",
    "UnstableError",
    "analyse_factorial",
    "approximate_mva",
    "asymptotic_bounds",
    "balanced_job_bounds",
    "batch_means",
    "check_closed_loop",
    "check_open_loop",
    "closed_mmm",
    "compare_models",
    "exact_mva",
    "exponentiality",
    "find_outliers",
    "find_saturation",
    "find_stalls",
    "find_transients",
    "find_trend",
    "fit_demands",
    "fit_scalability",
    "in_system",
    "interactive_response_time",
    "mg1",
    "mm1",
    "mmm",
    "mmmk",
    "mser",
    "network_figure",
    "outlier_threshold",
    "scalability_figure",
    "service_demand",
    "sustainable_rate",
]
