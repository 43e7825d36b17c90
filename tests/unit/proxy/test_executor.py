"""The executor of a proxy's connection, without nodes."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.memory import Part
from memlite.protocol import Limits
from memlite.proxy.batch import Batch
from memlite.proxy.cluster import Cluster
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.node import Receiver
from memlite.proxy.recognizer import Recognizer
from tests.unit.proxy.clusters import cluster_of


class Node:
    """Keeps the receivers of its requests."""

    def __init__(self) -> None:
        self.receivers: list[Receiver] = []

    def send(self, _request: bytes, receiver: Receiver) -> None:
        self.receivers.append(receiver)


def cluster_with(node: Node, loop: asyncio.AbstractEventLoop | None = None) -> Cluster:
    """Return a cluster that knows two gets to be for one node."""
    cluster = cluster_of(1, loop)
    cluster.by_line = cast("Any", {b"get a\r\n": node, b"get b\r\n": node})
    return cluster


class Client:
    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def reply(self, reply: bytes) -> None:
        self.replies.append(reply)

    def replies_ready(self) -> None:
        """Do nothing."""

    close = replies_ready


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def new(cluster: Cluster, client: Client, out: list[Part]) -> ProxyExecutor:
    recognizer = Recognizer(cluster, Limits())
    return ProxyExecutor(cluster, cast("Any", None), cast("Any", client), out, recognizer)


def test_an_executor_is_freed_with_its_client() -> None:
    node, out = Node(), list[Part]()
    cluster = cluster_with(node)
    executor = new(cluster, Client(), out)
    assert executor.take(b"get a\r\n") == executor.take(b"get b\r\n") == 7
    for receiver, reply in zip(node.receivers, (b"1", b"2"), strict=True):
        receiver.answer(reply)
    cluster.due.pop().deliver()
    assert out == [b"1", b"2"]
    executor.detach()
    node.receivers.clear()
    del receiver, executor
    assert gc.collect() == 0


def test_replies_are_not_kept() -> None:
    node, out = Node(), list[Part]()
    cluster = cluster_with(node)
    executor = new(cluster, Client(), out)
    executor.take(b"get a\r\n")
    executor.take(b"get b\r\n")  # so that the first request gets its own object
    node.receivers.pop(0).answer(b"1")
    node.receivers.pop(0).answer(b"2")
    cluster.due.pop().deliver()
    out.clear()
    assert not any(b"1" in gc.get_referents(one) for one in gc.get_referents(executor))


def test_after_quit_nothing_is_taken() -> None:
    executor = new(cluster_with(Node()), Client(), [])
    assert executor.take(b"get a\r\n") == 7
    executor.quit()
    for data in (b"get a\r\n", b"get a\r\nget b\r\n", b"set a 0 0 1\r\nx\r\n", b"delete a\r\n"):
        assert executor.take(data) == 0


async def test_a_batch_is_freed_when_it_is_answered() -> None:
    cluster = cluster_with(Node(), asyncio.get_running_loop())
    nodes = [Node(), Node()]
    batch = Batch(new(cluster, Client(), []), nodes)
    for part in [batch.part(node, 1, reads=True) for node in nodes]:
        part.answer(b"END\r\n")
    assert batch.reply == b"END\r\nEND\r\n"
    cluster.due.clear()
    del batch, part
    assert gc.collect() == 0


FRAGMENTS = [
    b"get ", b"get a\r\n", b"set ", b"set a 0 0 1\r\n", b"mg a v\r\n", b"incr a 1\r\n", b"delete ",
    b"a", b"0", b"1", b"-1", b" ", b"\r", b"\n", b"\r\n", b"\0",
]  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=12).map(b"".join))
def test_only_whole_requests_are_taken(data: bytes) -> None:
    loop = asyncio.new_event_loop()
    cluster = cluster_of(2, loop)
    taken = new(cluster, Client(), []).take(data)
    sent = b"".join(request for node in cluster.nodes for request in node._queue)
    loop.close()
    assert data[:taken][-2:] in (b"", b"\r\n")
    if not cluster.multigets:  # they are not sent unchanged
        whole = [line for line in data[:taken].split(b"\r\n") if not _has_odd_key(line)]
        assert sorted(sent.split(b"\r\n")) == sorted(whole)


def _has_odd_key(line: bytes) -> bool:
    """Return whether a request is answered without a node because its key has a null byte."""
    return any(b"\0" in key for key in line.split(b" ")[1:])
