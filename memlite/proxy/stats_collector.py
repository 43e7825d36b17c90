"""Collects a proxy's statistics as typed values, and says whether it can serve."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, Literal

from memlite.cluster.topology import Node as TopologyNode
from memlite.cluster.topology import Topology
from memlite.config import Config
from memlite.core.build import running_build
from memlite.core.clock import Clock
from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Node
from memlite.proxy.tally import Counts, by_result
from memlite.proxy.unread_replies import UnreadReplies
from memlite.server.admin.stats_collector import loop_name
from memlite.server.connections.intake import Intake
from memlite.server.connections.register import Register
from memlite.telemetry.counters import Counters
from memlite.telemetry.proxy import (
    MAX_NODES,
    OTHERS,
    MoveStats,
    NodeStats,
    ProxySnapshot,
    ProxyStats,
    QueueStats,
)
from memlite.telemetry.sampling import Sampler
from memlite.telemetry.snapshot import (
    CounterValues,
    Durations,
    GeneralStats,
    TlsStats,
    UdpStats,
    WatchStats,
)

if TYPE_CHECKING:
    from memlite.proxy.move_watch import MoveWatch
    from memlite.proxy.queue import RequestQueue
    from memlite.server.admin.watchers import Watchers
    from memlite.telemetry.slow import SlowLog

__all__ = ["ProxyStatsCollector", "unreachable"]

_SUMMED: Final = (
    "up", "count", "requests", "failed", "refused", "timeouts", "connects", "emptied", "pending",
    "share",
)  # fmt: skip


class ProxyStatsCollector:
    """Collects statistics from the parts of a proxy that count and measure.

    Args:
        config: the settings.
        clock: tells the time.
        cluster: the nodes.
        counters: the counters of the connections.
        counts: commands by result.
        sampler: has the latencies of commands.
        register: the open connections.
        intake: counts the bytes read whose commands are yet to be carried out.
        unread_replies: the replies held for clients that do not read.
        queue: the queue that requests pass through (all of them, if it has a limit); None without
            one.
        slow: the slow log; None without one.
        event_loop: returns the loop the proxy runs on.
        epoch: returns the cluster's epoch; None if there is none.
        move_watch: knows the progress of a move of keys; None if it is not watched.
        certificates_read: returns the unix time at which certificates were last read; None without
            TLS.
        watchers: sends clients events.
        draining: returns whether the proxy is about to stop.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        cluster: Cluster,
        *,
        counters: Counters,
        counts: Counts,
        sampler: Sampler,
        register: Register,
        intake: Intake,
        unread_replies: UnreadReplies,
        queue: "RequestQueue | None",
        slow: "SlowLog | None",
        event_loop: Callable[[], object],
        epoch: Callable[[], int | None],
        move_watch: "MoveWatch | None",
        certificates_read: Callable[[], float] | None,
        watchers: "Watchers",
        draining: Callable[[], bool],
    ) -> None:
        self._config = config
        self._clock = clock
        self._cluster = cluster
        self._counters = counters
        self._counts = counts
        self._sampler = sampler
        self._register = register
        self._intake = intake
        self._unread_replies = unread_replies
        self._queue = queue
        self._slow = slow
        self._event_loop = event_loop
        self._epoch = epoch
        self._move_watch = move_watch
        self._certificates_read = certificates_read
        self._watchers = watchers
        self._draining = draining
        self._shares = _Shares()

    def troubles(self) -> tuple[str, ...]:
        """Return the reasons why the proxy should get no requests now; empty if it should."""
        return (*(("draining",) if self._draining() else ()), *unreachable(self._cluster))

    def snapshot(self) -> ProxySnapshot:
        """Return all statistics. Call it on the event loop."""
        sampler = self._sampler
        return ProxySnapshot(
            build=running_build(),
            general=self._general(),
            storage=None,
            udp=UdpStats(0, 0, 0),
            sample_interval=sampler.interval,
            commands={name: Durations.read(one) for name, one in sampler.histograms.items()},
            operations={},
            evicted=(),
            troubles=self.troubles(),
            slow_commands=None if self._slow is None else self._slow.count,
            proxy=self._proxy(),
        )

    def _general(self) -> GeneralStats:
        clock, config, register = self._clock, self._config, self._register
        now = clock.now()
        processor = os.times()
        return GeneralStats(
            time=now,
            uptime=now - clock.started,
            pid=os.getpid(),
            event_loop=loop_name(type(self._event_loop())),
            user_seconds=processor.user,
            system_seconds=processor.system,
            connections=len(register.connections),
            handshakes=len(register.handshakes),
            udp_sockets=0,
            connection_limit=config.conn_limit,
            idle_timeout=config.extended.idle_timeout,
            input_held=self._intake.held,
            counters=CounterValues.read(self._counters),
            items=0,
            bytes=0,
            bytes_limit=0,
            crawler_enabled=False,
            crawler_running=False,
            lru_maintainer=False,
            watch=WatchStats(
                len(self._watchers),
                self._watchers.written,
                self._watchers.sent,
                self._watchers.skipped,
            ),
            tls=None
            if self._certificates_read is None
            else TlsStats(now - self._certificates_read(), session_cache=False),
        )

    def _proxy(self) -> ProxyStats:
        cluster = self._cluster
        topology = cluster.topology
        return ProxyStats(
            commands=by_result(self._counts),
            nodes=self._nodes(),
            version=cluster.version,
            epoch=self._epoch(),
            hash="" if topology is None else topology.hash,
            replicas=1 if topology is None else topology.replicas,
            multigets=cluster.multigets,
            failed_requests=cluster.failures,
            failed_shards=cluster.failed_shards,
            replica_reads=cluster.replicated.replica_reads,
            gutter_requests=None if cluster.gutter is None else cluster.gutter.requests,
            hot_keys=cluster.hot.count,
            moving_requests=cluster.moving_requests,
            move=self._move(),
            queue=_queue_of(self._queue, cluster),
            unread_bytes=self._unread_replies.size,
            unread_disconnects=self._unread_replies.disconnected,
        )

    def _move(self) -> MoveStats | None:
        moving, watch = self._cluster.moving, self._move_watch
        if moving is None:
            return None
        note = None if watch is None else watch.note
        if note is None:
            return MoveStats(moving.phase.value, None, None)
        return MoveStats(moving.phase.value, note.items, note.total)

    def _nodes(self) -> tuple[NodeStats, ...]:
        cluster = self._cluster
        shares, following = self._shares.of(cluster)
        moving = cluster.moving is not None
        found = [
            _node(
                node,
                "node",
                shares.get((node.name, str(node.address)), 0.0),
                following.get((node.name, str(node.address)), 0.0) if moving else None,
                timed=index < MAX_NODES,
            )
            for index, node in enumerate(cluster.nodes)
        ]
        gutter = () if cluster.gutter is None else cluster.gutter.nodes
        others = [
            _node(node, "gutter", 0.0, None, timed=index < MAX_NODES)
            for index, node in enumerate(gutter)
        ]
        return (*_few(found), *_few(others))


