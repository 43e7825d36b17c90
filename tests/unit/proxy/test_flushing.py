"""Requests sent to nodes, and the time that nodes take, in C."""

import asyncio
import gc
import sys
import time
import weakref
from random import Random
from typing import Any, cast

import pytest

from memlite.proxy.cluster import Cluster
from memlite.proxy.framing import NATIVE
from memlite.proxy.native_link import NativeLink
from memlite.proxy.node import Node
from memlite.proxy.single_requests import Lone
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import Counters, LatencyHistogram
from tests.unit.proxy.clusters import cluster_of
from tests.unit.proxy.transcripts import Loop, NodeTransport

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the module in C is not compiled")


class Failing:
    """A link that cannot be written to."""

    def write(self, data: bytes) -> None:
        raise OSError(data.decode())


def connected(cluster: Cluster) -> list[NodeTransport]:
    """Connect the nodes; return their transports."""
    transports = []
    for node in cluster.nodes:
        link = NativeLink(node)
        transports.append(NodeTransport(Random(1)))
        link.connection_made(cast("Any", transports[-1]))
        node._serve(link)
    return transports


def ask(node: Node, line: bytes = b"get k\r\n") -> tuple[Any, list[bytes]]:
    """Send a get by way of C; return the receiver of its reply, and the list of replies."""
    lone, got = Lone(None), list[bytes]()
    lone.write, lone.counters = got.append, Counters()
    assert lone.take({line: node}, line, Node)
    return lone, got


async def test_all_nodes_are_sent_to_in_one_call() -> None:
    loop = Loop()
    cluster = cluster_of(3, cast("Any", loop))
    sent = connected(cluster)
    for node in cluster.nodes:
        ask(node)
        ask(node, b"get j\r\n")
    assert len(loop.soon) == 1
    loop.turn()
    assert [one.written for one in sent] == [b"get k\r\nget j\r\n"] * 3
    ask(cluster.nodes[1])  # in the next iteration
    loop.turn()
    assert sent[1].written == b"get k\r\nget j\r\nget k\r\n"
    assert not loop.soon


async def test_requests_made_during_the_call_are_sent_in_the_next() -> None:
    loop = Loop()
    cluster = cluster_of(2, cast("Any", loop))
    first, second = connected(cluster)

    class Asking:
        def write(self, data: bytes) -> None:
            ask(cluster.nodes[1], b"get j\r\n")

    cluster.nodes[0]._link.write = Asking().write
    ask(cluster.nodes[0])
    loop.turn()
    assert (first.written, second.written) == (b"", b"")
    loop.turn()
    assert second.written == b"get j\r\n"


async def test_a_failing_node_does_not_keep_requests_from_others() -> None:
    loop = Loop()
    cluster = cluster_of(4, cast("Any", loop))
    sent = connected(cluster)
    for node in cluster.nodes[1:3]:
        node._link.write = Failing().write
    for node in cluster.nodes:
        ask(node)
    with pytest.raises(OSError, match="get k"):
        loop.turn()
    assert len(loop.soon) == 2  # the third and the fourth
    with pytest.raises(OSError, match="get k"):
        loop.turn()
    loop.turn()
    assert [one.written for one in sent] == [b"get k\r\n", b"", b"", b"get k\r\n"]


async def test_a_scheduler_of_another_type_is_called_by_its_method() -> None:
    class Other(Scheduler):
        def call_together(self, function: Any) -> None:
            self.called = function

    loop = Loop()
    cluster = cluster_of(1, cast("Any", loop))
    (sent,) = connected(cluster)
    node = cluster.nodes[0]
    node._scheduler = other = Other()
    other.loop = cast("Any", loop)
    ask(node)
    assert not loop.soon
    other.called()
    assert sent.written == b"get k\r\n"


async def test_the_scheduler_is_freed_with_the_nodes() -> None:
    loop = Loop()
    cluster = cluster_of(1, cast("Any", loop))
    connected(cluster)
    ask(cluster.nodes[0])
    loop.turn()
    gone = weakref.ref(cluster.nodes[0]._scheduler)
    del cluster
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("exponent", [*range(0, 60, 3), 62])
async def test_times_are_recorded_as_python_does(exponent: int) -> None:
    loop = Loop()
    cluster = cluster_of(1, cast("Any", loop))
    connected(cluster)
    node = cluster.nodes[0]
    _, got = ask(node)
    loop.turn()
    node._timed, node._last_timed = time.monotonic_ns() - (1 << exponent), 1
    node._link.data_received(b"END\r\n")
    assert got == [b"END\r\n"]
    assert node._timed == 0
    expected = LatencyHistogram()
    expected.record(node.service.total)
    assert node.service.total >= 1 << exponent
    assert node.service.parts() == expected.parts()
    assert node.service.count == 1


async def test_bytes_are_counted_for_counters_of_every_type() -> None:
    class Others:
        bytes_written = 7

    loop = Loop()
    cluster = cluster_of(1, cast("Any", loop))
    connected(cluster)
    node = cluster.nodes[0]
    lone, _ = ask(node)
    lone.counters = others = Others()
    second, _ = ask(node)
    loop.turn()
    node._link.data_received(b"END\r\nEND\r\n")
    assert others.bytes_written == 12
    assert second.counters.bytes_written == 5


@pytest.mark.parametrize("edge", [0, 1 << 30, 1 << 60])
async def test_bytes_are_counted_by_numbers_of_every_length(edge: int) -> None:
    loop = Loop()
    cluster = cluster_of(1, cast("Any", loop))
    connected(cluster)
    node = cluster.nodes[0]
    for before in range(max(edge - 6, 0), edge + 2):
        lone, _ = ask(node)
        loop.turn()
        lone.counters.bytes_written = before
        node._link.data_received(b"END\r\n")
        assert lone.counters.bytes_written == before + 5


async def test_waiting_requests_are_sent_once_whatever_their_number() -> None:
    loop = Loop()
    cluster = cluster_of(1, cast("Any", loop))
    (sent,) = connected(cluster)
    node = cluster.nodes[0]
    expected = b""
    for count in (1, 16, 17, 100, 2, 16, 1):
        lines = [b"get %d.%d\r\n" % (count, number) for number in range(count)]
        before = [sys.getrefcount(line) for line in lines]
        receivers = [ask(node, line) for line in lines]
        expected += b"".join(lines)
        loop.turn()
        assert sent.written == expected
        assert node.requests == node._last_sent
        node._link.data_received(b"END\r\n" * count)
        if count > 1:  # a single request is written unchanged, and the transport keeps it
            assert [sys.getrefcount(line) for line in lines] == before
        assert all(got == [b"END\r\n"] for _, got in receivers)
