"""The script of study-a-system.md, run on results with a known outcome."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")
pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.files import save
from tests.support.pages import texts
from tests.support.paths import ROOT
from tests.unit.loadtest.capacity.systems import system


@pytest.mark.slow
def test_the_script(tmp_path: Path) -> None:
    (script,) = texts(ROOT / "docs" / "how-to" / "study-a-system.md", "python")
    # The response times of this system are those of the network that the script builds.
    results = system(demand=10, network=100)
    save(dataclasses.replace(results), tmp_path / "measured")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    scalability, network = done.stdout.splitlines()
    assert re.match(r"contention 0\.\d+, coherency 0\.\d+", scalability)
    found = re.fullmatch(r"the network is off by ([+-]\d+)% to ([+-]\d+)%", network)
    assert found is not None
    assert -5 <= int(found[1]) <= int(found[2]) <= 5
    for name in ("scalability.png", "network.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
