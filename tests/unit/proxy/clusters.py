"""Nodes that are not connected to anything."""

import asyncio

from memlite.cluster.topology import parse_nodes
from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Access
from memlite.server.scheduler import Scheduler

__all__ = ["cluster_of"]


def cluster_of(nodes: int, loop: asyncio.AbstractEventLoop | None = None) -> Cluster:
    """Return a cluster of nodes that send their requests from `loop`."""
    scheduler = Scheduler()
    if loop is not None:
        scheduler.loop = loop
    addresses = ",".join(f"127.0.0.1:{number + 1}" for number in range(nodes))
    return Cluster(parse_nodes(addresses), scheduler, Access(60))
