"""A node of a proxy, without a connection."""

import asyncio
from typing import Any, cast

from memlite.cluster.topology import parse_nodes
from memlite.proxy.link import Link
from memlite.proxy.node import Access, Node
from memlite.proxy.outages import Outages
from memlite.proxy.returning import Returning
from memlite.server.scheduler import Scheduler


class Outcome:
    reads = True

    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def answer(self, reply: bytes) -> None:
        self.replies.append(reply)

    fail = answer


class Silent:
    """A transport on which nothing is sent."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_extra_info(self, _name: str) -> object:
        return None

    def abort(self) -> None:
        """As a transport."""


def served() -> tuple[Node, Silent]:
    scheduler = Scheduler()
    scheduler.loop = asyncio.get_running_loop()
    (address,) = parse_nodes("127.0.0.1:1").nodes
    returning = Returning(missed=False, empties=True)
    node = Node(address, scheduler, Access(60), lambda: None, Outages(), returning)
    link, transport = Link(node), Silent()
    link.connection_made(cast("Any", transport))
    node._serve(link)
    return node, transport


async def test_a_reply_to_a_request_that_was_not_sent_yet_is_an_error() -> None:
    node, _ = served()
    outcome = Outcome()
    node.send(b"get k\r\n", outcome)
    node.replies_received([b"VALUE other 0 1\r\nx\r\nEND\r\n"])
    assert outcome.replies == [b"SERVER_ERROR node 127.0.0.1:1: more replies than requests\r\n"]


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


async def test_a_node_that_has_left_says_so() -> None:
    node, _ = served()
    node.retire()
    late = Outcome()
    node.send(b"get k\r\n", late)
    assert late.replies == [b"SERVER_ERROR node 127.0.0.1:1: has left the cluster\r\n"]
