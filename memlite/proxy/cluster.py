"""The nodes behind a proxy: which one has a key, and its connection."""

import logging
import time
from typing import Final, Protocol

from memlite.cluster.topology import Node as NodeAddress
from memlite.cluster.topology import Topology
from memlite.proxy.node import Access, Node
from memlite.server.scheduler import Scheduler

__all__ = ["Cluster"]

_log = logging.getLogger("memlite")

# Nodes by key, which takes a tenth of the time of finding them. The memory for that is bounded.
_MOST_REMEMBERED: Final = 32_768


class _Delivering(Protocol):
    def deliver(self) -> None: ...


class Cluster:
    """Finds the node of a key, and has the replies of nodes delivered.

    Args:
        topology: the nodes.
        scheduler: connects to them.
        access: how nodes are reached.

    Attributes:
        topology: the nodes' names, addresses and weights, and how keys are spread.
        nodes: the nodes.
        version: of the topology, for clients: a number that rises with each change.
        changes: how often the topology has changed.
        due: the executors that have replies to deliver.
        by_line: the nodes of the keys of gets, by the whole request line. What is in there is a
            valid get of one key.
        failures: requests, or parts of one, that were answered with an error of the proxy.
        failed_shards: the parts of retrievals whose keys were misses because a node failed.
        multigets: retrievals that several nodes were asked for.
    """

    def __init__(self, topology: Topology, scheduler: Scheduler, access: Access) -> None:
        self.topology = topology
        self.version = _version(0)
        self._scheduler = scheduler
        self._access = access
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
        if topology == self.topology:
            return
        kept = {(node.name, node.address): node for node in self.nodes}
        nodes, added = [], []
        for one in topology.nodes:
            node = kept.pop((one.name, one.address), None)
            if node is None:
                node = self._node(one)
                added.append(node)
            nodes.append(node)
        self.topology, self._index, self.nodes = topology, topology.router().index, nodes
        self.version = _version(self.version)
        self._by_key.clear()
        self.by_line.clear()
        self.changes += 1
        for node in added:
            node.start()
        for node in kept.values():
            node.retire()
        _log.info("topology: %d nodes, %d of them new, %d gone", len(nodes), len(added), len(kept))

    def node_of(self, key: bytes) -> Node:
        """Return the node that has a key."""
        node = self._by_key.get(key)
        if node is None:
            node = self.nodes[self._index(key)]
            if len(self._by_key) >= _MOST_REMEMBERED:
                self._by_key.clear()
            self._by_key[key] = node
        return node

    def remember(self, line: bytes, node: Node) -> None:
        """Note that a line is a get of one key, which a node has."""
        if len(self.by_line) >= _MOST_REMEMBERED:
            self.by_line.clear()
        self.by_line[line] = node

    def deliver(self) -> None:
        """Send the replies that are due."""
        while self.due:
            due, self.due = self.due, []
            for executor in due:
                executor.deliver()


def _version(last: int) -> int:
    """Return a version above the last one.

    It is about the time of the change in seconds since 1970: clients ignore lower versions, and a
    proxy that is started again does not know its last one.
    """
    return max(last + 1, int(time.time()))
