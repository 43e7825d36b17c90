"""Clusters to measure: nodes on this machine, with proxies in front of them or without."""

import contextlib
import json
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
from memlite.loadtest.server_options import Given, proxy_launch
from memlite.loadtest.targets import MEMCACHED, LaunchedServer, LaunchSettings, Target, last_line
from memlite.loadtest.together import together
from memlite.testing import process

__all__ = ["Cluster", "clusters"]

_PROXY: Final = (sys.executable, "-P", "-m", "memlite", "proxy")
_BACKENDS: Final = ("memory", "file", MEMCACHED)
_MOST_NODES: Final = 64
_MOST_PROXIES: Final = 16
# What proxies that do not know of each other cannot all do.
_ALONE: Final = ("promote-hot-keys", "trace")
_LEAST_MEMORY: Final = 64  # megabytes of a node


class Cluster(Target):
    """Nodes and, for the paths `WITH_PROXY`, proxies, launched for the measurement.

    All clusters have the same memory in total, so that more nodes do not mean more hits. Nodes are
    hashed by names that are the same in every run, so that keys are spread in the same way.

    Args:
        info: what it consists of.
        backend: of the nodes: ``memory``, ``file``, or ``memcached`` for nodes that are memcacheds.
        settings: how to launch a node; its memory is that of all nodes together.
        options: of the proxies.

    Raises:
        ConfigError: the nodes or the proxies have no such options.
    """

    def __init__(
        self, info: ClusterInfo, backend: str, settings: LaunchSettings, options: Sequence[Given]
    ) -> None:
        super().__init__(_name(info), "cluster")
        self._info = info
        self._backend = backend
        settings = replace(settings, memory=max(_LEAST_MEMORY, settings.memory // info.nodes))
        self._settings = settings
        self._nodes = [
            LaunchedServer(f"{self.name}: node {number}", backend, settings)
            for number in range(1, info.nodes + 1)
        ]
        self._launch = proxy_launch(options, info.nodes)
        self._proxies: list[process.ServerProcess] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(together(self._nodes))
            nodes = {}
            for number, node in enumerate(self._nodes, 1):
                (nodes[f"node-{number}"],) = node.processes
            topology = replace(
                self._launch.topology,
                nodes=tuple(
                    Node(name, Address.of(node.address))
                    for name, node in zip(nodes, self._nodes, strict=True)
                ),
            )
            self._start_proxies(stack, topology)
            self.named = {**self._named_proxies(), **nodes}
            addresses = [one.address for one in self._proxies] or [self._nodes[0].address]
            self.address, self.others = addresses[0], tuple(addresses[1:])
            self.asks = self._info.path == ASKED
            if self._info.path == PROXIED:
                self.proxies = [one.address for one in self._proxies]
            else:
                self.topology = topology
            self.processes = list(self.named.values())
            self._describe(topology)
            self._stack = stack.pop_all()
        return self

    def _named_proxies(self) -> dict[str, psutil.Process]:
        processes = [psutil.Process(one.process.pid) for one in self._proxies]
        if len(processes) == 1:
            return {"proxy": processes[0]}
        return {f"proxy-{number}": one for number, one in enumerate(processes, 1)}

    def _describe(self, topology: Topology) -> None:
        self.details["nodes"] = ", ".join(str(node.address) for node in topology.nodes)
        self.details["backend"] = self._backend
        self.details |= {f"nodes' {name}": text for name, text in self._nodes[0].details.items()}
        if self._launch.given:
            self.details["proxies' options"] = " ".join(self._launch.given)

    def _start_proxies(self, stack: contextlib.ExitStack, topology: Topology) -> None:
        if not self._info.proxies:
            return
        folder = tempfile.TemporaryDirectory(dir=self._settings.folder, prefix=".")
        file = Path(stack.enter_context(folder)) / "topology.toml"
        file.write_text("".join(_lines(topology)), encoding="utf-8")
        launched = [
            process.server(
                f"--topology={file}",
                *self._launch.flags,
                command=_PROXY,
                conn_limit=self._settings.connections,
                max_item_size=self._settings.item_size,
                environment=os.environ,
            )
            for _ in range(self._info.proxies)
        ]
        try:
            self._proxies = stack.enter_context(together(launched))
        except process.ServerStartError as error:
            text = f"bench: {self.name}: a proxy: {last_line(error.output)}"
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
        """Check that all nodes and proxies are still running."""
        for node in self._nodes:
            node.check()
        for proxy in self._proxies:
            if proxy.process.poll() is not None:
                output = last_line(proxy.output)
                raise StartError(f"bench: {self.name}: a proxy has exited: {output}")


def clusters(
    numbers: Sequence[int],
    paths: Sequence[str],
    proxies: Sequence[int],
    backends: Sequence[str],
    settings: LaunchSettings,
    options: Sequence[Given] = (),
) -> list[Target]:
    """Return a cluster for each number of nodes, each path and, if it has any, number of proxies.

    Args:
        numbers: of nodes.
        paths: some of `PATHS`.
        proxies: numbers of proxies.
        backends: that of all nodes: ``memory``, ``file`` or ``memcached``.
        settings: how to launch them; the memory is that of all nodes together.
        options: of the proxies.

    Raises:
        ConfigError: a number is too high, there is not exactly one possible backend, or an option
            is wrong.
    """
    if max(numbers) > _MOST_NODES:
        raise ConfigError(f"bench: --cluster: at most {_MOST_NODES} nodes, not {max(numbers)}")
    if max(proxies) > _MOST_PROXIES:
        raise ConfigError(f"bench: --proxies: at most {_MOST_PROXIES}, not {max(proxies)}")
    if len(backends) != 1 or backends[0] not in _BACKENDS:
        raise ConfigError(
            f"bench: --cluster takes one of --backends {', '.join(_BACKENDS)}, for all nodes, "
            f"not {','.join(backends)!r}"
        )
    for name, _ in options:
        if name in _ALONE and max(proxies) > 1:
            raise ConfigError(f"bench: --proxy-option {name} is for one proxy: use --proxies 1")
    alone = [path for path in paths if path not in WITH_PROXY]
    if alone and dict(options).get("replicas", "1") != "1":
        raise ConfigError(
            f"bench: --proxy-option replicas is for proxies, and with --paths {alone[0]} each key "
            f"would have one copy: use --paths {','.join(WITH_PROXY)}"
        )
    infos = [
        ClusterInfo(number, path, count)
        for number in numbers
        for path in paths
        for count in (proxies if path in WITH_PROXY else [0])
    ]
    return [Cluster(info, backends[0], settings, options if info.proxies else ()) for info in infos]


def _name(info: ClusterInfo) -> str:
    name = f"{info.nodes} node{'s' if info.nodes > 1 else ''}"
    if info.proxies > 1:
        how = f"{info.proxies} proxies"
        return f"{name}, {how}" if info.path == PROXIED else f"{name}, {how} {info.path}"
    return f"{name}, {info.path}"


def _lines(topology: Topology) -> Iterator[str]:
    """Yield what a topology file says; strings of JSON are strings of TOML."""
    for name in ("hash", "hash_tag", "on_return", "replicas", "write", "read"):
        yield f"{name} = {json.dumps(getattr(topology, name))}\n"
    if topology.hot_keys:
        keys = [os.fsdecode(one.key) for one in topology.hot_keys]
        yield f"hot_keys = {json.dumps(keys)}\n"
    for node in topology.nodes:
        yield f'[[nodes]]\nname = "{node.name}"\naddress = "{node.address}"\n'
