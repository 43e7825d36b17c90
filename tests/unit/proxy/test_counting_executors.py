"""Counting executors: the results they count, and that they leave no garbage."""

import asyncio
import gc
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from memlite.memory import Part
from memlite.protocol import Limits, TextParser
from memlite.proxy.cluster import Cluster
from memlite.proxy.counting_executors import CountedTextExecutor
from memlite.proxy.node import Node, Receiver
from memlite.proxy.recognizer import Recognizer
from memlite.proxy.tally import by_result, new_counts
from tests.unit.proxy.clusters import cluster_of

ITEM = b"VALUE %b 0 1\r\nx\r\n"


class Client:
    def __init__(self) -> None:
        self.parser = TextParser(Limits(), keep_requests=True)
        self.out: list[Part] = []

    def reply(self, reply: bytes) -> None:
        self.out.append(reply)

    def replies_ready(self) -> None:
        """Do nothing."""

    close = replies_ready


class Parts:
    """An executor in front of nodes whose replies the test provides."""

    def __init__(self, nodes: int = 2) -> None:
        self.cluster: Cluster = cluster_of(nodes, asyncio.get_running_loop())
        self.counts = new_counts()
        self.client = Client()
        recognizer = Recognizer(self.cluster, Limits())
        self.executor = CountedTextExecutor(
            self.counts, self.cluster, cast("Any", None), cast("Any", self.client),
            self.client.out, recognizer,
        )  # fmt: skip

    def ask(self, data: bytes) -> None:
        taken = self.executor.take(data)
        if taken < len(data):
            self.client.parser.receive(data[taken:], self.executor)

    def reply(self, node: Node, replies: Sequence[bytes], *, bare: bool = False) -> None:
        """Make a node reply, as if the waiting requests had been sent."""
        node._last_sent = node.requests
        node._queue.clear()
        node._in_batches = 0
        node.replies_received(list(replies), bare=bare)

    def node_of(self, key: bytes) -> Node:
        return cast("Node", self.cluster.node_of(key))

    def counted(self) -> dict[tuple[str, str], int]:
        return {key: count for key, count in by_result(self.counts).items() if count}


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def keys_of_both(parts: Parts) -> tuple[list[bytes], list[bytes]]:
    """Return keys of the first node, and keys of the second."""
    keys = [b"key%d" % number for number in range(40)]
    first, second = parts.cluster.nodes
    return tuple(  # type: ignore[return-value]
        [key for key in keys if parts.node_of(key) is node] for node in (first, second)
    )


async def test_requests_that_come_alone() -> None:
    parts = Parts(1)
    (node,) = parts.cluster.nodes
    for request, reply in (
        (b"get a\r\n", ITEM % b"a" + b"END\r\n"),
        (b"get a\r\n", b"END\r\n"),
        (b"set a 0 0 1\r\nx\r\n", b"STORED\r\n"),
        (b"delete a\r\n", b"NOT_FOUND\r\n"),
        (b"incr a 1\r\n", b"12\r\n"),
        (b"mg a v\r\n", b"EN\r\n"),
        (b"cas a 0 0 1 5\r\nx\r\n", b"EXISTS\r\n"),
        (b"set a 0 0 1 noreply\r\nx\r\n", b"STORED\r\n"),
        (b"flush_all\r\n", b"OK\r\n"),
    ):
        parts.ask(request)
        parts.reply(node, [reply])
    assert parts.counted() == {
        ("get", "hit"): 1, ("get", "miss"): 2, ("store", "stored"): 1, ("delete", "miss"): 1,
        ("arithmetic", "hit"): 1, ("store", "exists"): 1, ("store", "noreply"): 1,
        ("other", "done"): 1,
    }  # fmt: skip


async def test_a_request_that_others_follow() -> None:
    parts = Parts(1)
    (node,) = parts.cluster.nodes
    parts.ask(b"delete a\r\n")
    parts.ask(b"get b\r\n")
    parts.ask(b"touch c 1\r\n")
    parts.reply(node, [b"DELETED\r\n", b"END\r\n", b"TOUCHED\r\n"])
    assert parts.counted() == {("delete", "hit"): 1, ("get", "miss"): 1, ("touch", "hit"): 1}


