"""The nodes behind a proxy: which node has a key, and its connection."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Final, Protocol

from memlite.cluster.topology import Node as NodeAddress
from memlite.cluster.topology import Topology
from memlite.core.logs import failure
from memlite.proxy.absences import Absences
from memlite.proxy.broadcast import Broadcast
from memlite.proxy.changes import Changes
from memlite.proxy.finished_moves import FinishedMoves
from memlite.proxy.framing import NATIVE
from memlite.proxy.gutter import Gutter
from memlite.proxy.handover import Handover
from memlite.proxy.known_nodes import MAX_REMEMBERED, KnownNodes
from memlite.proxy.merge import Merger
from memlite.proxy.moving import Moving
from memlite.proxy.node import Access, Node, Receiver
from memlite.proxy.node_recovery import NodeRecovery
from memlite.proxy.outages import Outages
from memlite.proxy.promotions import Promotions
from memlite.proxy.refusal import NO_NUL, Refusal
from memlite.proxy.replicas import ReplicaSet, ReplicaSets
from memlite.proxy.resend import Target, send_again
from memlite.proxy.whole_gets import WholeGets
from memlite.server.scheduler import Scheduler

__all__ = ["Cluster", "Target"]

_log = logging.getLogger("memlite")

# Seconds within which nodes usually answer a whole pipeline: one write to the client is enough.
_SHORTLY: Final = 0.001


class _Delivering(Protocol):
    def deliver(self) -> None: ...

    def send_progress(self) -> None: ...


class Cluster:
    """Finds the node of a key, and delivers the replies of nodes.

    Args:
        topology: the nodes; None while they are not known.
        scheduler: connects to them.
        access: how nodes are reached.
        strict: whether a retrieval fails if one of its nodes fails.
        follows_within: seconds after which all proxies know of a change of the nodes; 0 if they
            need not agree.

    Attributes:
        topology: the nodes' names, addresses and weights, and how keys are spread; None while they
            are not known.
        nodes: the nodes.
        version: the topology's version for clients, a number that rises with each change.
        timing: the times of requests.
        gutter: serves the keys of nodes that are down; None if there is none.
        strict: as above.
        replicas: finds the nodes of a key, if keys have several; None if each has one.
        replicated: the changes of keys with replicas.
        absences: the notes about nodes that miss changes; None if no node can miss any.
        moving: the move of keys between nodes that is in progress; None if there is none.
        hot: the keys that have copies on all nodes.
        merger: merges the nodes' replies to the parts of a retrieval.
        due: the executors that have replies to deliver. The C code uses this list, and the next.
        partly: the executors that have some of the replies to a batch.
        known_nodes: the nodes of some keys, for reading. It may lack any key; see `node_of`. Keys
            with a NUL are never in it. The C code asks it for keys that it lacks, too.
        by_line: the nodes of the keys of gets, by the whole request line. Each line is a
            valid get of one key, or an ``mg``; see `remember_meta`.
        failures: requests, or parts of requests, that the proxy answered with an error of its own.
        failed_shards: the parts of retrievals whose keys were misses because a node failed.
        multigets: retrievals that were sent to several nodes.
        routes: a number that changes whenever the nodes of keys may have changed.
    """

    def __init__(
        self,
        topology: Topology | None,
        scheduler: Scheduler,
        access: Access,
        *,
        strict: bool = False,
        follows_within: float = 0.0,
    ) -> None:
        self.topology = topology
        self.version = _version(0)
        self.routes = 0
        self._requests_before = 0  # to nodes that have left
        self._scheduler = scheduler
        self._access = access
        self.timing = access.timing
        self._refusal: Refusal | None = None
        self.strict = strict
        self._outages, self._outages_of_gutter = Outages(), Outages()
        self._started = False
        self.nodes: list[Node] = []
        self.gutter: Gutter | None = None
        self.replicas: ReplicaSets | None = None
        self._whole_gets: WholeGets | None = None
        # Well over the deadline: a node that was paused may still make a change after it.
        # A change takes three steps of at most a deadline each.
        self.replicated = Changes(
            max(30, math.ceil(10 * access.deadline)), over_after=3 * access.deadline
        )
        self.absences: Absences | None = None
        self.moving: Moving | None = None
        self._finished_moves = FinishedMoves(
            self.node_of, self._forget_all, self.deliver, self.replicated
        )
        self._moved = 0  # requests made by finished moves
        self._handover = Handover(scheduler, follows_within, self._forget_all, self.deliver)
        self.by_line: dict[bytes, Node | ReplicaSet] = {}
        self._has_meta_lines = False
        self.known_nodes = KnownNodes(self._usual_node)
        self.hot = Promotions(
            self.replicated,
            access.deadline,
            self._forget,
            find=self.node_of,
            valid=self._nodes_unchanged,
        )
        if topology is None:
            self._refusal = Refusal("the nodes are not known yet")
        else:
            self._router = topology.router()
            # A proxy that starts takes the nodes as they are.
            self.nodes = [
                self._node(node, topology, self._outages, missed=False)
                for node in _nodes_of(topology)
            ]
            self._set_gutter(topology)
            self._set_absences(topology)
            self._set_replicas(topology)
            self._set_move(topology)
        self._shortly: list[Callable[[], object]] = []
        self.merger = Merger()
        self.due: list[_Delivering] = []
        self.partly: list[_Delivering] = []
        self.reset()

    def _node(
        self, node: NodeAddress, topology: Topology, outages: Outages, *, missed: bool
    ) -> Node:
        returning = NodeRecovery(
            missed=missed,
            empties=topology.on_return == "flush",
            joined=_digest(topology) if missed else "",
        )
        return Node(node, self._scheduler, self._access, self.deliver, outages, returning)

    @property
    def every_node(self) -> list[Node]:
        """All nodes, including those of the gutter."""
        return self.nodes if self.gutter is None else [*self.nodes, *self.gutter.nodes]

    @property
    def node_requests(self) -> int:
        """The number of requests sent to nodes, including nodes that have left."""
        return self._requests_before + sum(node.requests for node in self.every_node)

    def reset(self) -> None:
        """Start counting from zero."""
        self.failures = self.failed_shards = self.multigets = 0
        self.replicated.reset()
        self.timing.reset()

    @property
    def makes_wait(self) -> bool:
        """Whether requests may wait for something other than the nodes."""
        return self._handover.active or self._finished_moves.active or self.moving is not None

    @property
    def refusal(self) -> bytes | None:
        """The reply to every request while the nodes are not known, else None."""
        return None if self._refusal is None else self._refusal.error

    @property
    def refusal_reason(self) -> str | None:
        """Why every request is refused, in a few words, else None."""
        return None if self._refusal is None else self._refusal.reason

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

        Nodes with the same name and address keep their connections. Others answer the requests that
        they have, and are then disconnected.
        """
        suspended = self._refusal is not None
        if suspended and self.topology is not None:
            _log.info("forwarding requests again")
        self._refusal = None
        before, self.topology = self.topology, topology
        if before is not None and replace(before, hot_keys=topology.hot_keys) == topology:
            if suspended or topology.hot_keys != before.hot_keys:
                self._set_hot_keys(topology)
            return
        self._router = topology.router()
        if before is not None:
            self._handover.begin(before, topology)
            self.replicated.nodes_changed()
        self._take_over(topology)

    def _take_over(self, topology: Topology) -> None:
        self.version = _version(self.version)
        old, before = self.nodes, self.every_node
        self.nodes = self._taken_over(old, _nodes_of(topology), topology, self._outages)
        for node in self.nodes:
            node.returning.empties = topology.on_return == "flush"
        self._set_gutter(topology)
        self._set_absences(topology)
        self._set_replicas(topology)
        self._set_move(topology)
        self._forget_all()
        now = self.every_node
        if self._started:
            for node in set(now).difference(before):
                node.start()
        former = set(before).difference(now)
        self._requests_before += sum(node.requests for node in former)
        self._retire_unused(former)
        added, gone = len(set(self.nodes).difference(old)), len(set(old).difference(self.nodes))
        _log.info("topology: %d nodes, %d added, %d removed", len(self.nodes), added, gone)

    def _retire_unused(self, nodes: Iterable[Node]) -> None:
        """Retire nodes when the changes in progress, which may still send them requests, are over.

        Nothing that meets its deadlines takes longer than three of them.
        """
        keys = set(self.replicated.busy)
        until = time.monotonic() + 3 * self._access.deadline

        def retire_if_unused() -> None:
            keys.intersection_update(self.replicated.busy)
            used = keys or self._finished_moves.active
            if used and time.monotonic() < until:
                self.call_shortly(retire_if_unused)
                return
            for node in nodes:
                node.retire()

        retire_if_unused()

    def _taken_over(
        self,
        nodes: Sequence[Node],
        wanted: Sequence[NodeAddress],
        topology: Topology,
        outages: Outages,
    ) -> list[Node]:
        """Return the wanted nodes: known ones as they are, and new ones.

        The history of a new node is unknown. It may have been used before, and have missed changes
        since.
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
            most = max(1, len(self.nodes) // 2)  # a gutter is not meant for more
            self.gutter = Gutter(nodes, index, topology.gutter.ttl, most)
        self._outages_of_gutter.watch(self.gutter.nodes if self.gutter is not None else ())
        self._outages.watch(self.nodes, self.gutter)

    def _set_absences(self, topology: Topology) -> None:
        """Keep notes about nodes that miss changes, if changes may be made without them."""
        if topology.gutter is None and topology.write == "all":
            if self.absences is not None:
                self.absences.watch(())  # nothing waits for notes any longer
            self.absences = None
        elif self.absences is None:
            self.absences = Absences(self._scheduler, self._access.deadline)
        absences = self.absences
        if absences is not None:
            absences.watch(self.every_node)
        for node in self.every_node:
            node.returning.absence = None if absences is None else absences.of(node)
        self.replicated.absences = absences
        self._outages.absences = self._outages_of_gutter.absences = absences

    def tick(self) -> None:
        """Do periodic work; to be called every second."""
        self.hot.tick()
        if self.absences is not None:
            self.absences.tick()

    def _set_replicas(self, topology: Topology) -> None:
        self.replicas = self._whole_gets = None
        if topology.replicas > 1:
            router = self._router
            self.replicas = sets = ReplicaSets(
                self.nodes,
                lambda key: router.replicas(key, topology.replicas),
                self.replicated,
                topology.write,
                spreads=topology.read == "any",
                find=self.node_of,
                valid=self._nodes_unchanged,
            )
            if topology.multi_gets == "whole":
                self._whole_gets = WholeGets(
                    self.nodes,
                    sets.of,
                    self.replicated,
                    strict=self.strict,
                    count_failed=self._count_failed_shards,
                    again=self._get_again,
                )
        self._set_hot_keys(topology)

    def _count_failed_shards(self, number: int) -> None:
        self.failed_shards += number

    def _nodes_unchanged(self, nodes: Sequence[Node]) -> bool:
        return nodes is self.nodes and self._refusal is None

    def _get_again(self, request: bytes, receiver: Receiver) -> None:
        """Send a get of several keys that has waited."""
        target = self.whole_gets
        if target is None:
            send_again(request, receiver, self.node_of)
        else:
            target.send(request, receiver)

    @property
    def whole_gets(self) -> "Target | None":
        """The target of gets of several keys that are sent as a whole; None if they are split."""
        return None if self._refusal is not None else self._whole_gets

    def _set_hot_keys(self, topology: Topology) -> None:
        if topology.hot_keys or self.hot.active:
            router, count = self._router, topology.replicas
            self.hot.update(
                topology.hot_keys,
                self.nodes,
                lambda key: router.replicas(key, count),
                topology.write,
                moving=topology.move is not None,
            )

    def _forget(self, key: bytes) -> None:
        """Forget the node of a key, so that it is looked up again."""
        self.routes += 1
        self.known_nodes.find = self._usual_node
        self.known_nodes.pop(key, None)
        if self._has_meta_lines:  # whose flags are not known here
            self.by_line.clear()
            self._has_meta_lines = False
        else:
            self.by_line.pop(b"get %b\r\n" % key, None)

    def _set_move(self, topology: Topology) -> None:
        moving = self.moving
        if moving is not None and moving.goes_on_as(topology):
            _log.info("keys are moving between nodes: phase %s", moving.phase.value)
            return
        if moving is not None:
            self._moved += moving.requests
            self.moving = None
            self._finished_moves.begin(moving)
            _log.info("keys are no longer moving between nodes")
        if topology.move is None:
            return
        found = {(node.name, node.address): node for node in self.nodes}
        self.moving = Moving(
            topology,
            [found[node.name, node.address] for node in topology.nodes],
            [found[node.name, node.address] for node in topology.move.nodes],
            self.replicated,
            lease=self._access.lease,
            scheduler=self._scheduler,
            delivered=self.deliver,
            forget=self._forget_all,
            current=lambda: self.moving,
            find=self.node_of,
        )
        _log.info("keys are moving between nodes: phase %s", self.moving.phase.value)

    @property
    def moving_requests(self) -> int:
        """The number of requests for keys that were moving at the time."""
        return self._moved + (0 if self.moving is None else self.moving.requests)

    def suspend(self, reason: str) -> None:
        """Refuse all requests until the topology is known again."""
        if self._refusal is None or self._refusal.reason != reason:
            _log.warning("not forwarding requests: %s", reason, extra=failure("forwarding_stopped"))
        self._refusal = Refusal(reason)
        self.hot.suspend()
        self._forget_all()

    def _forget_all(self) -> None:
        self.routes += 1
        self.known_nodes.find = self._usual_node
        self.known_nodes.clear()
        self.by_line.clear()

    @property
    def targets(self) -> "Sequence[Target]":
        """The targets of a request for all nodes."""
        if self._refusal is not None:
            return [self._refusal]
        # A single target: there may be other nodes when the request is carried out.
        if self._finished_moves.active:
            return [self._finished_moves.everyone(lambda: Broadcast(self.targets))]
        if self._handover.anything_waits:
            return [self._handover.target(None, lambda: Broadcast(self.targets))]
        return self._every_target

    @property
    def _every_target(self) -> "Sequence[Target]":
        if self.moving is not None:
            return [self.moving.flushing]
        if self.replicas is not None:
            return [self.replicas.flushing]
        if self.hot.active:
            return [self.hot.flushing]
        nodes = self.every_node
        return nodes if self.absences is None else self.absences.flushed(nodes)

    def node_of(self, key: bytes) -> "Target":
        """Return the node that has a key."""
        node = self.known_nodes.get(key)
        if node is None:
            if self._refusal is not None:
                return self._refusal
            if self.moving is not None or self._finished_moves.active:
                target = self._moving_target(key)
                if target is not None:
                    return target  # it is not remembered, so that gets do not bypass it
            if self._handover.active and self._is_handed_over(key):
                return self._handover.target(key, partial(self.node_of, key))
            node = self._found(key)
            if b"\0" in key or (self._finished_moves.active and self.replicated.resuming):
                return node  # see `node_of_word`; or later requests would overtake those that wait
            self.known_nodes.remember(key, node)
        return node

    def _usual_node(self, key: bytes) -> Node | ReplicaSet | None:
        """Return the node that has a key; None while requests may need another target."""
        if self._refusal is not None or self.moving is not None:
            return None
        if self._finished_moves.active or self._handover.active:
            return None
        if self.replicas is None and not self.hot.active:
            # The router alone decides, until something changes and keys are forgotten.
            self.known_nodes.find = self._router.finder(self.nodes)
        return self._found(key)

    def node_of_line(self, line: bytes, key: bytes) -> "Target":
        """Return the node that has the key of a get, and remember it by the whole line."""
        node = self.known_nodes.get(key)
        if node is None:
            odd = b"\0" in key or self._refusal is not None or self._handover.active
            if odd or self.moving is not None or self._finished_moves.active:
                return self.node_of_word(key)
            node = self._found(key)
        self.remember(line, node)
        return node

    def shares(self) -> list[float]:
        """Return each node's share of all hashes; empty if the topology is not known."""
        return [] if self.topology is None else self._router.shares()

    def _found(self, key: bytes) -> Node | ReplicaSet:
        """Return the node that has a key, without using the cache."""
        hot = self.hot.of(key)
        if hot is not None:
            return hot
        sets = self.replicas
        return self.nodes[self._router.index(key)] if sets is None else sets.of(key)

    def _is_handed_over(self, key: bytes) -> bool:
        assert self.topology is not None  # noqa: S101 - or requests would be refused
        nodes, count = self.topology.nodes, self.topology.replicas
        owners = tuple(nodes[index] for index in self._router.replicas(key, count))
        return self._handover.concerns(key, owners)

    def _moving_target(self, key: bytes) -> "Target | None":
        """Return the target of a key that moves, or did until now; None for a key that stays."""
        if self._finished_moves.active:
            target = self._finished_moves.target(key)
            if target is not None:
                return target
        return None if self.moving is None else self.moving.target(key)

    def node_of_word(self, key: bytes) -> "Target":
        """Return the node that has a key that is sent as a word of a line."""
        node = self.known_nodes.get(key)
        if node is not None:
            return node
        return NO_NUL if b"\0" in key else self.node_of(key)

    def remember_meta(self, line: bytes, node: "Target") -> None:
        """Note that a line is an ``mg`` that changes nothing, is not quiet, and has no opaque."""
        self._has_meta_lines = True
        self.remember(line, node)

    def remember(self, line: bytes, node: "Target") -> None:
        """Note that a line is a get of one key, and which node has the key."""
        if not isinstance(node, Node | ReplicaSet):
            return
        if len(self.by_line) >= MAX_REMEMBERED:
            self.by_line.clear()
        self.by_line[line] = node

    def call_shortly(self, function: Callable[[], object]) -> None:
        """Call a function in a millisecond; all functions share one timer."""
        if not self._shortly:
            self._scheduler.call_later(_SHORTLY, self._call_all)
        self._shortly.append(function)

    def _call_all(self) -> None:
        functions, self._shortly = self._shortly, []
        for function in functions:
            function()

    def progressed(self, executor: _Delivering) -> None:
        """In a millisecond, have an executor send those of its replies that have arrived."""
        if not self.partly:
            self.call_shortly(self._send_progress)
        self.partly.append(executor)

    def _send_progress(self) -> None:
        if NATIVE is not None:
            NATIVE.send_progress(self.partly)
            return
        partly = self.partly.copy()
        self.partly.clear()
        for executor in partly:
            executor.send_progress()

    def deliver(self) -> None:
        """Send the replies that are due."""
        if NATIVE is not None:
            NATIVE.deliver(self.due)
            return
        due = self.due
        while due:
            now = due.copy()
            due.clear()
            for executor in now:
                executor.deliver()


def _digest(topology: Topology) -> str:
    """Return a digest that identifies the nodes of a topology."""
    return sha256(repr(topology.nodes).encode()).hexdigest()[:32]


def _nodes_of(topology: Topology) -> list[NodeAddress]:
    """Return all nodes: those before a move, in order, and those that it adds."""
    following = () if topology.move is None else topology.move.nodes
    known = {(node.name, node.address) for node in topology.nodes}
    return [
        *topology.nodes,
        *(node for node in following if (node.name, node.address) not in known),
    ]


def _version(last: int) -> int:
    """Return a version above the last one.

    It approximates the time of the change in seconds since 1970: clients ignore lower versions, and
    a restarted proxy does not know its last version.
    """
    return max(last + 1, int(time.time()))
