"""A proxy's statistics: nodes that are added up, and whether it can serve."""

import asyncio
from dataclasses import replace

import pytest

from memlite.cluster.topology import Gutter, Topology, parse_nodes
from memlite.config import Config
from memlite.core.clock import Clock
from memlite.proxy.cluster import Cluster
from memlite.proxy.link import Link
from memlite.proxy.node import Access, Node
from memlite.proxy.stats_collector import ProxyStatsCollector, unreachable
from memlite.proxy.tally import new_counts
from memlite.proxy.unread_replies import UnreadReplies
from memlite.proxy.watchers import ProxyWatchers
from memlite.server.connections.intake import Intake
from memlite.server.connections.register import Register
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import Counters
from memlite.telemetry.proxy import MAX_NODES, OTHERS, ProxySnapshot
from memlite.telemetry.sampling import Sampler


def addresses(count: int, first: int = 1) -> str:
    return ",".join(f"127.0.0.1:{number}" for number in range(first, first + count))


def cluster_with(topology: Topology | None) -> Cluster:
    scheduler = Scheduler()
    scheduler.loop = asyncio.get_running_loop()
    return Cluster(topology, scheduler, Access(60))


def snapshot_of(cluster: Cluster) -> ProxySnapshot:
    counters, clock, sampler = Counters(), Clock(), Sampler()
    instrumentation = Instrumentation(counters, sampler)
    register = Register(10, counters, clock, instrumentation, None)
    return ProxyStatsCollector(
        Config(),
        clock,
        cluster,
        counters=counters,
        counts=new_counts(),
        sampler=sampler,
        register=register,
        intake=Intake(),
        unread_replies=UnreadReplies(1, 1),
        queue=None,
        slow=None,
        event_loop=asyncio.get_running_loop,
        epoch=lambda: None,
        move_watch=None,
        certificates_read=None,
        watchers=ProxyWatchers(clock, register, None, 1024),
        draining=lambda: False,
    ).snapshot()


def comes_up(*nodes: Node) -> None:
    """Mark nodes as up, as if they had been connected."""
    for node in nodes:
        link = Link(node)
        link.connection_made(Transport())
        node._serve(link)


class Transport(asyncio.Transport):
    """A transport that is not connected."""

    def abort(self) -> None:
        """Do nothing."""


async def test_nodes_beyond_a_number_are_added_up() -> None:
    cluster = cluster_with(parse_nodes(addresses(MAX_NODES + 3)))
    comes_up(cluster.nodes[0], *cluster.nodes[-2:])
    for node in cluster.nodes:
        node._last_sent = 2
        node.service.record(1000)
    nodes = snapshot_of(cluster).proxy.nodes
    assert len(nodes) == MAX_NODES + 1
    assert [node.up for node in nodes[:2]] == [1, 0]
    others = nodes[-1]
    assert (others.name, others.count, others.up, others.requests) == (OTHERS, 3, 2, 6)
    assert others.service is None
    assert nodes[0].service is not None
    assert nodes[0].service.samples == 1
    assert sum(node.share for node in nodes) == pytest.approx(1)


async def test_no_nodes_are_known() -> None:
    cluster = cluster_with(None)
    assert unreachable(cluster) == ("the nodes are not known yet",)
    assert snapshot_of(cluster).proxy.nodes == ()
    cluster.suspend("the cluster's store cannot be read: 10.0.0.9 does not answer")
    assert unreachable(cluster) == ("the cluster's store cannot be read",)


async def test_every_node_is_needed() -> None:
    cluster = cluster_with(parse_nodes(addresses(2)))
    one, other = cluster.nodes
    assert unreachable(cluster) == ("2 of 2 nodes are not connected yet",)
    comes_up(one, other)
    assert unreachable(cluster) == ()
    one.link_lost("gone", down=True)
    assert unreachable(cluster) == ("1 of 2 nodes is down",)
    comes_up(one)
    assert unreachable(cluster) == ()


async def test_replicas_stand_in() -> None:
    cluster = cluster_with(parse_nodes(addresses(3), replicas=2))
    comes_up(*cluster.nodes[:2])
    assert unreachable(cluster) == ("1 of 3 nodes is not connected yet",)
    comes_up(cluster.nodes[2])
    cluster.nodes[0].link_lost("gone", down=True)
    assert unreachable(cluster) == ()
    cluster.nodes[1].link_lost("gone", down=True)
    assert unreachable(cluster) == ("2 of 3 nodes are down",)


async def test_the_gutter_stands_in() -> None:
    gutter = Gutter(parse_nodes(addresses(1, 100)).nodes)
    cluster = cluster_with(replace(parse_nodes(addresses(2)), gutter=gutter))
    assert cluster.gutter is not None
    comes_up(*cluster.nodes, *cluster.gutter.nodes)
    cluster.nodes[0].link_lost("gone", down=True)
    assert unreachable(cluster) == ()
    assert [node.role for node in snapshot_of(cluster).proxy.nodes] == ["node", "node", "gutter"]
    cluster.gutter.nodes[0].link_lost("gone", down=True)
    assert unreachable(cluster) == ("1 of 2 nodes is down",)


async def test_shares_follow_the_topology() -> None:
    cluster = cluster_with(parse_nodes(addresses(1)))
    assert [node.share for node in snapshot_of(cluster).proxy.nodes] == [1]
    cluster.change(parse_nodes(addresses(2)))
    shares = [node.share for node in snapshot_of(cluster).proxy.nodes]
    assert len(shares) == 2
    assert sum(shares) == pytest.approx(1)
    assert all(0.2 < share < 0.8 for share in shares)
