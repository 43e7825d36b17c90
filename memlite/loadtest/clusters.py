"""Clusters to measure: nodes, with or without proxies in front of them."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from memlite.client.address import Address
from memlite.cluster.topology import Node, Topology
from memlite.core.errors import ConfigError
from memlite.loadtest.defaults import ASKED, PROXIED, WITH_PROXY
from memlite.loadtest.launching import MEMCACHED, Launch
from memlite.loadtest.places import HERE, Place, Started, in_turn, started
from memlite.loadtest.results import ClusterInfo, Placed, TargetInfo
from memlite.loadtest.server_options import Given, proxy_launch
from memlite.loadtest.targets import LaunchedServer, LaunchSettings, Target
from memlite.loadtest.together import together
from memlite.loadtest.usage import Counted

__all__ = ["Cluster", "clusters"]

_BACKENDS: Final = ("memory", "file", MEMCACHED)
_MAX_NODES: Final = 64
_MAX_PROXIES: Final = 16
# Options for a single proxy: proxies do not know of each other, so they cannot share these tasks.
_ALONE: Final = ("promote-hot-keys", "trace")
_LEAST_MEMORY: Final = 64  # megabytes per node


class Cluster(Target):
    """Nodes and, for the paths `WITH_PROXY`, proxies, launched for the measurement.

    All clusters have the same total memory, so that more nodes do not mean more hits. Nodes are
    hashed by names that are the same in every run, so that keys are always distributed the same
    way.

    Args:
        info: the parts of the cluster.
        backend: backend of the nodes: ``memory``, ``file``, or ``memcached`` to run memcached
            servers as nodes.
        settings: how to launch a node; the memory is the total for all nodes.
        options: options of the proxies.
        places: machines for the nodes and proxies, used in turn.

    Raises:
        ConfigError: the nodes or the proxies do not support the options.
    """

    def __init__(
        self,
        info: ClusterInfo,
        backend: str,
        settings: LaunchSettings,
        options: Sequence[Given],
        places: Sequence[Place] = (HERE,),
    ) -> None:
        super().__init__(_name(info), "cluster")
        self._info = info
        self._backend = backend
        settings = replace(settings, memory=max(_LEAST_MEMORY, settings.memory // info.nodes))
        self._settings = settings
        of_nodes, self._of_proxies = in_turn(places, info.nodes, info.proxies)
        self._nodes = [
            LaunchedServer(f"{self.name}: node {number}", backend, settings, place)
            for number, place in enumerate(of_nodes, 1)
        ]
        self._of_nodes = of_nodes
        self._launch = proxy_launch(options, info.nodes)
        self._proxies: list[Started] = []
        self._placed: dict[str, Placed] = {}
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
            self.processes_by_name = {**self._named_proxies(), **nodes}
            addresses = [one.address for one in self._proxies] or [self._nodes[0].address]
            self.address, self.extra_addresses = addresses[0], tuple(addresses[1:])
            self.discovers_nodes = self._info.path == ASKED
            if self._info.path == PROXIED:
                self.proxies = [one.address for one in self._proxies]
            else:
                self.topology = topology
            self.processes = list(self.processes_by_name.values())
            self._placed = dict(
                _placed(self.processes_by_name, [*self._of_proxies, *self._of_nodes])
            )
            self._describe(topology)
            self._stack = stack.pop_all()
        return self

    def _named_proxies(self) -> dict[str, Counted]:
        processes = [one.process for one in self._proxies]
        if len(processes) == 1:
            return {"proxy": processes[0]}
        return {f"proxy-{number}": one for number, one in enumerate(processes, 1)}

    def _describe(self, topology: Topology) -> None:
        self.details["nodes"] = ", ".join(str(node.address) for node in topology.nodes)
        self.details["backend"] = self._backend
        self.details |= {f"nodes' {name}": text for name, text in self._nodes[0].details.items()}
        if self._placed:
            where = (f"{name} on {one.machine}" for name, one in self._placed.items())
            self.details["machines"] = ", ".join(where)
        if self._launch.given:
            self.details["proxies' options"] = " ".join(self._launch.given)

    def _start_proxies(self, stack: contextlib.ExitStack, topology: Topology) -> None:
        launch = Launch(
            f"{self.name}: a proxy",
            self._launch.flags,
            topology="".join(_lines(topology)),
            connections=self._settings.connections,
            item_size=self._settings.item_size,
        )
        folder = self._settings.folder
        starting = [started(place, launch, folder) for place in self._of_proxies]
        self._proxies = stack.enter_context(together(starting))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    @property
    def connections_per_client(self) -> int:
        """Number of connections per client: one to each node if the client knows the nodes."""
        return 1 if self._info.path == PROXIED else self._info.nodes

    def info(self) -> TargetInfo:
        """Describe the cluster."""
        return replace(super().info(), cluster=self._info, placed=self._placed)

    def check(self) -> None:
        """Check that all nodes and proxies are still running."""
        for node in self._nodes:
            node.check()
        for proxy in self._proxies:
            proxy.check()


def clusters(
    numbers: Sequence[int],
    paths: Sequence[str],
    proxies: Sequence[int],
    backends: Sequence[str],
    settings: LaunchSettings,
    options: Sequence[Given] = (),
    places: Sequence[Place] = (HERE,),
) -> list[Target]:
    """Return a cluster for each number of nodes, path and, if the path has any, number of proxies.

    Args:
        numbers: numbers of nodes.
        paths: a selection from `PATHS`.
        proxies: numbers of proxies.
        backends: the one backend of all nodes: ``memory``, ``file`` or ``memcached``.
        settings: how to launch the nodes; the memory is the total for all nodes.
        options: options of the proxies.
        places: machines for the processes of each cluster, used in turn.

    Raises:
        ConfigError: a number is too high, there is not exactly one possible backend, or an option
            is wrong.
    """
    if max(numbers) > _MAX_NODES:
        raise ConfigError(f"bench: --cluster: at most {_MAX_NODES} nodes, not {max(numbers)}")
    if max(proxies) > _MAX_PROXIES:
        raise ConfigError(f"bench: --proxies: at most {_MAX_PROXIES}, not {max(proxies)}")
    if len(backends) != 1 or backends[0] not in _BACKENDS:
        raise ConfigError(
            f"bench: --cluster requires one of --backends {', '.join(_BACKENDS)}, for all nodes, "
            f"not {','.join(backends)!r}"
        )
    for name, _ in options:
        if name in _ALONE and max(proxies) > 1:
            raise ConfigError(f"bench: --proxy-option {name} requires --proxies 1")
    alone = [path for path in paths if path not in WITH_PROXY]
    if alone and dict(options).get("replicas", "1") != "1":
        raise ConfigError(
            f"bench: --proxy-option replicas affects only proxies: with --paths {alone[0]} each "
            f"key would have one copy: use --paths {','.join(WITH_PROXY)}"
        )
    in_flight = int(dict(options).get("in-flight") or 0)
    infos = [
        ClusterInfo(number, path, count, in_flight if count else 0)
        for number in numbers
        for path in paths
        for count in (proxies if path in WITH_PROXY else [0])
    ]
    return [
        Cluster(info, backends[0], settings, options if info.proxies else (), places)
        for info in infos
    ]


def _placed(names: Iterable[str], places: Iterable[Place]) -> Iterator[tuple[str, Placed]]:
    """Yield the machine of each process that does not run on this machine."""
    for name, place in zip(names, places, strict=True):
        if place.placed is not None:
            yield name, place.placed


def _name(info: ClusterInfo) -> str:
    name = f"{info.nodes} node{'s' if info.nodes > 1 else ''}"
    if info.proxies > 1:
        how = f"{info.proxies} proxies"
        return f"{name}, {how}" if info.path == PROXIED else f"{name}, {how} {info.path}"
    return f"{name}, {info.path}"


def _lines(topology: Topology) -> Iterator[str]:
    """Yield the lines of a topology file; JSON strings are valid TOML strings."""
    for name in ("hash", "hash_tag", "multi_gets", "on_return", "replicas", "write", "read"):
        yield f"{name} = {json.dumps(getattr(topology, name))}\n"
    if topology.hot_keys:
        keys = [os.fsdecode(one.key) for one in topology.hot_keys]
        yield f"hot_keys = {json.dumps(keys)}\n"
    for node in topology.nodes:
        yield f'[[nodes]]\nname = "{node.name}"\naddress = "{node.address}"\n'
