"""Assembly of the export from the settings and the environment."""

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from memlite.core.errors import StartError
from memlite.core.version import __version__
from memlite.server.otlp.receiver import OtlpReceiver
from memlite.server.otlp.service import OtlpService
from memlite.server.otlp.worker import Worker
from memlite.telemetry.metrics.metric import Metric
from memlite.telemetry.snapshot import Snapshot

__all__ = ["assemble"]

_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_USUAL_INTERVAL: Final = "60000"


def assemble(
    url: str, address: str, metrics: Iterable[Metric], snapshot: Callable[[], Snapshot] | None
) -> tuple[OtlpService, Worker]:
    """Return the export service of a server or proxy, and the worker that takes its spans.

    Args:
        url: ``--otlp``.
        address: distinguishes the server from others on this machine.
        metrics: the metrics to export.
        snapshot: returns its figures; None to export spans only, as all workers but one do.

    Raises:
        StartError: an environment variable is invalid.
    """
    receiver = OtlpReceiver(None if url == "env" else url, metrics, _resource(address))
    worker = Worker(receiver)
    return OtlpService(worker, snapshot, _interval(os.environ)), worker


def _resource(address: str) -> Resource:
    """Return the resource described by the environment, completed with defaults."""
    said = OTELResourceDetector().detect().attributes
    usual = {
        "service.name": "memlite",
        "service.version": __version__,
        # The SDK would generate a new ID at each start.
        "service.instance.id": f"{socket.gethostname()}:{address}",
    }
    return Resource.create({name: usual[name] for name in usual.keys() - said.keys()})


def _interval(environment: Mapping[str, str]) -> float:
    """Return the number of seconds between two exports of metrics."""
    text = environment.get(_INTERVAL) or _USUAL_INTERVAL
    if not (text.isascii() and text.isdecimal()) or not 100 <= int(text) <= 86_400_000:
        raise StartError(f"{_INTERVAL}: must be milliseconds from 100 to 86400000, not {text!r}")
    return int(text) / 1000
