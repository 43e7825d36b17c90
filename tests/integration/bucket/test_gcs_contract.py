"""The contract suite for backends, run on the bucket backend over the emulator."""

import itertools
from collections.abc import Iterator
from typing import ClassVar

import pytest

pytest.importorskip("aiohttp", reason="needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="needs memlite-cache[gcs]")

from memlite.backends.base import Backend
from memlite.backends.gcs import make
from memlite.backends.registry import Context, parse_url
from memlite.testing.backend_contract import BackendContract
from memlite.testing.gcs_emulator import GcsEmulator, emulator_thread

NEAR = {"near_cache": 8 * 1024 * 1024}
_numbers = itertools.count()


class TestBucket(BackendContract):
    persistent = True
    emulator: ClassVar[GcsEmulator]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _emulated(cls) -> Iterator[None]:
        with emulator_thread(["bucket"]) as cls.emulator:
            yield

    @pytest.fixture(autouse=True)
    def _new_prefix(self) -> None:
        self.prefix = f"test-{next(_numbers)}"

    def make(self, context: Context) -> Backend:
        url = f"gs://bucket/{self.prefix}?endpoint={self.emulator.url}&timeout=10&deadline=20"
        return make(parse_url(url), context)


@pytest.mark.slow
class TestNearBucket(TestBucket):
    options = NEAR


@pytest.mark.slow
class TestHeldNearBucket(TestBucket):
    options = NEAR | {"write_back": True}
