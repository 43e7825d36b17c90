"""Combine several runs into one whose target names include the name of the run."""

import dataclasses
from collections.abc import Sequence

from memlite.core.errors import ConfigError
from memlite.loadtest.results import Results

__all__ = ["combine", "comparison_warnings", "names"]


def names(runs: Sequence[Results]) -> list[str]:
    """Return a name for each run: titles if they are unique, else versions, else numbers."""
    titles = [run.title for run in runs]
    versions = [run.versions.get("memlite", "") for run in runs]
    for candidates in (titles, versions):
        if all(candidates) and len(set(candidates)) == len(candidates):
            return candidates
    return [f"run {number}" for number in range(1, len(runs) + 1)]


def combine(runs: Sequence[Results]) -> Results:
    """Combine the points of all runs, for plots and the verdict.

    Args:
        runs: one or more; a single run is returned unchanged.

    Raises:
        ConfigError: there are no runs, or they are not comparable.
    """
    if not runs:
        raise ConfigError("there are no results to report")
    if len(runs) == 1:
        return runs[0]
    if len({run.workload.get("kind", "steady") for run in runs}) > 1:
        raise ConfigError("runs of a concurrent and of a steady workload cannot be compared")
    named = list(zip(names(runs), runs, strict=True))
    return dataclasses.replace(
        runs[0],
        title=" and ".join(name for name, _ in named),
        seconds=sum(run.seconds for run in runs),
        partial=any(run.partial for run in runs),
        failure="; ".join(run.failure for run in runs if run.failure),
        targets=tuple(
            dataclasses.replace(target, name=f"{target.name} ({name})")
            for name, run in named
            for target in run.targets
        ),
        points=tuple(
            dataclasses.replace(point, target=f"{point.target} ({name})")
            for name, run in named
            for point in run.points
        ),
        bursts=tuple(
            dataclasses.replace(point, target=f"{point.target} ({name})")
            for name, run in named
            for point in run.bursts
        ),
        knees=tuple(
            dataclasses.replace(knee, target=f"{knee.target} ({name})")
            for name, run in named
            for knee in run.knees
        ),
    )


def comparison_warnings(runs: Sequence[Results]) -> list[str]:
    """Return warnings about conditions, other than the targets, that differ between the runs."""
    differing = [
        condition
        for condition, values in (
            ("workloads", [run.workload for run in runs]),
            ("machines", [run.machine for run in runs]),
            ("clients", [run.client for run in runs]),
        )
        if any(value != values[0] for value in values)
    ]
    if not differing:
        return []
    return [
        (
            f"The runs had different {' and '.join(differing)}, which may explain differences "
            "between them."
        )
    ]
