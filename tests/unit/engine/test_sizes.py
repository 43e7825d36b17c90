"""Item sizes and size classes, counted as memcached counts them."""

import contextlib
import re
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.backends.conversion import item_of
from memlite.backends.record import Record
from memlite.engine.sizes import SizeClasses
from memlite.memory import FullItem
from memlite.protocol.limits import item_total
from tests.support.ports import unused_port

MEMCACHED = Path("/usr/bin/memcached")


def item(value, flags=0):
    return item_of(Record(b"key1", value, flags, version=1), FullItem)


# 48 of header, 8 of cas unique, the key and its NUL, 4 of flags unless 0, the value and "\r\n".


@pytest.mark.parametrize(
    ("arguments", "cas", "total"),
    [
        ((1, 0, 0), True, 60),
        ((1, 0, 0), False, 52),
        ((1, 1, 0), True, 64),
        ((1, 2**32 - 1, 0), True, 64),
        ((4, 0, 66560), True, 66623),
        ((250, 1, 1048576), False, 48 + 251 + 4 + 1048576 + 2),
    ],
)
def test_item_total(arguments, cas, total):
    assert item_total(*arguments, cas=cas) == total


@pytest.mark.parametrize(
    ("total", "number"),
    [(1, 1), (96, 1), (97, 2), (120, 2), (121, 3), (66232, 30), (66233, 31), (82792, 31),
     (394840, 38), (394841, 39), (524288, 39), (524289, 39), (2**30, 39)],
)  # fmt: skip
def test_class_of_a_total(total, number):
    assert SizeClasses().of_total(total) == number


def test_class_of_an_item():
    sizes = SizeClasses()
    assert sizes.of_item(4, item(b"x" * 66560)) == 31
    assert sizes.of_item(4, item(b"x" * 33)) == 1
    assert sizes.of_item(4, item(b"x" * 34)) == 2
    assert sizes.of_item(4, item(b"x" * 33, flags=1)) == 2
    assert SizeClasses(cas=False).of_item(4, item(b"x" * 41)) == 1
    assert SizeClasses(cas=False).total(4, item(b"x" * 41)) == 96


@given(
    st.floats(1.01, 10),
    st.integers(1, 4096),
    st.sampled_from([1024, 65536, 2**20, 2**24]),
    st.integers(1, 2**21),
)
def test_a_class_is_the_smallest_that_holds_the_item(factor, chunk_size, item_size_max, total):
    sizes = SizeClasses(factor=factor, chunk_size=chunk_size, item_size_max=item_size_max)
    chunks = sizes.chunk_sizes
    assert chunks == sorted(chunks)
    assert 1 <= len(chunks) <= 63
    number = sizes.of_total(total)
    assert 1 <= number <= len(chunks)
    if total <= chunks[-1]:
        assert total <= chunks[number - 1]
    assert number == 1 or total > chunks[number - 2]


def test_reset_forgets_counts():
    sizes = SizeClasses()
    sizes.evictions[3].reclaimed += 1
    assert sizes.evictions[3]
    sizes.reset()
    assert not any(sizes.evictions)


# Against memcached itself


@contextlib.contextmanager
def chunk_sizes_of_memcached(*flags):
    """Return the chunk sizes that memcached prints when it starts."""
    command = [str(MEMCACHED), "-vv", "-u", "root", "-l", "127.0.0.1", "-U", "0"]
    process = subprocess.Popen(
        [*command, "-p", str(unused_port()), *flags], stderr=subprocess.PIPE, text=True
    )
    # The output ends when memcached listens; if it never does, a timer kills it.
    timer = threading.Timer(20, process.kill)
    timer.start()
    sizes = []
    try:
        for line in process.stderr:
            if match := re.match(r"slab class +\d+: chunk size +(\d+) ", line):
                sizes.append(int(match[1]))
            elif "server listening" in line:
                break
        yield sizes
    finally:
        timer.cancel()
        process.terminate()
        process.wait()
        process.stderr.close()


@pytest.mark.skipif(not MEMCACHED.exists(), reason=f"{MEMCACHED} is not installed")
@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        ([], {}),
        (["-f", "2"], {"factor": 2}),
        (["-f", "1.05"], {"factor": 1.05}),
        (["-n", "100"], {"chunk_size": 100}),
        (["-n", "5"], {"chunk_size": 5}),
        (["-I", "512k"], {"item_size_max": 512 * 1024}),
        (["-I", "4m"], {"item_size_max": 4 * 1024 * 1024}),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_chunk_sizes_are_those_of_memcached(flags, settings):
    with chunk_sizes_of_memcached(*flags) as expected:
        assert expected
        assert SizeClasses(**settings).chunk_sizes == expected
