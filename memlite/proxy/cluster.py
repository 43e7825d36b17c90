"""The nodes behind a proxy: which one has a key, and its connection."""

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from memlite.cluster.topology import Node as NodeAddress
from memlite.cluster.topology import Topology
from memlite.proxy.node import Access, Node, Receiver
from memlite.proxy.refusing import Refusing
from memlite.server.scheduler import Scheduler

__all__ = ["Cluster", "Target"]

_log = logging.getLogger("memlite")

# Nodes by key, which takes a tenth of the time of finding them. The memory for that is bounded.
_MOST_REMEMBERED: Final = 32_768


class Target(Protocol):
    """What requests are sent to: a node, or what stands for it."""

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; see `Node.send`."""


class _Delivering(Protocol):
    def deliver(self) -> None: ...


class Cluster:
    """Finds the node of a key, and has the replies of nodes delivered.

    Args:
        topology: the nodes; None while they are not known.
        scheduler: connects to them.
        access: how nodes are reached.

    Attributes:
        nodes: the nodes.
        changes: how often the topology has changed.
        due: the executors that have replies to deliver.
        by_line: the nodes of the keys of gets, by the whole request line. What is in there is a
            valid get of one key.
        failures: requests, or parts of one, that were answered with an error of the proxy.
        failed_shards: the parts of retrievals whose keys were misses because a node failed.
        multigets: retrievals that several nodes were asked for.
    """

    def __init__(self, topology: Topology | None, scheduler: Scheduler, access: Access) -> None:
        self._topology = topology
        self._scheduler = scheduler
        self._access = access
        self._refusing = Refusing("the nodes are not known yet") if topology is None else None
        self.nodes: list[Node] = []
        if topology is not None:
            self._index = topology.router().index
            self.nodes = [self._node(node) for node in topology.nodes]
        self.changes = 0
        self.due: list[_Delivering] = []
        self.by_line: dict[bytes, Node] = {}
        self._by_key: dict[bytes, Node] = {}
        self.reset()

    def _node(self, node: NodeAddress) -> Node:
        return Node(node, self._scheduler, self._access, self.deliver)

    def reset(self) -> None:
        """Start counting from zero."""
        self.failures = self.failed_shards = self.multigets = 0

    def start(self) -> None:
        """Connect to the nodes."""
        for node in self.nodes:
            node.start()

    def stop(self) -> None:
        """Close all connections."""
        for node in self.nodes:
            node.stop()

    def change(self, topology: Topology) -> None:
        """Send further requests to the nodes of another topology.

        Nodes of the same name and address keep their connection. Others answer what they have been
        asked, and are then disconnected.
        """
        if self._refusing is not None and self._topology is not None:
            _log.info("requests are forwarded again")
        self._refusing = None
        if topology == self._topology:
            return
        kept = {(node.name, node.address): node for node in self.nodes}
        nodes, added = [], []
        for one in topology.nodes:
            node = kept.pop((one.name, one.address), None)
            if node is None:
                node = self._node(one)
                added.append(node)
            nodes.append(node)
        self._topology, self._index, self.nodes = topology, topology.router().index, nodes
        self._by_key.clear()
        self.by_line.clear()
        self.changes += 1
        for node in added:
            node.start()
        for node in kept.values():
            node.retire()
        _log.info("topology: %d nodes, %d of them new, %d gone", len(nodes), len(added), len(kept))

    def suspend(self, reason: str) -> None:
        """Refuse all requests until the topology is known again."""
        if self._refusing is None or self._refusing.reason != reason:
            _log.warning("no request is forwarded: %s", reason)
        self._refusing = Refusing(reason)
        self._by_key.clear()
        self.by_line.clear()

    @property
    def targets(self) -> "Sequence[Target]":
        """What to send a request for all nodes to."""
        return self.nodes if self._refusing is None else [self._refusing]

    def node_of(self, key: bytes) -> "Target":
        """Return the node that has a key."""
        node = self._by_key.get(key)
        if node is None:
            if self._refusing is not None:
                return self._refusing
            node = self.nodes[self._index(key)]
            if len(self._by_key) >= _MOST_REMEMBERED:
                self._by_key.clear()
            self._by_key[key] = node
        return node

    def remember(self, line: bytes, node: "Target") -> None:
        """Note that a line is a get of one key, which a node has."""
        if not isinstance(node, Node):
            return
        if len(self.by_line) >= _MOST_REMEMBERED:
            self.by_line.clear()
        self.by_line[line] = node

    def deliver(self) -> None:
        """Send the replies that are due."""
        while self.due:
            due, self.due = self.due, []
            for executor in due:
                executor.deliver()
