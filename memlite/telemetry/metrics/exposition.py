"""Metrics as text: Prometheus's format 0.0.4 and OpenMetrics 1.0.0.

The formats are described at prometheus.io, "Exposition formats", and in OpenMetrics' specification
1.0.0. The event loop serves no client while this runs, so memlite does not use prometheus_client,
which takes some eight times as long for the same text.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from memlite.telemetry.metrics.metric import Metric, Value
from memlite.telemetry.snapshot import DURATION_LIMITS, Durations, Exemplar, Snapshot

__all__ = ["OPENMETRICS", "TEXT", "render", "wants_openmetrics"]

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_EDGES: Final = tuple(repr(limit / 1e9) for limit in DURATION_LIMITS)
_OPENMETRICS_TYPE: Final = re.compile(r"application/openmetrics-text\s*(;|$)")
_QUALITY: Final = re.compile(r";\s*q=0(\.0*)?\s*(;|$)")


def wants_openmetrics(accept: str) -> bool:
    """Return whether a scraper's ``Accept`` header names OpenMetrics, as Prometheus's does."""
    return any(
        _OPENMETRICS_TYPE.match(one.strip().lower()) and not _QUALITY.search(one)
        for one in accept.split(",")
    )


def render(metrics: Iterable[Metric], snapshot: Snapshot, *, openmetrics: bool) -> bytes:
    """Return the metrics as text, without those that have no samples.

    Args:
        metrics: the metrics.
        snapshot: the snapshot with their values.
        openmetrics: whether to write OpenMetrics, or else Prometheus's own format.
    """
    lines: list[str] = []
    for metric in metrics:
        samples = list(metric.read(snapshot))
        if not samples:
            continue
        lines += _head(metric, openmetrics)
        for value, labels in samples:
            lines += _lines(metric, value, labels, exemplars=openmetrics)
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


@lru_cache(maxsize=512)
def _head(metric: Metric, openmetrics: bool) -> tuple[str, ...]:
    """Return the lines that describe a metric."""
    name, kind, meaning = metric.name, metric.kind, _escaped(metric.meaning)
    if not openmetrics:
        return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"
    family, known = name, str(kind)
    if kind == "counter":
        # OpenMetrics requires this suffix, which some of memcached_exporter's counters lack.
        family = name.removesuffix("_total")
        known = kind if family != name else "unknown"
    unit = metric.unit
    units = (f"# UNIT {family} {unit}",) if unit and family.endswith(f"_{unit}") else ()
    return f"# TYPE {family} {known}", *units, f"# HELP {family} {meaning}"


def _lines(
    metric: Metric, value: Value, labels: tuple[str, ...], *, exemplars: bool
) -> Iterator[str]:
    if not isinstance(value, Durations):
        yield f"{_series(metric.name, metric.labels, labels)} {value!r}"
        return
    starts = _buckets(metric.name, metric.labels, labels)
    shown = value.exemplars if exemplars else {}
    for index, (start, below) in enumerate(zip(starts, (*value.below, value.samples), strict=True)):
        exemplar = shown.get(index) if shown else None
        yield f"{start} {below}" if exemplar is None else f"{start} {below}{_as_text(exemplar)}"
    yield f"{_series(metric.name + '_sum', metric.labels, labels)} {value.total / 1e9!r}"
    yield f"{_series(metric.name + '_count', metric.labels, labels)} {value.samples}"


def _as_text(exemplar: Exemplar) -> str:
    """Return an exemplar in OpenMetrics format, to follow a bucket's value."""
    span = exemplar.span
    named = f'{{trace_id="{span.trace:032x}",span_id="{span.span:016x}"}}'
    return f" # {named} {exemplar.nanoseconds / 1e9!r} {exemplar.time / 1e9:.3f}"


# Labels have few values, all known beforehand, so their text is cached.
@lru_cache(maxsize=2048)
def _series(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return a sample's line up to its value."""
    if not labels:
        return name
    pairs = zip(labels, values, strict=True)
    shown = ",".join(f'{label}="{_quoted(value)}"' for label, value in pairs)
    return f"{name}{{{shown}}}"


@lru_cache(maxsize=256)
def _buckets(name: str, labels: tuple[str, ...], values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of a histogram's buckets up to their values.

    The label ``le`` means "at most", while the counts are of durations below the limit. Durations
    are whole nanoseconds, so the exact label would be only one nanosecond less.
    """
    return tuple(
        _series(f"{name}_bucket", (*labels, "le"), (*values, edge)) for edge in (*_EDGES, "+Inf")
    )


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