_ByNode = Mapping[tuple[str, str], float]


class _Shares:
    """The nodes' shares of the hash space, computed once for each topology."""

    def __init__(self) -> None:
        self._of: Topology | None = None
        self._found: tuple[_ByNode, _ByNode] = ({}, {})

    def of(self, cluster: Cluster) -> tuple[_ByNode, _ByNode]:
        """Return the present shares, and the shares after a move, by node name and address."""
        topology = cluster.topology
        if topology is not None and topology is not self._of:
            self._of = topology
            present = _named(topology.nodes, cluster.shares())
            if topology.move is None:
                self._found = present, present
            else:
                after = topology.next_router().shares()
                self._found = present, _named(topology.move.nodes, after)
        return self._found


def _named(nodes: Iterable[TopologyNode], shares: Iterable[float]) -> _ByNode:
    return {
        (node.name, str(node.address)): share for node, share in zip(nodes, shares, strict=True)
    }


def _node(
    node: Node,
    role: Literal["node", "gutter"],
    share: float,
    following: float | None,
    *,
    timed: bool,
) -> NodeStats:
    return NodeStats(
        name=node.name,
        address=str(node.address),
        role=role,
        up=int(node.state == "up"),
        count=1,
        state=node.state,
        error=node.error,
        requests=node.requests,
        failed=node.failed,
        refused=node.refused,
        timeouts=node.timeouts,
        connects=node.connects,
        emptied=node.returning.flushes,
        pending=node.pending,
        share=share,
        next_share=following,
        service=Durations.read(node.service) if timed else None,
    )


def _few(nodes: Sequence[NodeStats]) -> list[NodeStats]:
    """Return the first nodes, and the sum of the others."""
    if len(nodes) <= MAX_NODES:
        return list(nodes)
    return [*nodes[:MAX_NODES], reduce(_added, nodes[MAX_NODES:])]


def _added(one: NodeStats, other: NodeStats) -> NodeStats:
    summed = {name: getattr(one, name) + getattr(other, name) for name in _SUMMED}
    following = None if one.next_share is None else one.next_share + (other.next_share or 0.0)
    return NodeStats(
        name=OTHERS,
        address="",
        role=one.role,
        state="",
        error="",
        next_share=following,
        service=None,
        **summed,
    )


def _queue_of(queue: "RequestQueue | None", cluster: Cluster) -> QueueStats:
    if queue is None or queue.in_flight is None:
        nodes, timing = cluster.every_node, cluster.timing
        waiting = sum(node.waiting for node in nodes)
        return QueueStats(
            in_flight_limit=None,
            in_flight=sum(node.pending for node in nodes) - waiting,
            length=waiting,
            arrivals=cluster.node_requests,
            refused=0,
            expired=0,
            dropped=0,
            waiting=Durations.read(timing.queueing),
            service=Durations.read(timing.service),
            thinking=Durations.read(timing.thinking),
        )
    return QueueStats(
        in_flight_limit=queue.in_flight,
        in_flight=queue.busy,
        length=queue.length,
        arrivals=queue.arrivals,
        refused=queue.refused,
        expired=queue.expired,
        dropped=queue.dropped,
        waiting=Durations.read(queue.queueing),
        service=Durations.read(queue.service),
        thinking=Durations.read(queue.thinking),
    )


def unreachable(cluster: Cluster) -> tuple[str, ...]:
    """Return brief reasons why requests for some keys would fail; empty if none would.

    Every node is needed, unless others stand in for it: one of the ``replicas`` nodes that have a
    key is enough to read it, and a gutter stands in for half of the nodes.
    """
    if cluster.refusal_reason is not None:
        return (cluster.refusal_reason.partition(":")[0],)  # what follows may name the store
    nodes = cluster.nodes
    away = [node for node in nodes if node.state != "up"]
    if not away:
        return ()
    down = sum(node.down for node in away)
    gutter, topology = cluster.gutter, cluster.topology
    replicas = 1 if topology is None else topology.replicas
    spared = replicas - 1
    if gutter is not None and all(node.state == "up" for node in gutter.nodes):
        spared = max(spared, gutter.most)
    if down == len(away) and down <= spared:
        return ()
    verb = "is" if len(away) == 1 else "are"
    state = "down" if down else "not connected yet"
    return (f"{len(away)} of {len(nodes)} nodes {verb} {state}",)
