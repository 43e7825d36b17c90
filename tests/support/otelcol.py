"""OpenTelemetry's Collector, built with the components that `tests/support/collector` lists."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import unused_port
from tests.support.waiting import wait_until

__all__ = ["collector"]

PROGRAM = shutil.which(
    "otelcol", path=os.pathsep.join([str(Path(".venv/bin").absolute()), os.environ["PATH"]])
)
CONFIG = """
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{port}
exporters:
  otlp_http:
    endpoint: {receiver}
    sending_queue:
      enabled: false
service:
  pipelines:
    traces: {{receivers: [otlp], exporters: [otlp_http]}}
    metrics: {{receivers: [otlp], exporters: [otlp_http]}}
"""


@contextlib.contextmanager
def collector(folder: Path, receiver: str) -> Iterator[str]:
    """Run a Collector, and yield its URL; skip the test if it has not been built.

    Args:
        folder: where its configuration is written.
        receiver: the URL of a receiver, to which it forwards all data.
    """
    if PROGRAM is None:
        pytest.skip("no otelcol: tests/support/collector/main.go says how to build it")
    port = unused_port()
    config = folder / "otelcol.yaml"
    config.write_text(CONFIG.format(port=port, receiver=receiver))
    with subprocess.Popen(
        [PROGRAM, f"--config=file:{config}"], stdin=subprocess.DEVNULL
    ) as process:
        try:

            def started() -> bool:
                assert process.poll() is None, "the Collector has ended"
                with socket.socket() as sock:
                    return sock.connect_ex(("127.0.0.1", port)) == 0

            assert wait_until(started), "the Collector did not start"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
