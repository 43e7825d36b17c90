"""The export of a server and a proxy through a third-party Collector."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs memlite-cache[otel]")

from memlite.telemetry.metrics.definitions import METRICS
from memlite.telemetry.metrics.proxy_metrics import PROXY_METRICS
from tests.support.otelcol import collector
from tests.support.otlp import OtlpServer, attributes, otlp_server
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

OFTEN = {"OTEL_METRIC_EXPORT_INTERVAL": "200"}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def metrics_of(received: OtlpServer, server: RunningServer) -> dict[str, Any]:
    """Return the last metrics received from a server, by name; empty before the first ones."""
    found: dict[str, Any] = {}
    for request in list(received.metrics):
        for resource in request.resource_metrics:
            instance = attributes(resource.resource)["service.instance.id"]
            if instance.endswith(f":{server.port}"):
                found = {one.name: one for scope in resource.scope_metrics for one in scope.metrics}
    return found


def value(received: OtlpServer, server: RunningServer, name: str, *labels: str) -> int:
    """Return the last value of a server's series; -1 if there is none."""
    metric = metrics_of(received, server).get(name)
    points = () if metric is None else getattr(metric, str(metric.WhichOneof("data"))).data_points
    return next(
        (one.as_int for one in points if sorted(attributes(one).values()) == sorted(labels)), -1
    )


def test_metrics_and_a_trace_arrive_by_way_of_a_collector(tmp_path: Path) -> None:
    with otlp_server() as received, collector(tmp_path, received.url) as url:
        export = ("--otlp", url, "--trace-sample")
        with (
            running("memlite-file", *export, "1/100000000", environment=OFTEN) as node,
            proxy([node], *export, "all", environment=OFTEN) as front,
        ):
            assert wait_until(lambda: node_stat(front, node, "state") == "up")
            hint = f"P00-{TRACE}-{PARENT}-01".encode()
            with front.connect() as wire:
                assert wire.ask(b"ms key 5 %b\r\nvalue\r\n" % hint) == b"HD\r\n"
                assert wire.ask(b"get absent\r\n") == b"END\r\n"
            commands = "memlite_proxy_commands_total"
            assert wait_until(lambda: value(received, front, commands, "get", "miss") == 1)
            assert wait_until(lambda: value(received, node, "memlite_items") == 1)
            assert wait_until(
                lambda: value(received, node, "memlite_commands_total", "get", "miss") == 1
            )
            assert metrics_of(received, front).keys() <= {one.name for one in PROXY_METRICS}
            assert metrics_of(received, node).keys() <= {one.name for one in METRICS}
            assert "memlite_journal_fsync_duration_seconds" in metrics_of(received, node)
            assert front.stop() == node.stop() == 0
        assert wait_until(lambda: {"fsync", "get"} <= {span.name for span in received.spans()})
    spans = [span for span in received.spans() if span.trace_id.hex() == TRACE]
    by_parent = {span.parent_span_id.hex(): span for span in spans if span.kind == 2}
    at_proxy = by_parent[PARENT]
    at_node = by_parent[at_proxy.span_id.hex()]
    assert at_proxy.name == at_node.name == "ms"
    assert attributes(at_node)["db.response.status_code"] == "HD"
    (sync,) = (span for span in spans if span.name == "fsync")
    assert sync.parent_span_id == at_node.span_id
    assert attributes(sync)["memlite.store"].startswith("file://")
