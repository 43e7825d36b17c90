"""The lines by which a proxy knows nodes."""

import asyncio

from memlite.cluster.topology import parse_nodes
from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Access
from memlite.server.scheduler import Scheduler


async def cluster_of_two() -> Cluster:
    scheduler = Scheduler()
    scheduler.loop = asyncio.get_running_loop()
    return Cluster(parse_nodes("127.0.0.1:1,127.0.0.1:2"), scheduler, Access(60))


async def test_a_key_that_is_forgotten_is_in_no_line() -> None:
    cluster = await cluster_of_two()
    node = cluster.node_of_line(b"get k\r\n", b"k")
    cluster.node_of_line(b"get other\r\n", b"other")
    cluster._forget(b"k")
    assert list(cluster.by_line) == [b"get other\r\n"]
    cluster.remember_meta(b"mg k v f\r\n", node)
    cluster._forget(b"k")
    assert not cluster.by_line


async def test_a_get_of_an_unknown_key_is_remembered_once() -> None:
    cluster = await cluster_of_two()
    node = cluster.node_of_line(b"get k\r\n", b"k")
    assert cluster.by_line == {b"get k\r\n": node}
    assert not cluster.known_nodes
    assert cluster.node_of(b"k") is node
