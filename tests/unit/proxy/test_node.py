"""A node of a proxy, without a connection."""

import asyncio
from collections.abc import Callable
from operator import itemgetter
from typing import Any, cast

from memlite.cluster.topology import parse_nodes
from memlite.proxy.link import Link
from memlite.proxy.node import Access, Node
from memlite.proxy.node_recovery import NodeRecovery
from memlite.proxy.outages import Outages
from memlite.server.scheduler import Scheduler


class Outcome:
    reads = True

    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def answer(self, reply: bytes) -> None:
        self.replies.append(reply)

    fail = answer


class Silent:
    """A transport that sends nothing."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_extra_info(self, _name: str) -> object:
        return None

    def abort(self) -> None:
        """Do nothing."""


def served(access: Access | None = None) -> tuple[Node, Silent]:
    scheduler = Scheduler()
    scheduler.loop = asyncio.get_running_loop()
    (address,) = parse_nodes("127.0.0.1:1").nodes
    returning = NodeRecovery(missed=False, empties=True)
    access = access or Access(60)
    node = Node(address, scheduler, access, lambda: None, Outages(), returning)
    link, transport = Link(node), Silent()
    link.connection_made(cast("Any", transport))
    node._serve(link)
    return node, transport


async def test_a_reply_to_a_request_that_was_not_sent_yet_is_an_error() -> None:
    node, _ = served()
    outcome = Outcome()
    node.send(b"get k\r\n", outcome)
    node.replies_received([b"VALUE other 0 1\r\nx\r\nEND\r\n"])
    assert outcome.replies == [
        b"SERVER_ERROR node 127.0.0.1:1: unexpected reply 'VALUE other 0 1'\r\n"
    ]


async def test_one_write_at_a_time_is_timed() -> None:
    node, transport = served()
    outcomes = [Outcome() for _ in range(5)]
    for outcome in outcomes[:3]:
        node.send(b"get k\r\n", outcome)
    await asyncio.sleep(0)
    for outcome in outcomes[3:]:
        node.send(b"get k\r\n", outcome)
    await asyncio.sleep(0)
    assert transport.written == [b"get k\r\n" * 3, b"get k\r\n" * 2]
    node.replies_received([b"END\r\n"] * 2)
    assert node.service.count == 0  # the third request of the first write has no reply
    node.replies_received([b"END\r\n"] * 3)
    assert node.service.count == 1
    assert all(outcome.replies == [b"END\r\n"] for outcome in outcomes)
    node.link_lost("over", down=True)


async def test_simultaneous_writes_to_several_nodes_are_all_timed() -> None:
    access = Access(60)
    nodes = [served(access)[0] for _ in range(3)]
    access.timing.due = float("inf")  # as if a write to another node had always just been timed
    for node in nodes:
        node.send(b"get k\r\n", Outcome())
    await asyncio.sleep(0)
    for node in nodes:
        node.replies_received([b"END\r\n"])
        assert node.service.count == 1
        node.link_lost("over", down=True)


async def test_a_node_that_has_left_says_so() -> None:
    node, _ = served()
    node.retire()
    late = Outcome()
    node.send(b"get k\r\n", late)
    assert late.replies == [b"SERVER_ERROR node 127.0.0.1:1: has left the cluster\r\n"]


async def test_waiting_requests_are_limited_once_the_node_takes_no_more() -> None:
    node, transport = served()
    first, second, refused = Outcome(), Outcome(), Outcome()
    cast("Any", node._link).pause_writing()
    node.send(b"get 1\r\n", first)
    await asyncio.sleep(0)
    assert transport.written == []
    node.send(b"x" * (64 * 1024 * 1024), second)
    node.send(b"get 2\r\n", refused)
    assert (node.pending, node.refused) == (2, 1)
    assert b"too many requests" in refused.replies[0]
    cast("Any", node._link).resume_writing()
    node.send(b"get 3\r\n", refused)
    await asyncio.sleep(0)
    assert [len(data) for data in transport.written] == [7 + 64 * 1024 * 1024, 7]
    assert node.pending == 3
    node.link_lost("over", down=True)


async def test_many_requests_without_a_reply_are_limited() -> None:
    node, _ = served()
    outcome = Outcome()
    while not node.refused:
        for _ in range(1000):
            node.send(b"get k\r\n", outcome)
        await asyncio.sleep(0)
    assert node.pending == 16_384
    node.link_lost("over", down=True)


class Timers:
    """An event loop whose time is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, function: Callable[[], None]) -> None:
        self.calls.append((self.now, function))

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        self.calls.append((self.now + seconds, function))
        return cast("asyncio.TimerHandle", self)

    def cancel(self) -> None:
        self.calls.clear()

    def pass_until(self, now: float) -> None:
        self.calls.sort(key=itemgetter(0))
        while self.calls and self.calls[0][0] <= now:
            at, function = self.calls.pop(0)
            self.now = max(self.now, at)
            function()
            self.calls.sort(key=itemgetter(0))
        self.now = now


