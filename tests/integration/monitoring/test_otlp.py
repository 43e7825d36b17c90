"""Export of metrics and spans to a receiver of OpenTelemetry's protocol."""

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs memlite-cache[otel]")

from memlite.config import Config, load
from memlite.core.errors import ConfigError, StartError
from memlite.server.server import Server
from memlite.telemetry.metrics.definitions import METRICS
from tests.support.datagrams import Datagrams
from tests.support.otlp import OtlpServer, attributes, otlp_server
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

OFTEN = {"OTEL_METRIC_EXPORT_INTERVAL": "100"}
SELDOM = {"OTEL_METRIC_EXPORT_INTERVAL": "86400000"}


@pytest.fixture
def receiver() -> Iterator[OtlpServer]:
    with otlp_server() as server:
        yield server


def use(server: RunningServer) -> None:
    with server.connect() as wire:
        assert wire.ask(b"set key 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
        wire.send(b"get key\r\n")
        assert wire.until(b"END\r\n") == b"VALUE key 0 5\r\nvalue\r\nEND\r\n"
        assert wire.ask(b"get absent\r\n") == b"END\r\n"


def test_metrics_are_those_of_the_snapshot(receiver: OtlpServer) -> None:
    environment = {**OFTEN, "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}
    with running("memlite", "--otlp", receiver.url, environment=environment) as server:
        use(server)
        hit = (("command", "get"), ("result", "hit"))
        assert wait_until(
            lambda: (
                bool(receiver.metrics)
                and receiver.series()["memlite_commands_total"][hit].as_int == 1
            )
        )
        series = receiver.series()
        assert series["memlite_items"][()].as_int == 1
        assert series["memlite_ready"][()].as_int == 1
        start = series["memlite_start_time_seconds"][()].as_double
        point = series["memlite_commands_total"][hit]
        assert point.start_time_unix_nano == pytest.approx(start * 1e9, abs=1e9)
        assert point.time_unix_nano > point.start_time_unix_nano
        resource = receiver.resource()
        assert resource["service.name"] == "memlite"
        assert resource["service.instance.id"].endswith(f":{server.port}")
        assert resource["deployment.environment.name"] == "test"
        assert series.keys() <= {metric.name for metric in METRICS}
        assert not receiver.traces


def test_settings_from_the_environment(receiver: OtlpServer) -> None:
    environment = {
        **OFTEN,
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=mine",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "sessions",
        "OTEL_TRACES_SAMPLER": "always_on",
    }
    with running("memlite", "--otlp", "env", environment=environment) as server:
        use(server)
        assert wait_until(lambda: bool(receiver.metrics))
        assert receiver.resource()["service.name"] == "sessions"
        headers = {name.lower(): value for name, value in receiver.headers[0].items()}
        assert headers["x-tenant"] == "mine"
        assert headers["content-encoding"] == "gzip"
    assert {span.name for span in receiver.spans()} >= {"set", "get"}


def test_a_stop_exports_what_is_left(receiver: OtlpServer) -> None:
    arguments = ("--otlp", receiver.url, "--trace-sample", "1/1")
    with running("memlite", *arguments, environment=SELDOM) as server:
        use(server)
        assert not receiver.metrics
        assert server.stop() == 0
    assert receiver.series()["memlite_items"][()].as_int == 1
    assert [span.name for span in receiver.spans()].count("get") == 2


def test_a_stop_does_not_wait_for_a_receiver_that_hangs(receiver: OtlpServer) -> None:
    receiver.go_on.clear()
    with running("memlite", "--otlp", receiver.url, environment=OFTEN) as server:
        assert wait_until(lambda: bool(receiver.headers))
        use(server)
        assert server.stop() == 0  # within 20 seconds; the receiver would never answer
        assert "gave up on the last export" in server.log.read_text()


@pytest.mark.parametrize(
    "trouble", ["unreachable", "endless", pytest.param("refuses", marks=pytest.mark.slow)]
)
def test_a_receiver_that_fails_harms_no_client(receiver: OtlpServer, trouble: str) -> None:
    url = receiver.url
    if trouble == "unreachable":
        url = "http://127.0.0.1:1"
    elif trouble == "refuses":
        receiver.status, receiver.body = 400, b"\xff" * 100_000
    else:
        receiver.endless = True
    environment = {**OFTEN, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    arguments = ("--otlp", url, "--trace-sample", "1/1")
    with running("memlite", *arguments, environment=environment) as server:
        before = server.resident_kib()
        for _ in range(3):
            use(server)
        if trouble == "endless":
            assert wait_until(lambda: len(receiver.headers) >= 3)
        else:
            assert wait_until(lambda: "exports failed" in server.log.read_text())
            assert wait_until(lambda: len(receiver.headers) >= 5 or trouble == "unreachable")
        use(server)
        assert server.resident_kib() - before < 50_000
        assert server.log.read_text().count("exports failed") <= 1
        assert server.stop() == 0


def test_reads_are_traced_on_the_fast_path_and_off_it(receiver: OtlpServer) -> None:
    arguments = ("--otlp", receiver.url, "--trace-sample", "1/1")
    with running("memlite", *arguments, environment=SELDOM) as server:
        use(server)
        with server.connect() as wire:
            assert wire.ask(b"get a b key\r\n").startswith(b"VALUE")
            trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
            header = f"00-{trace}-{parent}-01".encode()
            assert wire.until(b"END\r\n")
            assert wire.ask(b"mg key s P%b\r\n" % header) == b"HD s5\r\n"
            wire.send(b"bogus\r\n")
            assert wire.line() == b"ERROR\r\n"
        server.stop()
    spans = receiver.spans()
    (several,) = (s for s in spans if "db.operation.batch.size" in attributes(s))
    assert attributes(several)["db.operation.batch.size"] == "3"
    assert attributes(several)["db.response.status_code"] == "VALUE"
    (continued,) = (span for span in spans if span.name == "mg")
    assert continued.trace_id.hex() == trace
    assert continued.parent_span_id.hex() == parent
    stored = next(span for span in spans if span.name == "set")
    assert attributes(stored)["db.response.status_code"] == "STORED"
    assert not stored.parent_span_id
    assert stored.kind == 2  # server
    assert 0 < stored.start_time_unix_nano <= stored.end_time_unix_nano
    assert all(b"key" not in span.SerializeToString() for span in spans)


@pytest.mark.parametrize("kind", ["memlite", "memlite-file"])
@pytest.mark.parametrize("transport", ["TCP", "UDP"])
def test_traces_are_continued_whatever_the_sampling(
    receiver: OtlpServer, kind: str, transport: str
) -> None:
    arguments = ("--otlp", receiver.url, "--trace-sample", "1/100000000", "-U", "-1")
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    hint = f"P00-{trace}-{parent}-01".encode()
    cases = [
        (b"ms key 5 %b\r\nvalue\r\n" % hint, b"HD\r\n", "ms"),
        (b"ms key 5\r\nvalue\r\n", b"HD\r\n", ""),
        (b"mg key s %b\r\n" % hint, b"HD s5\r\n", "mg"),
        (b"mg key s\r\n", b"HD s5\r\n", ""),
        (b"mg absent %b\r\n" % hint, b"EN\r\n", "mg"),
        (b"ma key %b\r\n" % hint, b"CLIENT_ERROR", "ma"),
        (b"md key %b\r\n" % hint, b"HD\r\n", "md"),
        (b"get absent\r\n", b"END\r\n", ""),
    ]
    with running(kind, *arguments, environment=SELDOM) as server:
        with Datagrams(server) as datagrams, server.connect() as wire:
            ask = wire.ask if transport == "TCP" else datagrams.ask
            for request, reply, _ in cases:
                assert ask(request).startswith(reply)
        server.stop()
    spans = [span for span in receiver.spans() if span.kind == 2]
    assert [span.name for span in spans] == [name for _, _, name in cases if name]
    assert {span.trace_id.hex() for span in spans} == {trace}
    assert {span.parent_span_id.hex() for span in spans} == {parent}


@pytest.mark.parametrize("share", ["1/100000000", "1/1"])
def test_a_trace_is_continued_once_while_all_commands_are_observed(
    receiver: OtlpServer, share: str
) -> None:
    arguments = ("--otlp", receiver.url, "--trace-sample", share, "--slow-log", "1s")
    with running("memlite", *arguments, environment=SELDOM) as server:
        with server.connect() as wire:
            header = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            assert wire.ask(b"mg absent P%b\r\n" % header) == b"EN\r\n"
        server.stop()
    (span,) = receiver.spans()
    assert span.name == "mg"
    assert span.parent_span_id.hex() == "b7ad6b7169203331"


def test_openmetrics_has_exemplars_of_traced_commands(receiver: OtlpServer) -> None:
    arguments = ("--otlp", receiver.url, "--trace-sample", "1/1", "--http", "0")
    with running("memlite", *arguments, environment=SELDOM) as server:
        use(server)
        url = f"http://127.0.0.1:{server.http_port}/metrics"
        asked = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
        with urllib.request.urlopen(asked) as reply:
            text = reply.read().decode()
        server.stop()
    exemplars = re.findall(r'_bucket\{class="(\w+)".* # \{trace_id="(\w+)",span_id="(\w+)"\}', text)
    spans = {span.span_id.hex(): span for span in receiver.spans()}
    assert {name for name, _, _ in exemplars} >= {"get", "store"}
    for _, trace, span in exemplars:
        assert spans[span].trace_id.hex() == trace
    received = receiver.series()["memlite_command_duration_seconds"][(("class", "get"),)]
    assert {one.span_id.hex() for one in received.exemplars} <= spans.keys()
    assert received.exemplars


def test_a_share_is_traced(receiver: OtlpServer) -> None:
    arguments = ("--otlp", receiver.url, "--trace-sample", "1/20")
    with running("memlite", *arguments, environment=SELDOM) as server:
        with server.connect() as wire:
            for _ in range(4000):
                assert wire.ask(b"get absent\r\n") == b"END\r\n"
        assert server.stats("latency")["sample_interval"] == "20"
        server.stop()
    # 200 are expected; intervals are uniform from 1 to 39, so the deviation is about 8.
    assert 120 < len(receiver.spans()) < 300


def test_an_fsync_belongs_to_the_change_that_waits_for_it(receiver: OtlpServer) -> None:
    arguments = ("--otlp", receiver.url, "--trace-sample", "1/1")
    with running("memlite-file", *arguments, environment=SELDOM) as server:
        use(server)
        server.stop()
    spans = receiver.spans()
    (change,) = (span for span in spans if span.name == "set")
    sync = next(span for span in spans if span.name == "fsync")
    assert sync.trace_id == change.trace_id
    assert sync.parent_span_id == change.span_id
    assert sync.kind == 3  # client
    assert attributes(sync)["memlite.store"].startswith("file://")


@pytest.mark.slow
def test_requests_to_a_bucket_belong_to_the_command(receiver: OtlpServer) -> None:
    pytest.importorskip("google.cloud.storage", reason="needs memlite-cache[gcs]")
    from memlite.testing.gcs_emulator import emulator_thread

    arguments = ("--otlp", receiver.url, "--trace-sample", "1/1")
    with emulator_thread(["bucket"]) as emulator:
        url = f"gs://bucket/p?endpoint={emulator.url}"
        with running("memlite", "--backend", url, *arguments, environment=SELDOM) as server:
            use(server)
            server.stop()
    spans = receiver.spans()
    (change,) = (span for span in spans if span.name == "set")
    posts = [span for span in spans if span.name == "post"]
    assert change.span_id in {span.parent_span_id for span in posts}
    reads = {span.span_id for span in spans if span.name == "get" and span.kind == 2}
    asked = [span for span in spans if span.name == "get" and span.kind == 3]
    assert {span.parent_span_id for span in asked} & reads
    assert all(attributes(span)["memlite.store"] == "gs://bucket/p" for span in asked)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--otlp", "localhost:4318"], "such as http://localhost:4318"),
        (["--otlp", "env", "--trace-sample", "5"], "a share such as 1/100"),
        (["--otlp", "env", "--trace-sample", "1/0"], "a share such as 1/100"),
        (["--trace-sample", "1/10"], "requires --otlp"),
    ],
)
def test_invalid_settings(arguments: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Server(load(arguments, {}).config, [])


def test_an_invalid_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1s")
    with pytest.raises(StartError, match="OTEL_METRIC_EXPORT_INTERVAL: must be milliseconds"):
        Server(Config(otlp="env"), [])


def test_the_packages_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "memlite.server.otlp.assembly", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(StartError, match=r"is not installed: pip install 'memlite-cache\[otel\]'"):
        Server(Config(otlp="env"), [])


def test_nothing_is_imported_without_it() -> None:
    program = (
        "import sys, memlite.cli.main, memlite.cli.serve, memlite.server.server\n"
        "from memlite.config import Config\n"
        "memlite.server.server.Server(Config(), [])\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', "
        "'memlite.server.otlp', 'memlite.telemetry.tracing', 'requests'))]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