async def test_gets_that_arrive_together() -> None:
    parts = Parts()
    first, second = keys_of_both(parts)
    parts.ask(b"".join(b"get %b\r\n" % key for key in (*first, *second)))
    one, other = parts.cluster.nodes
    parts.reply(one, [ITEM % key for key in first], bare=True)
    parts.reply(other, [b"END\r\n"] * len(second))
    assert parts.counted() == {("get", "hit"): len(first), ("get", "miss"): len(second)}


async def test_parts_answered_before_the_client_left_are_counted_by_their_results() -> None:
    parts = Parts()
    first, second = keys_of_both(parts)
    one, other = parts.cluster.nodes
    parts.ask(b"".join(b"get %b\r\n" % key for key in (*first, *second)))
    parts.ask(b"get %b\r\n" % b" ".join((*first, *second)))
    parts.reply(one, [ITEM % key for key in first], bare=True)
    parts.reply(one, [b"".join(ITEM % key for key in first) + b"END\r\n"])
    parts.executor.detach()
    parts.reply(other, [ITEM % key for key in second], bare=True)
    parts.reply(other, [b"".join(ITEM % key for key in second) + b"END\r\n"])
    assert parts.counted() == {("get", "hit"): 2 * (len(first) + len(second))}


async def test_changes_that_arrive_together() -> None:
    parts = Parts()
    first, second = keys_of_both(parts)
    one, other = parts.cluster.nodes
    parts.ask(
        b"set %b 0 0 1\r\nx\r\ndelete %b\r\nincr %b 1\r\nget %b\r\n"
        % (first[0], second[0], first[1], second[1])
    )
    parts.reply(other, [b"NOT_FOUND\r\n", b"END\r\n"])
    parts.reply(one, [b"STORED\r\n", b"NOT_FOUND\r\n"])
    assert parts.counted() == {
        ("store", "stored"): 1, ("delete", "miss"): 1, ("arithmetic", "miss"): 1,
        ("get", "miss"): 1,
    }  # fmt: skip


async def test_a_get_of_several_keys_counts_for_each() -> None:
    parts = Parts()
    first, second = keys_of_both(parts)
    one, other = parts.cluster.nodes
    parts.ask(b"get %b\r\n" % b" ".join((*first, *second)))
    parts.reply(one, [ITEM % first[0] + ITEM % first[1] + b"END\r\n"])
    parts.reply(other, [b"END\r\n"])
    parts.ask(b"get %b\r\n" % b" ".join(first[:5]))  # of one node
    parts.reply(one, [ITEM % first[3] + b"END\r\n"])
    asked = len(first) + len(second) + 5
    assert parts.counted() == {("get", "hit"): 3, ("get", "miss"): asked - 3}


async def test_requests_to_a_node_that_is_down() -> None:
    parts = Parts(1)
    (node,) = parts.cluster.nodes
    parts.ask(b"get a\r\n")
    node.link_lost("gone", down=True)
    parts.ask(b"get a\r\n")  # fails at once
    parts.ask(b"get a b\r\n")
    assert parts.counted() == {("get", "error"): 4}
    assert all(reply.startswith(b"SERVER_ERROR") for reply in map(bytes, parts.client.out))


async def test_nothing_is_kept() -> None:
    parts = Parts()
    first, second = keys_of_both(parts)
    one, other = parts.cluster.nodes
    gc.collect()
    parts.ask(b"get %b\r\n" % b" ".join((first[0], second[0])))
    parts.reply(one, [b"END\r\n"])
    parts.reply(other, [b"END\r\n"])
    parts.ask(b"get %b\r\nget %b\r\n" % (first[0], second[0]))
    parts.reply(one, [b"END\r\n"])
    parts.reply(other, [b"END\r\n"])
    receivers: list[Receiver] = [*one._pending, *other._pending]
    assert receivers == []
    assert gc.collect() == 0
