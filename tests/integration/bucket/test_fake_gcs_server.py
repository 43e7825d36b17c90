"""The bucket backend on an independent emulator, and on a real bucket if there is one.

fake-gcs-server (`go install github.com/fsouza/fake-gcs-server@latest`) was written by others, so it
does not share our misunderstandings. Tests of what it does not implement are expected to fail.
`.ci/run` installs it if Go is installed.
"""

import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlite.backends import Backend
from memlite.backends.registry import Context, make_backend, parse_url
from memlite.testing.backend_contract import BackendContract

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

BUCKET = os.environ.get("MEMLITE_TEST_GCS_BUCKET")
PROGRAM = shutil.which(
    "fake-gcs-server",
    path=os.pathsep.join(
        [os.environ["PATH"], str(Path(".venv/bin").absolute()), str(Path.home() / "go/bin")]
    ),
)


@pytest.fixture(scope="module")
def fake() -> Iterator[str]:
    """Yield the URL of a running fake-gcs-server."""
    if PROGRAM is None:
        pytest.skip("fake-gcs-server is not installed (go install, see above)")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [PROGRAM, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-log-level", "error"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 15
            while True:
                with socket.socket() as sock:
                    if sock.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert time.monotonic() < deadline, "fake-gcs-server did not start"
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()


def make_bucket(url: str) -> str:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    name = f"bucket-{uuid.uuid4().hex}"
    client = storage.Client(
        "project", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
    )
    client.create_bucket(name)
    client.close()
    return name


class TestFakeGcsServer(BackendContract):
    persistent = True
    examples = 5

    @pytest.fixture(autouse=True)
    def _bucket(self, fake: str) -> None:
        self.url = parse_url(f"gs://{make_bucket(fake)}/prefix?endpoint={fake}")

    def make(self, context: Context) -> Backend:
        return make_backend(self.url, context)


@pytest.mark.skipif(BUCKET is None, reason="MEMLITE_TEST_GCS_BUCKET is not set")
class TestRealBucket(BackendContract):
    """Each test uses a prefix of its own, which is emptied after the test."""

    persistent = True
    examples = 2
    largest = 2**20

    @pytest.fixture(autouse=True)
    def _prefix(self) -> Iterator[None]:
        from google.cloud import storage

        prefix = f"memlite-test-{uuid.uuid4().hex}"
        self.url = parse_url(f"gs://{BUCKET}/{prefix}?timeout=10&deadline=60")
        yield
        with storage.Client() as client:
            for blob in client.list_blobs(BUCKET, prefix=f"{prefix}/"):
                blob.delete()

    def make(self, context: Context) -> Backend:
        return make_backend(self.url, context)
