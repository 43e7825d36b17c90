"""The contract suite over every backend."""

import pytest

from memlite.backends.jsonfile import FileBackend
from memlite.backends.memory import MemoryBackend
from memlite.testing.backend_contract import BackendContract

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


class TestNearFile(TestFile):
    options = NEAR
