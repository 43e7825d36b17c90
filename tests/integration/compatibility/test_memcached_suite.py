"""memcached's own tests of the binary protocol, run against memlite.

The tests are part of memcached's sources, which are not in this repository. They run if the
memcached to compare with (MEMLITE_TEST_MEMCACHED) is version 1.6.45, in the folder in which it was
built.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import PEER_VARIABLE, RunningServer, memcached_path, running

SOURCE = Path(memcached_path() or "").parent

pytestmark = [
    pytest.mark.skipif(
        not (SOURCE / "t" / "binary.t").exists(),
        reason=f"no test-suite beside the memcached that {PEER_VARIABLE} names",
    ),
    pytest.mark.skipif(shutil.which("perl") is None, reason="needs perl"),
]

# The suite starts the server itself, on a UNIX socket: "stats settings" shows no address.
NOT_FOR_US = {"binary.t": ["449"], "binary-get.t": []}


@pytest.fixture(scope="module", params=["memlite", "memlite-file"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running(request.param, "--debug-commands") as server:
        yield server


@pytest.mark.parametrize("name", NOT_FOR_US)
def test_memcacheds_suite(server: RunningServer, name: str) -> None:
    run = subprocess.run(
        ["perl", f"t/{name}"],
        cwd=SOURCE,
        env={**os.environ, "T_MEMD_USE_DAEMON": f"127.0.0.1:{server.port}"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    output = run.stdout + run.stderr
    planned = re.search(r"^1\.\.(\d+)$", run.stdout, re.MULTILINE)
    assert planned, output
    assert re.findall(r"Failed test .*?at t/\S+ line (\d+)", output, re.DOTALL) == NOT_FOR_US[name]
    assert len(re.findall(r"^(?:not )?ok ", run.stdout, re.MULTILINE)) == int(planned[1])
