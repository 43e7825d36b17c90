"""Nodes behind a proxy that writes a trace, and prefixes of keys that are on one of them."""

import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from memlite.client.address import Address
from memlite.cluster.topology import Node, Topology
from memlite.core.errors import StartError
from memlite.loadtest.targets import LaunchedServer, LaunchSettings, Target, last_line
from memlite.loadtest.together import together
from memlite.testing import process

__all__ = ["SAMPLE", "TAG", "TracedCluster", "prefixes"]

SAMPLE: Final = 10
"""The proxy traces one request in so many: tracing all would take more of its time than they do."""
TAG: Final = "{}"
_PROXY: Final = (sys.executable, "-P", "-m", "memlite", "proxy")


class TracedCluster(Target):
    """Nodes and a proxy that hashes the tags of keys, launched for the measurement.

    Args:
        nodes: how many there are.
        trace: the file that the proxy writes.
        settings: how to launch the nodes.
        backend: theirs: ``memory``, ``file`` or ``memcached``.

    Raises:
        ConfigError: the nodes have no such options.
    """

    def __init__(
        self, nodes: int, trace: Path, settings: LaunchSettings, backend: str = "memory"
    ) -> None:
        super().__init__(f"{nodes} nodes", "cluster")
        self._nodes = [
            LaunchedServer(f"node {number}", backend, settings) for number in range(1, nodes + 1)
        ]
        self._trace = trace
        self._settings = settings
        self._stack = contextlib.ExitStack()
        self._proxy: process.ServerProcess | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(together(self._nodes))
            for number, node in enumerate(self._nodes, 1):
                (self.named[f"node-{number}"],) = node.processes
            self._proxy = self._start_proxy(stack)
            self.named = {"proxy": psutil.Process(self._proxy.process.pid), **self.named}
            self.processes = list(self.named.values())
            self.address = self._proxy.address
            self._stack = stack.pop_all()
        return self

    def _start_proxy(self, stack: contextlib.ExitStack) -> process.ServerProcess:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(dir=self._settings.folder, prefix=".")
        )
        file = Path(folder) / "topology.toml"
        file.write_text("".join(self._lines()), encoding="utf-8")
        launched = process.server(
            *("--topology", str(file), "--trace", str(self._trace.resolve())),
            *("--trace-sample", f"1/{SAMPLE}"),
            command=_PROXY,
            conn_limit=self._settings.connections,
            max_item_size=self._settings.item_size,
            environment=os.environ,
        )
        try:
            return stack.enter_context(launched)
        except process.ServerStartError as error:
            raise StartError(f"bench: the proxy: {last_line(error.output)}") from None

    def _lines(self) -> Iterator[str]:
        yield f'hash_tag = "{TAG}"\n'
        for number, node in enumerate(self._nodes, 1):
            yield f'[[nodes]]\nname = "node-{number}"\naddress = "{Address.of(node.address)}"\n'

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def check(self) -> None:
        """Check that all nodes and the proxy are still running."""
        for node in self._nodes:
            node.check()
        if self._proxy is not None and self._proxy.process.poll() is not None:
            raise StartError(f"bench: the proxy has exited: {last_line(self._proxy.output)}")


def prefixes(nodes: int) -> Sequence[str]:
    """Return a prefix for each node: with it as their tag, all keys are on that node."""
    where = tuple(
        Node(f"node-{number}", Address("127.0.0.1", number)) for number in range(1, nodes + 1)
    )
    router = Topology(where, hash_tag=TAG).router()
    found: dict[int, str] = {}
    for number in itertools.count():
        prefix = f"{{{number:04}}}"
        found.setdefault(router.index(f"{prefix}1".encode()), prefix)
        if len(found) == nodes:
            break
    return [found[index] for index in range(nodes)]
