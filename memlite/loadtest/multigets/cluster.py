"""Nodes behind a proxy that writes a trace, and key prefixes that map to one node."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from memlite.client.address import Address
from memlite.cluster.topology import Node, Topology
from memlite.loadtest.launching import Launch
from memlite.loadtest.places import HERE, Place, Started, in_turn, started
from memlite.loadtest.targets import LaunchedServer, LaunchSettings, Target
from memlite.loadtest.together import together

__all__ = ["SAMPLE", "TAG", "TracedCluster", "prefixes"]

SAMPLE: Final = 10
"""The proxy traces one request in this many: tracing all would cost more time than serving them."""
TAG: Final = "{}"


class TracedCluster(Target):
    """Nodes and a proxy that hashes the tags of keys, launched for the measurement.

    Args:
        nodes: the number of nodes.
        trace: the file that the proxy writes.
        settings: how to launch the nodes.
        backend: the nodes' backend: ``memory``, ``file`` or ``memcached``.
        places: the machines on which the nodes and the proxy are started, in rotation.

    Raises:
        ConfigError: the nodes have no such options.
    """

    def __init__(
        self,
        nodes: int,
        trace: Path,
        settings: LaunchSettings,
        backend: str = "memory",
        places: Sequence[Place] = (HERE,),
    ) -> None:
        super().__init__(f"{nodes} nodes", "cluster")
        of_nodes, (self._of_proxy,) = in_turn(places, nodes, 1)
        self._nodes = [
            LaunchedServer(f"node {number}", backend, settings, place)
            for number, place in enumerate(of_nodes, 1)
        ]
        self._trace = trace
        self._settings = settings
        self._stack = contextlib.ExitStack()
        self._proxy: Started | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(together(self._nodes))
            for number, node in enumerate(self._nodes, 1):
                (self.processes_by_name[f"node-{number}"],) = node.processes
            self._proxy = self._start_proxy(stack)
            self.processes_by_name = {"proxy": self._proxy.process, **self.processes_by_name}
            self.processes = list(self.processes_by_name.values())
            self.address = self._proxy.address
            self._stack = stack.pop_all()
        return self

    def _start_proxy(self, stack: contextlib.ExitStack) -> Started:
        launch = Launch(
            "the proxy",
            (f"--trace-sample=1/{SAMPLE}",),
            topology="".join(self._lines()),
            trace=str(self._trace.resolve()),
            connections=self._settings.connections,
            item_size=self._settings.item_size,
        )
        return stack.enter_context(started(self._of_proxy, launch, self._settings.folder))

    def _lines(self) -> Iterator[str]:
        yield f'hash_tag = "{TAG}"\n'
        for number, node in enumerate(self._nodes, 1):
            yield f'[[nodes]]\nname = "node-{number}"\naddress = "{Address.of(node.address)}"\n'

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def check(self) -> None:
        """Check that all nodes and the proxy are still running."""
        for node in self._nodes:
            node.check()
        if self._proxy is not None:
            self._proxy.check()


def prefixes(nodes: int) -> Sequence[str]:
    """Return a prefix for each node: all keys with it as their tag are on that node."""
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
