"""Several workers (``-t``) export the metrics of one server, and the spans of all."""

import contextlib
import urllib.request
from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs memlite-cache[otel]")

from tests.support.otlp import OtlpServer, attributes, otlp_server
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

WORKERS = 2
OFTEN = {"OTEL_METRIC_EXPORT_INTERVAL": "100"}
SELDOM = {"OTEL_METRIC_EXPORT_INTERVAL": "86400000"}


@pytest.fixture
def receiver() -> Iterator[OtlpServer]:
    with otlp_server() as server:
        yield server


@contextlib.contextmanager
def one_each(server: RunningServer) -> Iterator[list[Wire]]:
    """Connect to each worker, in the order of their numbers."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(WORKERS)]
        yield sorted(wires, key=lambda wire: wire.stats("workers")["answering"])


def store(wire: Wire, key: bytes) -> None:
    assert wire.ask(b"set %b 0 0 1\r\nx\r\n" % key) == b"STORED\r\n"


def stored(receiver: OtlpServer) -> int:
    return receiver.series()["memlite_items_stored_total"][()].as_int


def test_metrics_are_of_all_workers_and_exported_by_one(receiver: OtlpServer) -> None:
    arguments = ("-t", str(WORKERS), "--otlp", receiver.url)
    with running("memlite", *arguments, environment=OFTEN) as server:
        with one_each(server) as wires:
            for number, wire in enumerate(wires):
                for at in range(3 + number):
                    store(wire, b"k%d" % at)
        assert wait_until(lambda: bool(receiver.metrics) and stored(receiver) == 7)
        assert receiver.series()["memlite_items"][()].as_int == 4
        assert receiver.resource()["service.instance.id"].endswith(f":{server.port}")
        assert server.stop() == 0
    begun = {
        point.start_time_unix_nano
        for request in receiver.metrics
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "memlite_items_stored_total"
        for point in metric.sum.data_points
    }
    assert len(begun) == 1, "all are of one series"
    counts = [
        point.as_int
        for request in receiver.metrics
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "memlite_items_stored_total"
        for point in metric.sum.data_points
    ]
    assert counts == sorted(counts)
    assert not receiver.traces


def test_spans_of_all_workers_are_exported_once_and_counts_are_complete_at_the_end(
    receiver: OtlpServer,
) -> None:
    arguments = ("-t", str(WORKERS), "--otlp", receiver.url, "--trace-sample", "1/1")
    with running("memlite", *arguments, environment=SELDOM) as server:
        with one_each(server) as wires:
            for number in range(20):
                store(wires[number % WORKERS], b"k")
        assert server.stop() == 0
    spans = [span for span in receiver.spans() if span.name == "set"]
    assert len(spans) == 20
    assert len({span.span_id for span in spans}) == 20
    assert len(receiver.metrics) == 1
    assert stored(receiver) == 20
    durations = receiver.series()["memlite_command_duration_seconds"][(("class", "store"),)]
    assert durations.count == 20
    assert durations.exemplars
    assert {one.span_id for one in durations.exemplars} <= {span.span_id for span in spans}
    instances = {
        attributes(resource.resource)["service.instance.id"]
        for request in receiver.traces
        for resource in request.resource_spans
    }
    assert len(instances) == 1


def test_exemplars_are_of_whichever_worker_has_the_last(receiver: OtlpServer) -> None:
    arguments = ("--otlp", receiver.url, "--trace-sample", "1/1", "--http", "0")
    with running("memlite", "-t", str(WORKERS), *arguments, environment=SELDOM) as server:
        with one_each(server) as (_, second):
            store(second, b"k")
        url = f"http://127.0.0.1:{server.http_port}/metrics"
        asked = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
        with urllib.request.urlopen(asked, timeout=60) as reply:
            text = reply.read().decode()
        assert server.stop() == 0
    (span,) = (span for span in receiver.spans() if span.name == "set")
    assert f'span_id="{span.span_id.hex()}"' in text
