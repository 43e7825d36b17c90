"""pymemcache's bundled tests, run against memlite and through proxies.

``scripts/clients/try-clients --only python`` downloads and runs the tests of other libraries.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pymemcache
import pytest

from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, needs_memcached, running
from tests.support.waiting import wait_until

# Uses `stats cachedump` and sets a memory limit, which a proxy leaves to the nodes.
OF_NODES = "test_misc"
SUITE = Path(pymemcache.__file__).parent / "test" / "test_integration.py"
TESTS = 100

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def behind_proxy(kind: str, *options: str) -> Iterator[RunningServer]:
    """Run a proxy in front of three nodes."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(running(kind)) for _ in range(3)]
        front = stack.enter_context(proxy(nodes, *options))
        assert wait_until(lambda: all(node_stat(front, one, "state") == "up" for one in nodes))
        yield front


def passed(server: RunningServer, *options: str) -> int:
    """Run the tests, none of which may fail; return their number."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio",
            "-c", os.devnull, f"--rootdir={SUITE.parent}", str(SUITE),
            "--server=127.0.0.1", f"--port={server.port}", *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,  # it takes 10 to 20 on an idle machine
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = re.search(r"(\d+) passed", done.stdout)
    assert found, done.stdout
    return int(found[1])


@pytest.mark.parametrize("kind", ["memlite", "memlite-file", "memlite-near"])
def test_memlite(kind: str) -> None:
    with running(kind) as server:
        assert passed(server) == TESTS


@pytest.mark.parametrize("options", [(), ("--replicas", "2"), ("--in-flight", "1")], ids=str)
@pytest.mark.parametrize("kind", [pytest.param("memcached", marks=needs_memcached), "memlite"])
def test_a_proxy(kind: str, options: tuple[str, ...]) -> None:
    with behind_proxy(kind, *options) as front:
        assert passed(front, "-k", f"not {OF_NODES}") == TESTS - 6
