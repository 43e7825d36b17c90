"""The table in C: when it is used, and features that only it has."""

import itertools
import logging
import mmap
import resource
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from memlite.core.errors import StartError
from memlite.memory.shared import Mapping, native
from memlite.memory.shared.layout import VERSION
from memlite.memory.shared.python_table import PureTable

NAME = "memlite.memory.shared._native"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield a module that replaces the table in C."""
    module = ModuleType(NAME)
    module.__file__ = "/there/_native.so"
    monkeypatch.setitem(sys.modules, NAME, module)
    native.cache_clear()
    yield module
    native.cache_clear()


@pytest.mark.parametrize("version", [None, VERSION - 1, VERSION + 1])
def test_the_table_in_python_serves_after_one_warning(
    module: ModuleType, version: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    if version is not None:
        vars(module)["VERSION"] = version
    with caplog.at_level(logging.WARNING):
        assert native() is None
        assert isinstance(Mapping(1 << 20, 1024, 1).table, PureTable)
        with pytest.raises(StartError, match="not available"):
            Mapping(1 << 20, 1024, 1, compiled=True)
    (record,) = caplog.records
    assert "/there/_native.so was compiled for another version" in record.getMessage()


def test_a_table_in_c_of_this_layout_is_used(
    module: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    vars(module)["VERSION"] = VERSION
    assert native() is module
    assert not caplog.records


@pytest.mark.skipif(native() is None, reason="the table in C is not compiled")
def test_many_pages_of_a_segment_are_mapped_at_once() -> None:
    mapping = Mapping(16 << 20, 1 << 20, 1, compiled=True)
    probe = mmap.mmap(-1, mmap.PAGESIZE)
    try:
        probe.madvise(23)
    except OSError as error:
        pytest.skip(f"this kernel does not support it: {error}")
    line, reply = b"get key\r\n", b"VALUE key 0 4070\r\n%b\r\nEND\r\n" % (b"v" * 4070)
    faults = []
    for _ in range(200):  # pages
        mapping.table.store(line, reply, 0.0, None, 0, b"")
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    mapped = [later - before for before, later in itertools.pairwise(faults)]
    assert sum(map(bool, mapped)) < 100
    assert max(mapped) < 100, "mapping a whole segment at once would delay a store"
