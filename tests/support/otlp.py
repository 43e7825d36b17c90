"""A receiver of OTLP over HTTP that parses requests with OpenTelemetry's protobufs."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["OtlpServer", "attributes", "otlp_server"]


class OtlpServer:
    """The requests that a server's threads received; `status` and `body` are its reply."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.body = ExportMetricsServiceResponse().SerializeToString()
        self.go_on = threading.Event()  # while cleared, the server does not reply
        self.go_on.set()
        self.endless = False

    def spans(self) -> list[Span]:
        """Return all spans, in order of arrival."""
        return [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def series(self) -> dict[str, dict[tuple[tuple[str, str], ...], Any]]:
        """Return the points of the latest metrics, by name and attributes."""
        found: dict[str, dict[tuple[tuple[str, str], ...], Any]] = {}
        for resource in self.metrics[-1].resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    data = getattr(metric, str(metric.WhichOneof("data")))
                    found[metric.name] = {
                        tuple(sorted(attributes(point).items())): point
                        for point in data.data_points
                    }
        return found

    def resource(self) -> dict[str, str]:
        """Return the attributes of the latest metrics' resource."""
        return attributes(self.metrics[-1].resource_metrics[0].resource)


def attributes(of: Any) -> dict[str, str]:
    """Return attributes as text."""
    return {
        one.key: str(getattr(one.value, str(one.value.WhichOneof("value"))))
        for one in of.attributes
    }


@contextlib.contextmanager
def otlp_server() -> Iterator[OtlpServer]:
    """Run a receiver on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.headers.append(dict(self.headers.items()))
            if received.status == 200 and received.go_on.is_set():
                if self.path == "/v1/metrics":
                    received.metrics.append(ExportMetricsServiceRequest.FromString(body))
                else:
                    assert self.path == "/v1/traces"
                    received.traces.append(ExportTraceServiceRequest.FromString(body))
            received.go_on.wait()
            with contextlib.suppress(OSError):
                self.reply()

        def reply(self) -> None:
            self.send_response(received.status)
            if received.endless:
                self.end_headers()
                while received.endless:
                    self.wfile.write(bytes(65536))
                return
            self.send_header("Content-Length", str(len(received.body)))
            self.end_headers()
            self.wfile.write(received.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    received = OtlpServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield received
    finally:
        received.endless = False
        received.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
