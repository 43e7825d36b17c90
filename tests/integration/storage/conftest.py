"""A disk that fails."""

import os

import pytest

from tests.support.filestore import name_of


class Disk:
    """Makes system calls fail for files with given names."""

    def __init__(self, monkeypatch):
        self.fail = {}  # from call to (errno, end of the name)
        for name in ("fsync", "write", "ftruncate"):
            monkeypatch.setattr(os, name, self._guard(name, getattr(os, name)))

    def _guard(self, name, real):
        def call(descriptor, *arguments):
            if name in self.fail:
                number, end = self.fail[name]
                if end in name_of(descriptor):
                    raise OSError(number, os.strerror(number))
            return real(descriptor, *arguments)

        return call


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)
