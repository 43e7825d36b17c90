"""The queue in front of the nodes, with nodes that answer when the test says so."""

import asyncio
from typing import cast

import pytest

from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Receiver
from memlite.proxy.queue import RequestQueue, Ticket
from memlite.server.scheduler import Scheduler


class HeldNode:
    """A node that keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.taken: list[tuple[bytes, Receiver]] = []
        self.down = False

    def send(self, request: bytes, receiver: Receiver) -> None:
        if self.down:
            receiver.fail(b"SERVER_ERROR down\r\n")
        else:
            self.taken.append((request, receiver))

    def answer(self) -> bytes:
        request, receiver = self.taken.pop(0)
        receiver.answer(b"OK\r\n")
        return request


class Outcome:
    """Takes the reply to a part of a request."""

    def __init__(self, *, reads: bool = False) -> None:
        self.reads = reads
        self.replies: list[bytes] = []

    def answer(self, reply: bytes) -> None:
        self.replies.append(reply)

    fail = answer


class Nodes:
    """The part of a cluster that the queue uses."""

    def __init__(self) -> None:
        self.routes = 0
        self.delivered = asyncio.Event()

    def deliver(self) -> None:
        self.delivered.set()


class Client:
    gone = False
    number = 1
    replied = 0


class Setup:
    """A queue with two workers, and one node."""

    def __init__(self, in_flight: int | None = 2, deadline: float = 60) -> None:
        scheduler = Scheduler()
        scheduler.loop = asyncio.get_running_loop()
        self.nodes, self.node, self.client = Nodes(), HeldNode(), Client()
        self.queue = RequestQueue(
            cast("Cluster", self.nodes), scheduler, in_flight=in_flight, deadline=deadline
        )

    def submit(self, name: bytes, parts: int = 1, *, reads: bool = False) -> list[Outcome]:
        outcomes = [Outcome(reads=reads) for _ in range(parts)]
        sends = [(self.node, name, outcome) for outcome in outcomes]
        ticket = Ticket(self.queue, self.client, sends, None, reads=reads)
        self.queue.submit(ticket, awaited=True)
        return outcomes

    @property
    def sent(self) -> list[bytes]:
        return [request for request, _ in self.node.taken]


async def test_requests_beyond_the_workers_wait_in_order_of_arrival() -> None:
    setup = Setup()
    for name in (b"a", b"b", b"c", b"d"):
        setup.submit(name)
    assert setup.sent == [b"a", b"b"]
    assert (setup.queue.length, setup.queue.busy) == (2, 2)
    assert setup.node.answer() == b"a"
    assert setup.sent == [b"b", b"c"]
    while setup.node.taken:
        setup.node.answer()
    assert (setup.queue.length, setup.queue.busy, setup.queue.longest) == (0, 0, 2)
    assert setup.queue.lengths == 1  # d found c waiting
    assert setup.queue.service.count == setup.queue.queueing.count == 4


async def test_a_request_with_several_parts_occupies_one_worker_until_all_are_answered() -> None:
    setup = Setup(in_flight=1)
    setup.submit(b"many", parts=3)
    setup.submit(b"next")
    assert setup.sent == [b"many"] * 3
    setup.node.answer()
    setup.node.answer()
    assert setup.sent == [b"many"]
    setup.node.answer()
    assert setup.sent == [b"next"]


async def test_requests_that_fail_at_once_do_not_nest() -> None:
    setup = Setup(in_flight=1)
    setup.submit(b"first")
    outcomes = [setup.submit(b"x")[0] for _ in range(5000)]
    setup.node.down = True
    setup.node.answer()
    assert all(outcome.replies == [b"SERVER_ERROR down\r\n"] for outcome in outcomes)
    assert setup.queue.busy == 0


async def test_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlite.proxy.queue._MAX_WAITING", 3)
    setup = Setup(in_flight=1)
    outcomes = [setup.submit(b"x")[0] for _ in range(5)]
    assert outcomes[-1].replies == [
        b"SERVER_ERROR not sent: too many requests are waiting for a worker\r\n"
    ]
    assert outcomes[-2].replies == []
    assert setup.queue.refused == 1


async def test_a_queue_with_too_many_bytes_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlite.proxy.queue._MAX_WAITING_BYTES", 100)
    setup = Setup(in_flight=1)
    large = [setup.submit(b"x" * 100)[0] for _ in range(3)]
    assert [bool(outcome.replies) for outcome in large] == [False, False, True]
    setup.node.answer()
    assert setup.submit(b"x")[0].replies == []  # there is room again


async def test_a_client_that_waits_too_long_is_told_that_nothing_was_sent() -> None:
    setup = Setup(in_flight=1, deadline=0.01)
    setup.submit(b"first")
    (outcome,) = setup.submit(b"second")
    async with asyncio.timeout(60):
        await setup.nodes.delivered.wait()
    assert outcome.replies == [b"SERVER_ERROR not sent: no worker in 0.01 s (--in-flight 1)\r\n"]
    assert setup.sent == [b"first"]
    assert setup.queue.expired == 1


async def test_changes_of_a_disconnected_client_are_sent_and_its_reads_are_not() -> None:
    setup = Setup(in_flight=1)
    setup.submit(b"first")
    setup.submit(b"get", reads=True)
    setup.submit(b"set")
    setup.client.gone = True
    setup.node.answer()
    assert setup.sent == [b"set"]
    assert setup.queue.dropped == 1


async def test_without_a_limit_nothing_waits() -> None:
    setup = Setup(in_flight=None)
    for _ in range(100):
        setup.submit(b"x")
    assert len(setup.sent) == 100
    assert (setup.queue.length, setup.queue.busy) == (0, 0)
