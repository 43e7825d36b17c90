"""Follows a page of the documentation from top to bottom, in namespaces of its own."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.machine import can_have_one, inside
from tests.support.paths import ROOT

__all__ = ["follow"]

_PROGRAMS = ("curl", "openssl")  # used by pages, but not installed on every machine


def follow(page: Path, *speed: str) -> list[str]:
    """Run the blocks of a page as printed, and return the output of each.

    Args:
        page: the page.
        speed: "slow" to run slow blocks, too.
    """
    if not can_have_one():
        pytest.skip("this system does not let us create namespaces (unshare --net --pid)")
    text = page.read_text(encoding="utf-8")
    for program in _PROGRAMS:
        if f"\n{program} " in text and shutil.which(program) is None:
            pytest.skip(f"no {program} command")
    with tempfile.NamedTemporaryFile() as results:
        run = subprocess.run(
            inside(sys.executable, "-m", "tests.support.reader", page, results.name, *speed),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return list(json.load(results).values())
