"""The script that makes the table of miss ratios in the documentation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "benchmarks" / "hit_ratios.py"


@pytest.mark.slow
def test_hit_ratios_are_printed_as_a_table():
    run = subprocess.run(
        [sys.executable, SCRIPT, "--items", "5000", "--requests", "8000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    header, line, *rows = run.stdout.splitlines()
    names = [name.strip() for name in header.strip("|").split("|")]
    assert names[:5] == ["trace", "room", "memlite, s3fifo", "memlite, lru", "memlite -t"]
    assert line == "|" + " --- |" * len(names)
    assert len(rows) == 15
    for row in rows:
        _, room, *ratios = (cell.strip() for cell in row.strip("|").split("|"))
        assert re.fullmatch(r"\d+%", room)
        assert len(ratios) == len(names) - 2
        assert all(0 < float(ratio) <= 1 for ratio in ratios if ratio != "-")
    # The table of several workers is too small in some rows, but not in all.
    assert 0 < sum("-" in row.strip("|").replace("|", " ").split() for row in rows) < len(rows)
