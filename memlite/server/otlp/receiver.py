"""A receiver of OTLP over HTTP, accessed through the SDK's exporters."""

import encodings.idna  # noqa: F401 - resolves hosts, when files may be unreachable (-u)
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from memlite.server.otlp.data import Cumulative, readable
from memlite.telemetry.metrics.metric import Metric
from memlite.telemetry.snapshot import Snapshot
from memlite.telemetry.spans import Span

__all__ = ["OtlpReceiver"]

_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)
_MAX_BYTES: Final = 64 * 1024
_REPLY_SECONDS: Final = 10.0
_MAX_TROUBLE: Final = 300


class OtlpReceiver:
    """Sends metrics and spans; see `Receiver`.

    Args:
        url: the endpoint without the path; None to take it from the environment
            (``OTEL_EXPORTER_OTLP_ENDPOINT`` and the variables of the two signals).
        metrics: the metrics.
        resource: the resource that the metrics and spans describe.
    """

    def __init__(self, url: str | None, metrics: Iterable[Metric], resource: Resource) -> None:
        base = None if url is None else url.rstrip("/")
        self._resource = resource
        self._cumulative = Cumulative(metrics, resource)
        self._metrics = OTLPMetricExporter(
            None if base is None else f"{base}/v1/metrics", session=_session()
        )
        self._spans = OTLPSpanExporter(
            None if base is None else f"{base}/v1/traces", session=_session()
        )

    def send_metrics(self, snapshot: Snapshot) -> str:
        """Send the metrics of a snapshot."""
        with _quietly() as said:
            result = self._metrics.export(self._cumulative.data(snapshot))
        return "" if result is MetricExportResult.SUCCESS else _trouble(said)

    def send_spans(self, spans: Sequence[Span]) -> str:
        """Send spans."""
        with _quietly() as said:
            result = self._spans.export([readable(span, self._resource) for span in spans])
        return "" if result is SpanExportResult.SUCCESS else _trouble(said)

    def close(self) -> None:
        """Abandon exports in progress."""
        self._metrics.shutdown()
        self._spans.shutdown()


def _session() -> requests.Session:
    """Return a session that reads a bounded part of each reply, in bounded time.

    Nothing in the reply is used, and requests would read all of it.
    """
    session = requests.Session()
    session.hooks["response"].append(_bounded)
    return session


def _bounded(response: requests.Response, *_: Any, **__: Any) -> requests.Response:
    until = time.monotonic() + _REPLY_SECONDS
    body = b""
    while len(body) < _MAX_BYTES and time.monotonic() < until:
        data = response.raw.read1(_MAX_BYTES - len(body))
        if not data:
            break
        body += data
    if not response.raw.closed and len(body) >= _MAX_BYTES:
        response.raw.close()  # closes the connection as well, as unread data is left
    response.raw = BytesIO(body)
    return response


@contextmanager
def _quietly() -> Iterator[list[str]]:
    """Collect the exporters' log messages in this thread, so that the caller decides on logging."""
    said: list[str] = []
    thread = threading.get_ident()

    def collect(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        said.append(record.getMessage())
        return False

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(collect)
    try:
        yield said
    finally:
        for logger in loggers:
            logger.removeFilter(collect)


def _trouble(said: Sequence[str]) -> str:
    # The first message states the cause; the last one only says that the time was up.
    return " ".join((said[0] if said else "unknown").split())[:_MAX_TROUBLE]
