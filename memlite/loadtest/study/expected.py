"""How long a study takes, told before it is measured."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memlite.loadtest.multigets.measuring import WARM_UP
from memlite.loadtest.study.design import Sweep
from memlite.loadtest.study.runs import Sweeps
from memlite.loadtest.targets import LaunchedServer, LaunchSettings

__all__ = ["expected_seconds", "start_seconds"]

# What takes processor time is counted in starts of a server, so that it fits the machine. These
# are from profiles of quick studies.
_MEASUREMENT: Final = 0.2  # what connecting and reading counters takes, besides the load
_CLUSTER: Final = 3.5  # to start some nodes and proxies, and to stop them
_THOUSAND_KEYS: Final = 0.5  # to store them
_REPORT: Final = 75.0  # models and figures


def start_seconds(folder: Path) -> float:
    """Return how long a server takes to start, on this machine and now.

    Args:
        folder: for its temporary files.

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
        sweeps: those of the study.
        missing: how many measurements of each sweep have not been made.
        runs: how many runs of the experiment have not been measured.
        multigets: how many measurements of gets of several keys have not been made.
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
