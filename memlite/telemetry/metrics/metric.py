"""The definition of a metric: a name, a meaning, and how to read its values from a snapshot."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from memlite.telemetry.snapshot import Durations, Snapshot

__all__ = ["Kind", "Metric", "Sample", "Value"]

Kind = Literal["counter", "gauge", "histogram"]

Value = int | float | Durations
"""A value of a metric; for a histogram, always `Durations`."""


class Sample(NamedTuple):
    """A value of a metric at one moment.

    Attributes:
        value: the value.
        labels: the labels' values, in the order of `Metric.labels`.
    """

    value: Value
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, under a name by Prometheus's conventions.

    The source of the rules is prometheus.io, "Metric and label naming": base units, the unit at the
    end of the name, ``_total`` for counters.

    Attributes:
        name: the name.
        kind: a ``counter`` only grows, until the server restarts or ``stats reset`` is sent.
        meaning: its meaning, in a sentence.
        read: returns its samples; none if the server lacks the feature that it measures.
        unit: ``seconds``, ``bytes`` or nothing, as at the end of the name.
        labels: the names of its labels.
    """

    name: str
    kind: Kind
    meaning: str
    read: Callable[[Snapshot], Iterable[Sample]]
    unit: str = ""
    labels: tuple[str, ...] = ()