async def test_a_deadline_passes_for_each_request() -> None:
    node, _ = served()
    timers = Timers()
    node._scheduler.loop = cast("Any", timers)
    early, late = Outcome(), Outcome()
    node.send(b"get 1\r\n", early)
    timers.pass_until(50)
    node.send(b"get 2\r\n", late)
    timers.pass_until(59)
    assert node.timeouts == 0
    node.replies_received([b"END\r\n"])
    timers.pass_until(109)
    assert node.timeouts == 0
    assert early.replies == [b"END\r\n"]
    timers.pass_until(118)
    assert node.timeouts == 1
    assert late.replies == [b"SERVER_ERROR node 127.0.0.1:1: no reply in 60 s\r\n"]


async def test_no_timer_is_left_when_all_is_answered() -> None:
    node, _ = served()
    timers = Timers()
    node._scheduler.loop = cast("Any", timers)
    node.send(b"get 1\r\n", Outcome())
    timers.pass_until(1)
    node.replies_received([b"END\r\n"])
    timers.pass_until(7)
    assert timers.calls == []
    node.send(b"get 2\r\n", Outcome())
    timers.pass_until(8)
    assert len(timers.calls) == 1


async def test_time_in_which_the_process_was_stopped_counts_against_no_node() -> None:
    node, _ = served()
    timers = Timers()
    node._scheduler.loop = cast("Any", timers)
    before, after = Outcome(), Outcome()
    node.send(b"get 1\r\n", before)
    timers.pass_until(50)
    timers.now = 1000
    node.send(b"get 2\r\n", after)  # read before the deadlines are checked
    timers.pass_until(1000)
    assert node.timeouts == 0
    node.replies_received([b"END\r\n"])
    timers.pass_until(1059)
    assert node.timeouts == 0
    timers.pass_until(1066)
    assert node.timeouts == 1
    assert before.replies == [b"END\r\n"]
    assert after.replies == [b"SERVER_ERROR node 127.0.0.1:1: no reply in 60 s\r\n"]


async def test_a_deadline_passes_although_the_process_was_stopped() -> None:
    node, _ = served()
    timers = Timers()
    node._scheduler.loop = cast("Any", timers)
    outcome = Outcome()
    node.send(b"get 1\r\n", outcome)
    timers.pass_until(50)
    timers.now = 1000
    timers.pass_until(1005)
    assert node.timeouts == 0
    timers.pass_until(1020)
    assert node.timeouts == 1
    assert outcome.replies == [b"SERVER_ERROR node 127.0.0.1:1: no reply in 60 s\r\n"]


async def test_replies_of_any_length_and_kind() -> None:
    node, _ = served()
    values = [b"x", b"END\r\n", b"\r\nEND\r\n" * 3, b"z" * 40_000, b""]
    replies = [b"VALUE k 0 %d\r\n%b\r\nEND\r\n" % (len(one), one) for one in values]
    replies += [b"END\r\n", b"VALUE k 0 1 7\r\nx\r\nEND\r\n", b"VA 1\r\nx\r\n", b"STORED\r\n"]
    replies += [b"STORED\r\n", b"EN\r\n", b"END\r\n", b"SERVER_ERROR VALUE\r\n"]
    asked = {b"VA ": b"mg k v\r\n", b"EN\r": b"mg k v\r\n", b"STO": b"set k 0 0 1\r\nx\r\n"}
    requests = [asked.get(reply[:3], b"get k\r\n") for reply in replies]
    data = b"".join(replies)
    for size in (1, 7, 1000, len(data)):
        outcomes = [Outcome() for _ in replies]
        for request, outcome in zip(requests, outcomes, strict=True):
            node.send(request, outcome)
        await asyncio.sleep(0)
        for at in range(0, len(data), size):
            cast("Any", node._link).data_received(data[at : at + size])
        assert [outcome.replies for outcome in outcomes] == [[reply] for reply in replies]
    node.link_lost("over", down=True)
