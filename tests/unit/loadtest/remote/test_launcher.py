"""The program that starts servers for a load tester on another machine."""

import json
import subprocess
import sys

import pytest

from memlite.core.build import describe_build
from memlite.core.version import __version__

# Runs without the packages that a machine with only servers does not have.
WITHOUT = """
import sys
for name in ("psutil", "numpy", "scipy", "rich", "pymemcache", "hdrh", "matplotlib", "jinja2"):
    sys.modules[name] = None
from memlite.__main__ import main
sys.argv = ["memlite", "bench", "launcher"]
sys.exit(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_it_needs_only_the_packages_of_a_server_and_ends_with_its_input() -> None:
    requests = [
        {"id": 1, "do": "begin", "of": {"patience": 60, "host": "127.0.0.1", "ports": None}},
        {"id": 2, "do": "counters", "of": [1, 999_999_999]},
        {"id": 3, "do": "start", "of": {"name": "x", "arguments": [], "backend": "nonsense://"}},
    ]
    text = "\n\n".join(json.dumps(one) for one in requests) + "\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    greeting, begun, counters, refused = map(json.loads, done.stdout.splitlines())
    assert greeting["memlite"] == __version__
    assert greeting["build"] == describe_build()
    assert greeting["machine"]["cores"] >= 1
    assert begun["found"] > 0
    assert counters["id"] == 2
    assert counters["found"]["processes"]["999999999"] is None
    assert refused["error"].startswith("x: ")
    assert "nonsense" in refused["error"]
