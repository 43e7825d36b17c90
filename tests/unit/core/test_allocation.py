"""Memory whose content is written later."""

import sys
from io import BytesIO

import pytest

from memlite.core import allocation
from memlite.core.allocation import uninitialized_bytes


@pytest.fixture(params=["ctypes", "no ctypes"])
def allocate(request, monkeypatch):
    allocation._allocator.cache_clear()
    if request.param == "no ctypes":
        monkeypatch.setitem(sys.modules, "ctypes", None)
    yield uninitialized_bytes
    allocation._allocator.cache_clear()


@pytest.mark.parametrize("size", [0, 1, 2, 100_000, 3_000_000])
def test_bytes_are_written_in_place(allocate, size):
    content = bytes(range(256)) * (size // 256 + 1)
    stream = BytesIO(allocate(size))
    stream.getbuffer()[:] = content[:size]
    assert stream.getvalue() == content[:size]


def test_single_bytes_are_not_shared_with_other_objects(allocate):
    BytesIO(allocate(1)).getbuffer()[:] = b"q"
    assert bytes([0]) == b"\0"
    assert b"q"[0] == ord("q")


def test_too_much_memory_is_refused(allocate):
    with pytest.raises((MemoryError, OverflowError)):
        allocate(sys.maxsize)
