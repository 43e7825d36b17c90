"""Shorthand for definitions of metrics: functions that return readers of a snapshot."""

from collections.abc import Callable, Iterable, Mapping

from memlite.telemetry.metrics.metric import Sample
from memlite.telemetry.snapshot import BackendStats, CounterValues, GeneralStats, Snapshot

__all__ = ["Read", "by_figure", "by_label", "counter", "figure", "figures_of", "general"]

Read = Callable[[Snapshot], Iterable[Sample]]
"""Returns the samples of a metric."""


def general(value: Callable[[GeneralStats], float]) -> Read:
    """Return a reader of a value among the general statistics."""
    return lambda snapshot: (Sample(value(snapshot.general)),)


def counter(value: Callable[[CounterValues], float]) -> Read:
    """Return a reader of a value among the counters."""
    return lambda snapshot: (Sample(value(snapshot.general.counters)),)


def by_label(values: Mapping[tuple[str, ...], Callable[[CounterValues], int]]) -> Read:
    """Return a reader of several counters.

    Args:
        values: for each combination of the labels' values, how its value is read.
    """

    def read(snapshot: Snapshot) -> list[Sample]:
        counters = snapshot.general.counters
        return [Sample(value(counters), labels) for labels, value in values.items()]

    return read


def figures_of(snapshot: Snapshot) -> Mapping[str, int | float | str]:
    """Return the figures that the backend reports; none without a backend."""
    storage = snapshot.storage
    return storage.figures if isinstance(storage, BackendStats) else {}


def figure(name: str) -> Read:
    """Return a reader of one of the backend's figures, with no sample where it does not exist."""

    def read(snapshot: Snapshot) -> tuple[Sample, ...]:
        found = figures_of(snapshot).get(name)
        return (Sample(found),) if isinstance(found, int | float) else ()

    return read


def by_figure(names: Mapping[str, str]) -> Read:
    """Return a reader of several of the backend's figures.

    Args:
        names: for each value of the label, the figure's name.
    """

    def read(snapshot: Snapshot) -> list[Sample]:
        figures = figures_of(snapshot)
        return [
            Sample(found, (label,))
            for label, name in names.items()
            if isinstance(found := figures.get(name), int | float)
        ]

    return read
