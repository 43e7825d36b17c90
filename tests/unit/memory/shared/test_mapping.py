"""The resources of the mapping."""

import contextlib
import gc
from pathlib import Path

import pytest

from memlite.memory.shared import Mapping, native


def memory_files() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing
            if entry.readlink().name.startswith("memfd:memlite"):
                found.add(entry.name)
    return found


@pytest.mark.parametrize(
    "compiled",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(native() is None, reason="the table in C is not compiled"),
        ),
    ],
)
def test_the_file_is_closed_when_nothing_uses_the_memory(compiled: bool) -> None:
    before = memory_files()
    mapping = Mapping(1 << 20, 16 * 1024, 1, compiled=compiled)
    table = mapping.table
    opened = memory_files() - before
    del mapping
    assert opened
    assert table.find(b"get k\r\n") is None
    assert opened <= memory_files()
    del table
    gc.collect()
    assert not opened & memory_files()
