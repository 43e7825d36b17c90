"""Clusters to measure: nodes on this machine, with a proxy in front of them or without."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import psutil

from memlite.client.address import Address
from memlite.cluster.topology import Node, Topology
from memlite.core.errors import ConfigError, StartError
from memlite.loadtest.defaults import ASKED, PROXIED, WITH_PROXY
from memlite.loadtest.results import ClusterInfo, TargetInfo
from memlite.loadtest.targets import LaunchedServer, LaunchSettings, Target, last_line
from memlite.testing import process

__all__ = ["Cluster", "clusters"]

_PROXY: Final = (sys.executable, "-P", "-m", "memlite", "proxy")
_BACKENDS: Final = ("memory", "file")
_MOST_NODES: Final = 64
_LEAST_MEMORY: Final = 64  # megabytes of a node


class Cluster(Target):
    """Nodes and, for the paths `WITH_PROXY`, a proxy, launched for the measurement.

    All clusters have the same memory in total, so that more nodes do not mean more hits. Nodes are
    hashed by names that are the same in every run, so that keys are spread in the same way.

    Args:
        nodes: how many there are.
        path: one of `PATHS`.
        backend: of the nodes: ``memory`` or ``file``.
        settings: how to launch a node; its memory is that of all nodes together.
    """

    def __init__(self, nodes: int, path: str, backend: str, settings: LaunchSettings) -> None:
        super().__init__(f"{nodes} node{'s' if nodes > 1 else ''}, {path}", "cluster")
        self._info = ClusterInfo(nodes, path)
        self._backend = backend
        self._settings = replace(settings, memory=max(_LEAST_MEMORY, settings.memory // nodes))
        self._stack = contextlib.ExitStack()
        self._nodes: list[LaunchedServer] = []
        self._proxy: process.ServerProcess | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for number in range(1, self._info.nodes + 1):
                node = LaunchedServer(f"{self.name}: node {number}", self._backend, self._settings)
                self._nodes.append(stack.enter_context(node))
                (self.named[f"node-{number}"],) = node.processes
            topology = Topology(
                tuple(
                    Node(name, Address.of(node.address))
                    for name, node in zip(self.named, self._nodes, strict=True)
                )
            )
            if self._info.path in WITH_PROXY:
                self._proxy = self._start_proxy(stack, topology)
                self.named = {"proxy": psutil.Process(self._proxy.process.pid), **self.named}
                self.address = self._proxy.address
            else:
                self.address = self._nodes[0].address
            self.asks = self._info.path == ASKED
            if self._info.path != PROXIED:
                self.topology = topology
            self.processes = list(self.named.values())
            self.details["nodes"] = ", ".join(str(node.address) for node in topology.nodes)
            self.details["backend"] = self._backend
            self._stack = stack.pop_all()
        return self

    def _start_proxy(
        self, stack: contextlib.ExitStack, topology: Topology
    ) -> process.ServerProcess:
        folder = tempfile.TemporaryDirectory(dir=self._settings.folder, prefix=".")
        file = Path(stack.enter_context(folder)) / "topology.toml"
        file.write_text("".join(_tables(topology)), encoding="utf-8")
        launched = process.server(
            "--topology",
            str(file),
            command=_PROXY,
            conn_limit=self._settings.connections,
            max_item_size=self._settings.item_size,
            environment=os.environ,
        )
        try:
            return stack.enter_context(launched)
        except process.ServerStartError as error:
            text = f"bench: {self.name}: the proxy: {last_line(error.output)}"
            raise StartError(text) from None

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    @property
    def connections_per_client(self) -> int:
        """How many connections a client has: one to each node if it knows them."""
        return 1 if self._info.path == PROXIED else self._info.nodes

    def info(self) -> TargetInfo:
        """Describe the cluster."""
        return replace(super().info(), cluster=self._info)

    def check(self) -> None:
        """Check that all nodes and the proxy are still running."""
        for node in self._nodes:
            node.check()
        if self._proxy is not None and self._proxy.process.poll() is not None:
            output = last_line(self._proxy.output)
            raise StartError(f"bench: {self.name}: the proxy has exited: {output}")


def clusters(
    numbers: Sequence[int], paths: Sequence[str], backends: Sequence[str], settings: LaunchSettings
) -> list[Target]:
    """Return a cluster for each number of nodes and each path.

    Args:
        numbers: of nodes.
        paths: some of `PATHS`.
        backends: that of all nodes: ``memory`` or ``file``.
        settings: how to launch them; the memory is that of all nodes together.

    Raises:
        ConfigError: a number is too high, or there is not exactly one possible backend.
    """
    if max(numbers) > _MOST_NODES:
        raise ConfigError(f"bench: --cluster: at most {_MOST_NODES} nodes, not {max(numbers)}")
    if len(backends) != 1 or backends[0] not in _BACKENDS:
        raise ConfigError(
            f"bench: --cluster takes one of --backends {' or '.join(_BACKENDS)}, for all nodes, "
            f"not {','.join(backends)!r}"
        )
    return [Cluster(number, path, backends[0], settings) for number in numbers for path in paths]


def _tables(topology: Topology) -> Iterator[str]:
    for node in topology.nodes:
        yield f'[[nodes]]\nname = "{node.name}"\naddress = "{node.address}"\n'
