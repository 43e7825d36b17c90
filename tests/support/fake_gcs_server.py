"""fake-gcs-server, a third-party emulator (https://github.com/fsouza)."""

import contextlib
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import unused_port
from tests.support.waiting import wait_until

__all__ = ["fake_gcs_server", "make_bucket"]

PROGRAM = shutil.which(
    "fake-gcs-server",
    path=os.pathsep.join(
        [os.environ["PATH"], str(Path(".venv/bin").absolute()), str(Path.home() / "go/bin")]
    ),
)


@contextlib.contextmanager
def fake_gcs_server() -> Iterator[str]:
    """Run fake-gcs-server, and yield its URL; skip the test if it is not installed."""
    if PROGRAM is None:
        pytest.skip("fake-gcs-server is not installed (go install …/fsouza/fake-gcs-server@latest)")
    port = unused_port()
    url = f"http://127.0.0.1:{port}"
    command = [PROGRAM, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-log-level", "error"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:

            def started() -> bool:
                assert process.poll() is None, "fake-gcs-server has ended"
                with socket.socket() as sock:
                    return sock.connect_ex(("127.0.0.1", port)) == 0

            assert wait_until(started), "fake-gcs-server did not start"
            yield url
        finally:
            process.terminate()


def make_bucket(url: str) -> str:
    """Create a bucket on a fake-gcs-server, and return its name."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    name = f"bucket-{uuid.uuid4().hex}"
    client = storage.Client(
        "project", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
    )
    client.create_bucket(name)
    client.close()
    return name
