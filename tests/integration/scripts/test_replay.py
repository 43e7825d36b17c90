"""Traces replayed against real servers by the script that prints miss ratios."""

import importlib
import struct
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.servers import needs_memcached

SCRIPT = ROOT / "scripts" / "benchmarks" / "hit_ratios.py"


@pytest.fixture
def replay(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts" / "benchmarks")
    return importlib.import_module("harness.replay")


def run(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def write(file, numbers, size):
    record = struct.Struct("<IQIq")
    file.write_bytes(b"".join(record.pack(0, number, size, -1) for number in numbers))


def test_no_key_is_requested_twice_at_the_same_time(replay):
    requests = [(b"%d" % number, number) for number in (1, 2, 1, 1, *range(100))]
    found = list(replay.windows(requests))
    assert [one for window in found for one in window] == requests
    assert [len(window) for window in found] == [2, 1, 2, 32, 32, 32, 3]


def test_no_requests_yield_no_windows(replay):
    assert list(replay.windows([])) == []


@needs_memcached
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the scripts read /proc")
def test_servers_are_compared_with_the_same_memory(tmp_path):
    # Twice the capacity, in a loop: every item has been evicted when it is requested again.
    loop = tmp_path / "loop"
    write(loop, [*range(8000)] * 2, 2000)
    fits = tmp_path / "fits"
    write(fits, [*range(500)] * 4, 2000)
    # Larger than the item size limit.
    large = tmp_path / "large"
    write(large, [1, 1, 2, 2], 3 << 20)
    files = [f"--trace={file}" for file in (loop, fits, large)]
    text = run("--servers", "--megabytes", 8, *files)
    header, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    names = [name.strip() for name in header.strip("|").split("|")]
    assert names[2:] == ["memcached", "memlite, s3fifo", "memlite, lru", "memlite -t 2"]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:2] for row in cells] == [["loop", "8"], ["fits", "8"], ["large", "8"]]
    ratios = [dict(zip(names, row, strict=True)) for row in cells]
    assert ratios[0]["memlite, lru"].startswith("1.000 (")
    assert 0.5 < float(ratios[0]["memlite, s3fifo"].split()[0]) < 1
    assert all(ratios[1][name].split()[0] == "0.250" for name in names[2:])
    for name in names[2:5]:
        assert ratios[2][name].startswith("1.000") and ratios[2][name].endswith(", 4 refused")
        grown = float(ratios[0][name].partition("(")[2].partition(" MB)")[0])
        assert 4 < grown < 40
    assert "MB" not in ratios[0]["memlite -t 2"]  # started with all of its memory


@pytest.mark.parametrize("content", [b"", b"time,key\n"])
def test_a_file_of_another_format_is_refused(replay, tmp_path, content):
    file = tmp_path / "trace"
    file.write_bytes(content)
    with pytest.raises(Exception, match="is not an uncompressed trace in oracleGeneral format"):
        list(replay.read_trace(file))


def test_a_trace_that_cannot_be_read_is_refused(replay, tmp_path):
    with pytest.raises(Exception, match=r"gone: No such file"):
        list(replay.read_trace(tmp_path / "gone"))


def test_a_trace_needs_servers():
    assert "--trace requires --servers" in run("--trace", "x", code=2)


@pytest.mark.parametrize("text", ["", "8,", "0", "x"])
def test_megabytes_are_numbers(text):
    assert "must be megabytes, separated by commas" in run("--megabytes", text, code=2)
