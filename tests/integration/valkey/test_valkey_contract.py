"""The contract suite for backends, run on the Valkey backend over a real server and a cluster."""

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import ClassVar

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends.base import Backend
from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import make
from memlite.testing.backend_contract import BackendContract
from tests.support.stores import Store, cluster, store

MEGABYTE = 1024 * 1024
NEAR = {"near_cache": 8 * MEGABYTE}
_numbers = itertools.count()


class TestValkey(BackendContract):
    persistent = True
    examples = 10
    port: ClassVar[int]

    @classmethod
    def stores(cls) -> AbstractContextManager[Store | list[Store]]:
        return store()

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _stores(cls) -> Iterator[None]:
        with cls.stores() as running:
            cls.port = (running[0] if isinstance(running, list) else running).port
            yield

    @pytest.fixture(autouse=True)
    def _new_prefix(self) -> None:
        self.prefix = f"test-{next(_numbers)}"

    def make(self, context: Context) -> Backend:
        url = f"valkey://127.0.0.1:{self.port}/{self.prefix}?timeout=10&deadline=20"
        return make(parse_url(url), context)


@pytest.mark.slow
class TestHeldNearValkey(TestValkey):
    options = NEAR | {"write_back": True}
    largest = MEGABYTE


@pytest.mark.slow
class TestValkeyCluster(TestValkey):
    largest = MEGABYTE

    @classmethod
    def stores(cls) -> AbstractContextManager[Store | list[Store]]:
        return cluster()
