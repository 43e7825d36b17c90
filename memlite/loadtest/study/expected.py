"""Estimates how long a study takes before it is measured."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memlite.loadtest.multigets.measuring import WARM_UP
from memlite.loadtest.study.design import Sweep
from memlite.loadtest.study.runs import Sweeps
from memlite.loadtest.targets import LaunchedServer, LaunchSettings

__all__ = ["expected_seconds", "start_seconds"]

# The time of steps that are CPU-bound is in units of a server's start time, so that it scales with
# the machine. The figures are from profiles of quick studies.
_MEASUREMENT: Final = 0.2  # connecting and reading counters, besides the load
_CLUSTER: Final = 3.5  # starting and stopping a few nodes and proxies
_THOUSAND_KEYS: Final = 0.5  # storing them
_REPORT: Final = 75.0  # models and figures


def start_seconds(folder: Path) -> float:
    """Return how long a server takes to start, on this machine and now.

    Args:
        folder: the folder for its temporary files.

    Raises:
        StartError: it does not start.
    """
    began = time.monotonic()
    with LaunchedServer("a server", "memory", LaunchSettings(folder)):
        return time.monotonic() - began


def expected_seconds(
    sweeps: Sweeps, missing: Mapping[Sweep, int], runs: int, multigets: int, start: float
) -> float:
    """Return how long the rest of a study takes, in seconds.

    Args:
        sweeps: the sweeps of the study.
        missing: the number of missing measurements of each sweep.
        runs: the number of missing runs of the experiment.
        multigets: the number of missing multi-get measurements.
        start: how long a server takes to start, in seconds.
    """
    study = sweeps.study
    measurements, clusters = runs, runs + bool(multigets)
    for sweep, plan in sweeps.plans().items():
        measurements += missing[sweep]
        clusters += len(plan.targets) if missing[sweep] else 0
    seconds = measurements * (study.scale.warm_up + study.scale.duration)
    seconds += multigets * (WARM_UP + study.multigets.duration)
    work = (measurements + multigets) * _MEASUREMENT + _REPORT
    work += clusters * (_CLUSTER + study.multigets.keys / 1000 * _THOUSAND_KEYS)
    return seconds + work * start
