"""Flushes that are final, also at memcacheds, which may keep an item."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from memlite.protocol import replies
from memlite.proxy.changes import Changes
from memlite.proxy.emptying import finish_all, finish_flush, is_memcached
from memlite.proxy.replicas import FlushTwice
from tests.support.waiting import eventually


class Memcached:
    """A memcached whose current second ends when the test says so.

    ``flush_all`` keeps the item ``bumped``; after ``flush_all 1``, items stored in the rest of the
    second are not kept.
    """

    def __init__(self, version: bytes = b"VERSION 1.6.45\r\n") -> None:
        self.version = version
        self.items = {b"bumped", b"other"}
        self.asked: list[bytes] = []
        self.second_is_flushed = False
        self.refuses = b""

    def execute(self, request: bytes) -> bytes:
        words = request.split()
        self.asked.append(b" ".join(words[:2]) if words[0] == b"flush_all" else words[0])
        if self.refuses == words[0]:
            return b"SERVER_ERROR no\r\n"
        if words[0] == b"version":
            return self.version
        if words[0] == b"flush_all":
            self.second_is_flushed = len(words) > 1
            self.items &= set() if self.second_is_flushed else {b"bumped"}
            return b"OK\r\n"
        if words[0] == b"set":
            if not self.second_is_flushed:
                self.items.add(words[1])
            return b"STORED\r\n"
        if words[1] in self.items:
            return b"VALUE %b 0 0\r\n\r\nEND\r\n" % words[1]
        return b"END\r\n"

    def send(self, request: bytes, receiver: Any) -> None:
        reply = self.execute(request)
        (receiver.fail if reply.startswith(b"SERVER_ERROR") else receiver.answer)(reply)

    async def ask(self, request: bytes) -> bytes:
        await asyncio.sleep(0)
        return self.execute(request)


@pytest.mark.parametrize(
    ("version", "found"),
    [
        (b"VERSION 1.6.45\r\n", True), (b"VERSION 1.4.39\r\n", True), (b"VERSION 1\r\n", False),
        (b"VERSION 1.6.45-memlite-0.1.0\r\n", False), (b"ERROR\r\n", False),
    ],
)  # fmt: skip
def test_memcacheds_are_recognized_by_their_version(version: bytes, found: bool) -> None:
    assert is_memcached(version) is found


async def until(condition: Callable[[], bool]) -> None:
    assert await eventually(condition, every=0.001)


async def until_asked(node: Memcached, times: int) -> None:
    await until(lambda: node.asked.count(b"get") >= times)


async def test_a_flush_is_final_when_the_second_is_over() -> None:
    node = Memcached()
    done = asyncio.ensure_future(finish_flush(node.ask))
    await until_asked(node, 3)
    assert not done.done()
    assert not node.items
    node.second_is_flushed = False
    assert await done == replies.OK
    assert node.asked[:4] == [b"version", b"flush_all 1", b"set", b"get"]


async def test_a_memlite_is_not_flushed_again() -> None:
    node = Memcached(b"VERSION 1.6.45-memlite-0.1.0\r\n")
    assert await finish_flush(node.ask) == replies.OK
    assert node.asked == [b"version"]


async def test_a_node_that_refuses_says_so() -> None:
    node = Memcached()
    node.refuses = b"flush_all"
    assert await finish_flush(node.ask) == b"SERVER_ERROR no\r\n"


async def test_a_node_that_stores_nothing_is_waited_for_only_until_the_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memlite.proxy.emptying._SECONDS", 0.05)
    node, found = Memcached(), list[bytes]()
    node.refuses = b"set"
    assert await finish_flush(node.ask) == replies.OK
    finish_all([node], found.append)
    await until(lambda: bool(found))
    assert found == [replies.OK]


async def test_several_nodes_are_waited_for() -> None:
    nodes, found = [Memcached(), Memcached()], list[bytes]()
    finish_all(nodes, found.append)
    for node in nodes:
        assert found == []
        await until_asked(node, 3)
        node.second_is_flushed = False
    await until(lambda: bool(found))
    assert found == [replies.OK]
    assert not any({b"bumped", b"other"} & node.items for node in nodes)


@pytest.mark.parametrize("refused", [b"flush_all", b"get"])
async def test_the_error_of_a_failing_node_is_the_reply(refused: bytes) -> None:
    nodes, found = [Memcached(), Memcached(b"VERSION 1.4.0\r\n")], list[bytes]()
    nodes[0].refuses = refused
    finish_all(nodes, found.append)
    assert found == []
    nodes[1].second_is_flushed = False
    await until(lambda: bool(found))
    assert found == [b"SERVER_ERROR no\r\n"]


class Outcome:
    reads = False

    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def answer(self, reply: bytes) -> None:
        self.replies.append(reply)

    fail = answer


async def test_with_replicas_no_copy_keeps_an_item() -> None:
    nodes: list[Any] = [Memcached(), Memcached(b"VERSION 1.6.45-memlite-0.1.0\r\n"), Memcached()]
    changes, outcome = Changes(30), Outcome()
    FlushTwice(nodes, changes).send(b"flush_all\r\n", outcome)
    assert (outcome.replies, changes.idle) == ([], False)  # the second is not over
    assert b"flush_all 1" not in nodes[1].asked
    for node in (nodes[0], nodes[2]):
        assert not node.items
        node.second_is_flushed = False
    await until(lambda: bool(outcome.replies))
    assert (outcome.replies, changes.idle) == ([replies.OK], True)
