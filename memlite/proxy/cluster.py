"""The nodes behind a proxy: which one has a key, and its connection."""

import logging
import time
from collections.abc import Sequence
from typing import Final, Protocol

from memlite.cluster.topology import Node as NodeAddress
from memlite.cluster.topology import Topology
from memlite.proxy.gutter import Gutter
from memlite.proxy.node import Access, Node, Receiver
from memlite.proxy.outages import Outages
from memlite.proxy.refusing import Refusing
from memlite.proxy.returning import Returning
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
        strict: whether a retrieval fails if one of its nodes fails.

    Attributes:
        topology: the nodes' names, addresses and weights, and how keys are spread; None while that
            is not known.
        nodes: the nodes.
        version: of the topology, for clients: a number that rises with each change.
        gutter: what serves keys of nodes that are down; None for nothing.
        strict: as above.
        changes: how often the topology has changed.
        due: the executors that have replies to deliver.
        by_line: the nodes of the keys of gets, by the whole request line. What is in there is a
            valid get of one key.
        failures: requests, or parts of one, that were answered with an error of the proxy.
        failed_shards: the parts of retrievals whose keys were misses because a node failed.
        multigets: retrievals that several nodes were asked for.
    """

    def __init__(
        self,
        topology: Topology | None,
        scheduler: Scheduler,
        access: Access,
        *,
        strict: bool = False,
    ) -> None:
        self.topology = topology
        self.version = _version(0)
        self._scheduler = scheduler
        self._access = access
        self._refusing: Refusing | None = None
        self.strict = strict
        self._outages, self._outages_of_gutter = Outages(), Outages()
        self._started = False
        self.nodes: list[Node] = []
        self.gutter: Gutter | None = None
        if topology is None:
            self._refusing = Refusing("the nodes are not known yet")
        else:
            self._index = topology.router().index
            # Nodes are taken as they are by a proxy that starts.
            self.nodes = [
                self._node(node, topology, self._outages, missed=False) for node in topology.nodes
            ]
            self._set_gutter(topology)
        self.changes = 0
        self.due: list[_Delivering] = []
        self.by_line: dict[bytes, Node] = {}
        self._by_key: dict[bytes, Node] = {}
        self.reset()

    def _node(
        self, node: NodeAddress, topology: Topology, outages: Outages, *, missed: bool
    ) -> Node:
        returning = Returning(missed=missed, empties=topology.on_return == "flush")
        return Node(node, self._scheduler, self._access, self.deliver, outages, returning)

    @property
    def every_node(self) -> list[Node]:
        """All nodes, those of the gutter included."""
        return self.nodes if self.gutter is None else [*self.nodes, *self.gutter.nodes]

    def reset(self) -> None:
        """Start counting from zero."""
        self.failures = self.failed_shards = self.multigets = 0

    @property
    def refusal(self) -> bytes | None:
        """The reply to every request while the nodes are not known, else None."""
        return None if self._refusing is None else self._refusing.error

    def start(self) -> None:
        """Connect to the nodes."""
        self._started = True
        for node in self.every_node:
            node.start()

    def stop(self) -> None:
        """Close all connections."""
        for node in self.every_node:
            node.stop()

    def change(self, topology: Topology) -> None:
        """Send further requests to the nodes of another topology.

        Nodes of the same name and address keep their connection. Others answer what they have been
        asked, and are then disconnected.
        """
        if self._refusing is not None and self.topology is not None:
            _log.info("requests are forwarded again")
        self._refusing = None
        if topology == self.topology:
            return
        self.topology, self._index = topology, topology.router().index
        self.version = _version(self.version)
        old, before = self.nodes, self.every_node
        self.nodes = self._taken_over(old, topology.nodes, topology, self._outages)
        for node in self.nodes:
            node.returning.empties = topology.on_return == "flush"
        self._set_gutter(topology)
        self._by_key.clear()
        self.by_line.clear()
        self.changes += 1
        now = self.every_node
        if self._started:
            for node in set(now).difference(before):
                node.start()
        for node in set(before).difference(now):
            node.retire()
        added, gone = len(set(self.nodes).difference(old)), len(set(old).difference(self.nodes))
        _log.info("topology: %d nodes, %d of them new, %d gone", len(self.nodes), added, gone)

    def _taken_over(
        self,
        nodes: Sequence[Node],
        wanted: Sequence[NodeAddress],
        topology: Topology,
        outages: Outages,
    ) -> list[Node]:
        """Return nodes as wanted: those that there are, and new ones.

        Nobody knows where a new one comes from. It may have been there before, and have missed what
        changed since.
        """
        known = {(node.name, node.address): node for node in nodes}
        return [
            known.get((one.name, one.address)) or self._node(one, topology, outages, missed=True)
            for one in wanted
        ]

    def _set_gutter(self, topology: Topology) -> None:
        old = self.gutter.nodes if self.gutter is not None else ()
        self.gutter = None
        if topology.gutter is not None:
            wanted = topology.gutter.nodes
            nodes = self._taken_over(old, wanted, topology, self._outages_of_gutter)
            index = Topology(wanted, topology.hash, topology.hash_tag).router().index
            most = max(1, len(self.nodes) // 2)  # it is not made for more
            self.gutter = Gutter(nodes, index, topology.gutter.ttl, most)
        self._outages_of_gutter.watch(self.gutter.nodes if self.gutter is not None else ())
        self._outages.watch(self.nodes, self.gutter)

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
        return self.every_node if self._refusing is None else [self._refusing]

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


def _version(last: int) -> int:
    """Return a version above the last one.

    It is about the time of the change in seconds since 1970: clients ignore lower versions, and a
    proxy that is started again does not know its last one.
    """
    return max(last + 1, int(time.time()))
