"""Spans of requests through a proxy, and the trace that a node continues."""

import re
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs memlite-cache[otel]")

from memlite.telemetry.metrics.proxy_metrics import PROXY_METRICS
from tests.support.otlp import OtlpServer, attributes, otlp_server
from tests.support.proxies import node_stat, proxy
from tests.support.servers import needs_memcached, running
from tests.support.waiting import wait_until

OFTEN = {"OTEL_METRIC_EXPORT_INTERVAL": "100"}
SELDOM = {"OTEL_METRIC_EXPORT_INTERVAL": "86400000"}


def test_a_trace_goes_on_at_the_node(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    with otlp_server() as receiver:
        export = ("--otlp", receiver.url, "--trace-sample")
        with running("memlite", *export, "1/1000000000", environment=SELDOM) as node:
            arguments = ("--in-flight", "4", "--trace", str(file))
            with proxy([node], *export, "all", *arguments, environment=SELDOM) as front:
                assert wait_until(lambda: node_stat(front, node, "state") == "up")
                with front.connect() as wire:
                    assert wire.ask(b"ms key 5 T0\r\nvalue\r\n") == b"HD\r\n"
                    assert wire.ask(b"mg key s Oxyz\r\n") == b"HD s5 Oxyz\r\n"
                    assert wire.ask(b"get absent\r\n") == b"END\r\n"
                    assert wire.ask(b"mg key Phint s\r\n") == b"HD s5\r\n"
                with front.connect() as wire:  # a get of the binary protocol
                    wire.send(b"\x80\x00\x00\x06" + bytes(7) + b"\x06" + bytes(12) + b"absent")
                    assert wire.exactly(24)[6:8] == b"\x00\x01"
                assert front.stop() == 0
            assert node.stop() == 0
        spans = receiver.spans()
    assert len(file.read_text().splitlines()) == 6
    servers = [span for span in spans if span.kind == 2]
    at_proxy = [span for span in servers if not span.parent_span_id]
    at_node = {span.parent_span_id: span for span in servers if span.parent_span_id}
    assert [span.name for span in at_proxy] == ["ms", "mg", "get", "mg", "gets"]
    for span in at_proxy[:2]:
        there = at_node.pop(span.span_id)
        assert there.trace_id == span.trace_id
        assert there.name == span.name
    assert not at_node  # the other requests have no room for the trace
    parts = {span.name for span in spans if span.parent_span_id == at_proxy[0].span_id}
    assert {"queue", "nodes"} <= parts
    asked = next(span for span in spans if span.name == "nodes")
    assert attributes(asked)["memlite.nodes"] == f"127.0.0.1:{node.port}"


@needs_memcached
def test_memcached_ignores_the_flag() -> None:
    with otlp_server() as receiver, running("memcached") as node:
        arguments = ("--otlp", receiver.url, "--trace-sample", "all")
        with proxy([node], *arguments, environment=SELDOM) as front:
            assert wait_until(lambda: node_stat(front, node, "state") == "up")
            with front.connect() as wire:
                assert wire.ask(b"ms key 5 T0\r\nvalue\r\n") == b"HD\r\n"
                assert wire.ask(b"mg key s Oxyz\r\n") == b"HD s5 Oxyz\r\n"
                assert wire.ask(b"ma number N0 J5 v\r\n") == b"VA 1\r\n"
                assert wire.line() == b"5\r\n"
                assert wire.ask(b"md key q\r\nmn\r\n") == b"MN\r\n"
            front.stop()
        names = [span.name for span in receiver.spans() if span.kind == 2]
        assert names == ["ms", "mg", "ma", "md"]


def value(receiver: OtlpServer, name: str, **labels: str) -> int:
    """Return the last value received for a series; -1 if there is none."""
    if not receiver.metrics:
        return -1
    point = receiver.series().get(name, {}).get(tuple(sorted(labels.items())))
    return -1 if point is None else point.as_int


@pytest.mark.parametrize("http", [False, True])
def test_metrics_are_those_of_the_snapshot(http: bool) -> None:
    further = ["--http", "0", "--in-flight", "4"] if http else []
    with otlp_server() as receiver, running("memlite") as node:
        arguments = ("--otlp", receiver.url, "--slow-log", "1us", *further)
        with proxy([node], *arguments, environment=OFTEN) as front:
            assert wait_until(lambda: node_stat(front, node, "state") == "up")
            with front.connect() as wire:
                assert wire.ask(b"set key 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
                assert wire.ask(b"mg key s\r\n") == b"HD s5\r\n"
                assert wire.ask(b"get absent\r\n") == b"END\r\n"
            name = "memlite_proxy_commands_total"
            labels = {"class": "get", "result": "miss"}
            assert wait_until(lambda: value(receiver, name, **labels) == 1)
            assert value(receiver, name, **{**labels, "result": "hit"}) == 1
            assert value(receiver, name, **{"class": "store", "result": "stored"}) == 1
            assert value(receiver, "memlite_ready") == 1
            assert value(receiver, "memlite_slow_commands_total") == 3
            of_node = {"node": f"127.0.0.1:{node.port}", "role": "node"}
            assert value(receiver, "memlite_proxy_node_up", **of_node) == 1
            assert receiver.series().keys() <= {metric.name for metric in PROXY_METRICS}
            assert receiver.resource()["service.instance.id"].endswith(f":{front.port}")
            if http:
                with urllib.request.urlopen(f"http://127.0.0.1:{front.http_port}/metrics") as reply:
                    scraped = set(re.findall(r"# TYPE (\S+)", reply.read().decode()))
                assert receiver.series().keys() == scraped
            node.stop()
            assert wait_until(lambda: value(receiver, "memlite_ready") == 0)
            assert front.stop() == 0
        assert not receiver.traces


def test_pending_metrics_are_exported_at_shutdown() -> None:
    with otlp_server() as receiver, running("memlite") as node:
        arguments = ("--otlp", receiver.url)
        with proxy([node], *arguments, environment=SELDOM) as front:
            assert wait_until(lambda: node_stat(front, node, "state") == "up")
            with front.connect() as wire:
                assert wire.ask(b"get absent\r\n") == b"END\r\n"
            assert not receiver.metrics
            assert front.stop() == 0
        labels = {"class": "get", "result": "miss"}
        assert value(receiver, "memlite_proxy_commands_total", **labels) == 1
