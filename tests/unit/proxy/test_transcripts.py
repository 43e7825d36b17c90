"""A proxy does the same in C as in Python, whatever clients and nodes send."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memlite.proxy.framing import NATIVE

_ROOT = Path(__file__).parents[3]


def transcripts(first: int, last: int, **environment: str) -> list[str]:
    """Return the transcripts of the scripts with these numbers; see `transcripts.py`."""
    return subprocess.run(
        [sys.executable, "-m", "tests.unit.proxy.transcripts", str(first), str(last)],
        env={**os.environ, **environment},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


@pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")
@pytest.mark.parametrize(
    ("first", "last"), [(0, 40), pytest.param(40, 300, marks=pytest.mark.slow)]
)
def test_c_and_python_do_the_same(first: int, last: int) -> None:
    found = transcripts(first, last)
    assert len(found) == last - first
    assert found == transcripts(first, last, MEMLITE_NO_EXTENSIONS="1")
