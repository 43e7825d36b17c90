"""The contract suite for backends, run on every backend."""

import sys

import pytest

from memlite.backends.jsonfile import FileBackend
from memlite.backends.memory import MemoryBackend
from memlite.backends.registry import make_backend, parse_url
from memlite.testing.backend_contract import BackendContract
from tests.support.paths import BACKEND_PACKAGE

NEAR = {"near_cache": 8 * 1024 * 1024}


class TestMemory(BackendContract):
    def make(self, context):
        return MemoryBackend(context)


class TestFile(BackendContract):
    persistent = True

    @pytest.fixture(autouse=True)
    def _path(self, tmp_path):
        self.path = tmp_path / "cache.json"

    def make(self, context):
        return FileBackend(self.path, context)


class TestNearMemory(BackendContract):
    options = NEAR

    def make(self, context):
        return MemoryBackend(context)


@pytest.mark.slow
class TestNearFile(TestFile):
    options = NEAR


class TestHeldFile(TestFile):
    """With write-back, alone and with a near cache in between."""

    options = {"write_back": True}  # noqa: RUF012 - a constant


@pytest.mark.slow
class TestHeldNearFile(TestFile):
    options = NEAR | {"write_back": True}


class TestPlugin(BackendContract):
    """A backend that another package registers, found through its entry point."""

    persistent = True
    examples = 10

    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "path", [str(BACKEND_PACKAGE), *sys.path])
        self.url = parse_url(f"sqlite://{tmp_path}/cache.db")

    def make(self, context):
        return make_backend(self.url, context)


@pytest.mark.slow
class TestNearPlugin(TestPlugin):
    options = NEAR
