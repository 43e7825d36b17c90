"""A proxy as a process, in front of nodes."""

import contextlib
import sys
from collections.abc import Iterator, Sequence

import memlite.testing
from tests.support.servers import START_SECONDS, RunningServer

__all__ = ["proxy"]


@contextlib.contextmanager
def proxy(nodes: Sequence[RunningServer], *arguments: str) -> Iterator[RunningServer]:
    """Run a proxy in front of nodes, with further arguments."""
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    command = [sys.executable, "-P", "-m", "memlite", "proxy", "--nodes", addresses]
    with memlite.testing.server(
        *arguments, command=command, start_timeout=START_SECONDS
    ) as process:
        yield RunningServer(
            "memlite-proxy", process.process, process.port, 0, (), "", process.log, None
        )
