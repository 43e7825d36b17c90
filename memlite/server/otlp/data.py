"""Metrics and spans in the types of OpenTelemetry's SDK.

The SDK's instruments are not used: none of them can observe an existing histogram, and its spans
cost more than a request served from memory. Instead, the exporting thread converts a snapshot and
finished spans.
"""

from collections.abc import Iterable, Sequence
from typing import Final, cast

from opentelemetry.sdk.metrics import Exemplar as ExemplarPoint
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from memlite.core.version import __version__
from memlite.telemetry.metrics.metric import Metric, Sample
from memlite.telemetry.snapshot import DURATION_LIMITS, Durations, Snapshot
from memlite.telemetry.spans import Span, SpanName

__all__ = ["Cumulative", "readable"]

_SCOPE: Final = InstrumentationScope("memlite", __version__)
_UNITS: Final = {"seconds": "s", "bytes": "By", "": ""}
_EDGES: Final = tuple(limit / 1e9 for limit in DURATION_LIMITS)
_UNKNOWN: Final = cast(float, None)
"""The minimum and maximum, which `Durations` does not have; they are optional in the protocol."""
_KINDS: Final = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "internal": SpanKind.INTERNAL,
}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class Cumulative:
    """Converts snapshots to OpenTelemetry's metrics, and tracks the start time of each series.

    A receiver needs the time from which a sum counts. After ``stats reset``, sums that have become
    smaller get a new start time.

    Args:
        metrics: the metrics.
        resource: the resource that they describe.
    """

    def __init__(self, metrics: Iterable[Metric], resource: Resource) -> None:
        self._metrics = tuple(metrics)
        self._resource = resource
        self._seen: dict[tuple[str, tuple[str, ...]], tuple[int, float]] = {}
        self._last = 0

    def data(self, snapshot: Snapshot) -> sdk.MetricsData:
        """Return the metrics of a snapshot; snapshots must be passed in order."""
        general = snapshot.general
        now, begun = int(general.time * 1e9), int((general.time - general.uptime) * 1e9)
        found = [
            sdk.Metric(
                metric.name,
                metric.meaning,
                _UNITS[metric.unit],
                self._points(metric, samples, begun, now),
            )
            for metric in self._metrics
            if (samples := list(metric.read(snapshot)))
        ]
        self._last = now
        scope = sdk.ScopeMetrics(_SCOPE, found, "")
        return sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], "")])

    def _points(
        self, metric: Metric, samples: Sequence[Sample], begun: int, now: int
    ) -> sdk.Sum | sdk.Gauge | sdk.Histogram:
        if metric.kind == "histogram":
            return sdk.Histogram(
                [self._histogram(metric, one, begun, now) for one in samples],
                sdk.AggregationTemporality.CUMULATIVE,
            )
        points = [self._number(metric, one, begun, now) for one in samples]
        if metric.kind == "gauge":
            return sdk.Gauge(points)
        return sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)

    def _number(self, metric: Metric, sample: Sample, begun: int, now: int) -> sdk.NumberDataPoint:
        value = cast(float, sample.value)
        start = 0 if metric.kind == "gauge" else self._start(metric, sample, value, begun)
        return sdk.NumberDataPoint(_attributes(metric, sample), start, now, value)

    def _histogram(
        self, metric: Metric, sample: Sample, begun: int, now: int
    ) -> sdk.HistogramDataPoint:
        durations = cast(Durations, sample.value)
        below = (*durations.below, durations.samples)
        counts = [later - earlier for later, earlier in zip(below, (0, *below), strict=False)]
        return sdk.HistogramDataPoint(
            _attributes(metric, sample),
            self._start(metric, sample, durations.samples, begun),
            now,
            durations.samples,
            durations.total / 1e9,
            counts,
            _EDGES,
            _UNKNOWN,
            _UNKNOWN,
            [
                ExemplarPoint({}, one.nanoseconds / 1e9, one.time, one.span.span, one.span.trace)
                for one in durations.exemplars.values()
            ],
        )

    def _start(self, metric: Metric, sample: Sample, value: float, begun: int) -> int:
        series = metric.name, sample.labels
        start, before = self._seen.get(series, (begun, 0.0))
        if value < before:
            start = self._last
        self._seen[series] = start, value
        return start


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return a span in the form that the SDK's exporters accept."""
    status = Status(StatusCode.ERROR, span.failure) if span.failure else Status(StatusCode.UNSET)
    return ReadableSpan(
        span.name,
        _context(span.itself),
        None if span.parent is None else _context(span.parent),
        resource,
        dict(span.attributes),
        links=[Link(_context(one)) for one in span.links],
        kind=_KINDS[span.kind],
        status=status,
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=_SCOPE,
    )


def _context(name: SpanName) -> SpanContext:
    return SpanContext(name.trace, name.span, is_remote=False, trace_flags=_SAMPLED)


def _attributes(metric: Metric, sample: Sample) -> dict[str, str]:
    return dict(zip(metric.labels, sample.labels, strict=True))
