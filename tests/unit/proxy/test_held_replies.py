"""Replies that wait for an earlier one of the same client."""

import asyncio
import gc
from typing import Any, cast

import pytest

from memlite.config import Config
from memlite.core.build import running_build
from memlite.memory import Part
from memlite.proxy.batch import Batch
from memlite.proxy.cluster import Cluster
from memlite.proxy.connection import ProxyConnection
from memlite.proxy.held_replies import HeldReplies
from memlite.proxy.merge import Merger
from memlite.proxy.node import Access
from memlite.proxy.ordering import ForwardingClient, OrderedReplies
from memlite.proxy.parts import JoinedBatch, JoinedMultiGet
from memlite.proxy.parts import Part as PartInC
from memlite.proxy.proxy import Proxy
from memlite.proxy.requests import Flush, MultiGet, Read, Request
from memlite.proxy.timing import Timing
from memlite.proxy.unread_replies import UnreadReplies
from memlite.server.execution.dialects import BINARY
from memlite.server.scheduler import Scheduler

VALUE = b"VALUE k 0 9\r\n123456789\r\nEND\r\n"


class Slow:
    """A node that has answered some of its requests."""

    requests = answered = 0


class Client:
    """A connection."""

    waiting = 0
    unread = 0
    counted = 0

    @property
    def held(self) -> int:
        return self.waiting + self.unread

    def count_unread(self) -> None:
        self.counted += 1


class Nodes:
    """A cluster's information about its nodes."""

    def __init__(self) -> None:
        self.every_node = [Slow(), Slow()]
        self.makes_wait = False


def test_clients_are_checked_while_a_node_is_slow_and_once_more() -> None:
    nodes, client, forgotten = Nodes(), Client(), list[object]()

    class Unread:
        forget = forgotten.append

    held = HeldReplies(cast("Any", nodes), cast("Any", Unread()), [client], Scheduler())
    client.waiting = 5
    slow = nodes.every_node[1]
    slow.requests = 3
    held.look()
    assert not client.counted  # it may be answered in time
    slow.requests = 4
    held.look()
    assert client.counted == 1
    slow.answered = 4
    client.unread = 7
    client.waiting = 0
    held.look()
    assert client.counted == 2  # its unread replies still count
    assert not forgotten
    held.look()
    assert client.counted == 2
    nodes.makes_wait, client.waiting = True, 1
    held.look()
    assert client.counted == 3
    nodes.makes_wait, client.waiting, client.unread = False, 0, 0
    held.look()
    assert forgotten == [client]


def executor_of(client: object | None = None) -> OrderedReplies:
    out: list[Part] = []
    parts = {"due": [], "partly": [], "merger": Merger(), "timing": Timing(), "strict": False}
    parts["failed_shards"] = 0
    cluster = cast("Cluster", type("Nodes", (), parts)())
    return OrderedReplies(cluster, cast("ForwardingClient", client), out)


@pytest.mark.skipif(
    running_build() == "compiled", reason="a compiled proxy takes no stand-in for its nodes"
)
def test_bytes_held_for_each_kind_of_request_are_counted_and_forgotten_with_the_client() -> None:
    executor = executor_of(object())
    first, plain = Read(executor), Request(executor)
    batch = Batch(executor, ["a", "b"])
    of_a, _of_b = (batch.part(name, 1, reads=True) for name in "ab")
    several = MultiGet(executor, {"a": [b"k"], "b": [b"l"]}, ["a", "b"], strict=False)
    more = MultiGet(executor, {"a": [b"k"], "b": [b"l"]}, ["a", "b"], strict=False)
    every = Flush(executor, 2)
    executor._queue.extend([first, plain, batch, several, more, every])
    empty = executor.held
    batch.waits = True  # otherwise it would request a timer
    plain.answer(VALUE)
    of_a.answer(VALUE)
    several.take(0, VALUE, failed=False)
    more.take_items(0, [VALUE])
    every.take(0, b"OK\r\n", failed=False)
    assert executor.held - empty == 4 * len(VALUE) + len(b"OK\r\n") - len(b"END\r\n")
    executor.detach()
    assert executor.held <= empty + len(b"OK\r\n")
    of_b = Request(executor)
    executor._queue.append(of_b)
    of_b.answer(VALUE)
    executor.deliver()
    assert executor.held <= empty + len(b"OK\r\n")  # later replies are not kept either


@pytest.mark.skipif(PartInC is None, reason="not compiled")
@pytest.mark.skipif(
    running_build() == "compiled", reason="a compiled proxy takes no stand-in for its nodes"
)
def test_bytes_held_by_parts_in_c_are_counted_and_forgotten_too() -> None:
    executor = executor_of(object())
    batch = JoinedBatch(executor, b"\0\1\0")
    of_a, of_b = batch.part(2, reads=True), batch.part(1, reads=True)
    found = [("a", b"get k\r\n", 1), ("b", b"get l\r\n", 1)]
    several, odd = (JoinedMultiGet(executor, found, b"\0\1") for _ in range(2))
    executor._queue.extend([Read(executor), batch, several, odd])
    empty = executor.held
    batch.waits = True  # otherwise it would request a timer
    of_a.answer(VALUE)
    assert executor.held - empty == len(VALUE)
    assert batch.available() == VALUE
    assert executor.held == empty
    batch.waits = True
    of_a.answer(VALUE)
    several.part(0).answer(VALUE)
    odd.part(0).answer(b"SERVER_ERROR out of memory\r\n")
    item = VALUE.removesuffix(b"END\r\n")
    assert executor.held - empty >= len(VALUE) + len(item)
    executor.detach()
    assert executor.held <= empty + 2 * len(b"END\r\n")
    of_b.answer(VALUE)  # later replies are still accepted
    several.part(1).answer(b"END\r\n")
    odd.part(1).answer(b"END\r\n")
    assert (several.reply, odd.reply) == (b"END\r\n", b"END\r\n")


def test_a_connection_also_holds_waiting_replies() -> None:
    proxy = Proxy(Config(), None, [], access=Access(60))
    unread = UnreadReplies(100, 0)
    connection = ProxyConnection(proxy._services, unread)
    assert (connection.waiting, connection.held) == (0, 0)
    executor = cast("OrderedReplies", connection.executor)
    first, second = Read(executor), Read(executor)
    executor._queue.extend([first, second])
    second.answer(VALUE)
    assert (connection.waiting, connection.held) == (len(VALUE), len(VALUE))
    connection.executor = cast("Any", None)  # the connection is lost
    assert connection.held == 0


def test_the_executor_from_before_a_negotiation_is_not_kept() -> None:
    proxy = Proxy(Config(), None, [], access=Access(60))
    connection = ProxyConnection(proxy._services, UnreadReplies(100, 0))
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(one, OrderedReplies) for one in gc.get_objects())
        connection.speak(BINARY)
        after = sum(isinstance(one, OrderedReplies) for one in gc.get_objects())
    finally:
        gc.enable()
    assert after == before


def test_a_proxy_checks_held_replies_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        scheduler = Scheduler()
        scheduler.loop = asyncio.get_running_loop()
        nodes = cast("Any", Nodes())
        held = HeldReplies(nodes, UnreadReplies(1, 0), [], scheduler)
        looks = 0
        done = asyncio.Event()

        def look() -> None:
            nonlocal looks
            looks += 1
            if looks == 2:
                done.set()

        monkeypatch.setattr(held, "look", look)
        held.start()
        await done.wait()
        held.stop()

    asyncio.run(scenario())
