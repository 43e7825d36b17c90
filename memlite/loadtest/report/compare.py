"""Several runs as if they were one, whose targets are told apart by the run's name."""

import dataclasses
from collections.abc import Sequence

from memlite.errors import ConfigError
from memlite.loadtest.results import Results

__all__ = ["cautions", "combine", "names"]


def names(runs: Sequence[Results]) -> list[str]:
    """Return what to call each run: its title, else memlite's version, else its number."""
    titles = [run.title for run in runs]
    versions = [run.versions.get("memlite", "") for run in runs]
    for found in (titles, versions):
        if all(found) and len(set(found)) == len(found):
            return found
    return [f"run {number}" for number in range(1, len(runs) + 1)]


def combine(runs: Sequence[Results]) -> Results:
    """Return the points of all runs in one, for pictures and sentences.

    Args:
        runs: one or more; with one, it is returned as it is.

    Raises:
        ConfigError: there is none, or they measured different things.
    """
    if not runs:
        raise ConfigError("there are no results to report")
    if len(runs) == 1:
        return runs[0]
    if len({run.workload.get("kind", "steady") for run in runs}) > 1:
        raise ConfigError("runs of a concurrent and of a steady workload cannot be compared")
    called = list(zip(names(runs), runs, strict=True))
    return dataclasses.replace(
        runs[0],
        title=" and ".join(name for name, _ in called),
        seconds=sum(run.seconds for run in runs),
        partial=any(run.partial for run in runs),
        targets=tuple(
            dataclasses.replace(target, name=f"{target.name} ({name})")
            for name, run in called
            for target in run.targets
        ),
        points=tuple(
            dataclasses.replace(point, target=f"{point.target} ({name})")
            for name, run in called
            for point in run.points
        ),
        bursts=tuple(
            dataclasses.replace(point, target=f"{point.target} ({name})")
            for name, run in called
            for point in run.bursts
        ),
        knees=tuple(
            dataclasses.replace(knee, target=f"{knee.target} ({name})")
            for name, run in called
            for knee in run.knees
        ),
    )


def cautions(runs: Sequence[Results]) -> list[str]:
    """Return, in sentences, what else than their targets told the runs apart."""
    differing = [
        what
        for what, found in (
            ("workloads", [run.workload for run in runs]),
            ("machines", [run.machine for run in runs]),
            ("clients", [run.client for run in runs]),
        )
        if any(one != found[0] for one in found)
    ]
    if not differing:
        return []
    return [
        (
            f"The runs had different {' and '.join(differing)}: differences between them may come "
            "from that."
        )
    ]
