"""A proxy process in front of nodes."""

import contextlib
import ssl
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import memlite.testing
from tests.support.forked import fork_process
from tests.support.servers import START_SECONDS, RunningServer

__all__ = ["node_stat", "proxy"]


@contextlib.contextmanager
def proxy(
    nodes: Sequence[RunningServer] | Path | str,
    *arguments: str,
    tls: ssl.SSLContext | None = None,
    program: Sequence[str] = ("-m", "memlite"),
    environment: dict[str, str] | None = None,
) -> Iterator[RunningServer]:
    """Run a proxy in front of nodes, or with a topology file, or for a cluster.

    Args:
        nodes: the nodes, or the file, or the URL of the store in which they register.
        arguments: further arguments.
        program: the program that runs it in place of memlite itself.
        environment: further variables.
        tls: the context that the proxy's clients need to connect.
    """
    if isinstance(nodes, Path):
        where = ["--topology", str(nodes)]
    elif isinstance(nodes, str):
        where = ["--cluster", nodes]
    else:
        where = ["--nodes", ",".join(f"127.0.0.1:{node.port}" for node in nodes)]
    command = [sys.executable, "-P", *program, "proxy", *where]
    with memlite.testing.server(
        *arguments,
        command=command,
        start_timeout=START_SECONDS,
        environment=environment,
        start=fork_process,
    ) as process:
        yield RunningServer(
            "memlite-proxy",
            process.process,
            process.port,
            0,
            (),
            "",
            process.log,
            tls,
            process.http_port,
        )


def node_stat(front: RunningServer, node: RunningServer, name: str, *, kind: str = "node") -> str:
    """Return a proxy's statistic of a node without a name; empty if there is none."""
    return front.stats().get(f"{kind}:127.0.0.1:{node.port}:{name}", "")
