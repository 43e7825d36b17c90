"""The bucket backend on an independent emulator, and on a real bucket if there is one.

fake-gcs-server (`go install github.com/fsouza/fake-gcs-server@latest`) is a third-party project,
so it does not share our misunderstandings. Tests of features that it lacks are expected to fail.
`.ci/run` installs it if Go is installed.
"""

import os
import uuid
from collections.abc import Iterator

import pytest

from memlite.backends import Backend
from memlite.backends.registry import Context, make_backend, parse_url
from memlite.testing.backend_contract import BackendContract
from tests.support.fake_gcs_server import fake_gcs_server, make_bucket

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

BUCKET = os.environ.get("MEMLITE_TEST_GCS_BUCKET")


@pytest.fixture(scope="module")
def fake() -> Iterator[str]:
    """Yield the URL of a running fake-gcs-server."""
    with fake_gcs_server() as url:
        yield url


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
