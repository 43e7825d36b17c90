"""Traces that are fetched from other machines."""

from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.models.traces import read_trace
from memlite.loadtest.remote.traces import add_trace

HEADER = "client,arrival,queue_length,enqueued,dequeued,sent,received,replied,worker,nodes,keys\n"


def row(at: float, keys: str = "1") -> str:
    start = round(at * 1e6)
    return f"1,{start},0,,,{start + 10},{start + 30},{start + 40},,node-1,{keys}\n"


def test_times_are_converted_to_the_local_clock(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    # The remote clock is an hour ahead. The last line is not complete.
    add_trace(HEADER + row(3700.0) + row(3700.5) + "1,37", path, 3600.0)
    add_trace(HEADER + row(3701.0, '"a, b"'), path, 3600.0)
    lines = path.read_text().splitlines()
    assert lines[0] + "\n" == HEADER
    assert len(lines) == 4
    assert lines[1].startswith("1,100000000,0,,,100000010,100000030,100000040,,node-1")
    assert lines[3].endswith('"a, b"')
    (found,) = read_trace(path, [[(99.9, 101.1)]])
    assert found.requests == 3
    assert found.response.mean == pytest.approx(40e-6)


def test_a_trace_without_a_row(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    add_trace("", path, 1.0)
    assert path.read_text() == ""
    add_trace(HEADER, path, 1.0)
    assert path.read_text() == HEADER
