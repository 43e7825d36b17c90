"""Metrics and spans as OpenTelemetry's types."""

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs memlite-cache[otel]")

from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource

from memlite.server.otlp.data import Cumulative, readable
from memlite.telemetry.metrics.definitions import METRICS
from memlite.telemetry.snapshot import DURATION_LIMITS, Durations, Exemplar
from memlite.telemetry.spans import Span, SpanName
from tests.unit.telemetry.samples import snapshot

RESOURCE = Resource({"service.name": "test"})


def metrics(cumulative: Cumulative, **changes: object) -> dict[str, sdk.Metric]:
    found = cumulative.data(snapshot(**changes))
    return {one.name: one for one in found.resource_metrics[0].scope_metrics[0].metrics}


def starts(found: dict[str, sdk.Metric]) -> dict[str, int]:
    points = found["memlite_commands_total"].data.data_points
    return {str(point.attributes["result"]): point.start_time_unix_nano for point in points[:2]}


def test_each_metric_is_exported_with_its_kind_unit_and_meaning() -> None:
    state = snapshot()
    found = metrics(Cumulative(METRICS, RESOURCE))
    kinds = {"counter": sdk.Sum, "gauge": sdk.Gauge, "histogram": sdk.Histogram}
    units = {"seconds": "s", "bytes": "By", "": ""}
    with_samples = [metric for metric in METRICS if list(metric.read(state))]
    assert list(found) == [metric.name for metric in with_samples]
    for metric in with_samples:
        one = found[metric.name]
        assert type(one.data) is kinds[metric.kind]
        assert (one.unit, one.description) == (units[metric.unit], metric.meaning)
        samples = list(metric.read(state))
        assert [point.attributes for point in one.data.data_points] == [
            dict(zip(metric.labels, sample.labels, strict=True)) for sample in samples
        ]
        if metric.kind != "histogram":
            assert [point.value for point in one.data.data_points] == [s.value for s in samples]


def test_a_histogram_has_the_durations_of_each_class() -> None:
    below = tuple(min(index, 3) for index in range(len(DURATION_LIMITS)))
    exemplar = Exemplar(SpanName(8, 9), 1500, 77)
    durations = Durations(5, 7_000_000_000, below, {1: exemplar})
    found = metrics(Cumulative(METRICS, RESOURCE), commands={"get": durations})
    (point,) = found["memlite_command_duration_seconds"].data.data_points
    assert (point.count, point.sum) == (5, 7.0)
    assert list(point.bucket_counts)[:5] == [0, 1, 1, 1, 0]
    assert sum(point.bucket_counts) == 5
    assert point.bucket_counts[-1] == 2
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert point.explicit_bounds[0] == pytest.approx(1.024e-6)
    (one,) = point.exemplars
    assert (one.trace_id, one.span_id, one.value, one.time_unix_nano) == (8, 9, 1.5e-6, 77)


def test_a_sum_that_was_reset_has_a_new_start() -> None:
    cumulative = Cumulative(METRICS, RESOURCE)
    first = starts(metrics(cumulative, get_hits=5, get_misses=5))
    assert first["hit"] == first["miss"] == int(1_800_000_000.0 * 1e9)
    grown = starts(metrics(cumulative, get_hits=6, get_misses=5, time=1_800_000_020.9))
    assert grown["hit"] == grown["miss"]
    reset = starts(metrics(cumulative, get_hits=1, get_misses=5, time=1_800_000_030.9))
    assert reset["miss"] == grown["miss"]
    assert reset["hit"] == int(1_800_000_020.9 * 1e9)
    later = starts(metrics(cumulative, get_hits=2, get_misses=5, time=1_800_000_040.9))
    assert later["hit"] == reset["hit"]


def test_a_span() -> None:
    itself, parent = SpanName(1, 2), SpanName(1, 3)
    span = Span(
        "get", itself, parent, "server", 10, 20, {"a": 1}, "SERVER_ERROR", (SpanName(4, 5),)
    )
    found = readable(span, RESOURCE)
    assert (found.name, found.start_time, found.end_time) == ("get", 10, 20)
    assert (found.context.trace_id, found.context.span_id) == (1, 2)
    assert found.parent is not None
    assert found.parent.span_id == 3
    assert found.status.is_ok is False
    assert [link.context.trace_id for link in found.links] == [4]
    assert found.attributes == {"a": 1}
    assert readable(span._replace(failure=""), RESOURCE).status.is_ok
