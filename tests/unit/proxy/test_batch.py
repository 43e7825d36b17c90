"""Batches of requests: the nodes' replies are joined in the order of the requests."""

import asyncio
import itertools

import pytest

from memlite.proxy.batch import Batch
from memlite.proxy.merge import Merger
from tests.unit.proxy.test_node import Outcome, served

END = b"END\r\n"
ERROR = b"SERVER_ERROR node a: down\r\n"


class Executor:
    """Counts the calls of its methods."""

    def __init__(self) -> None:
        self.failures = self.answers = self.steps = 0
        self.merger = Merger()

    def answered(self) -> None:
        self.answers += 1

    def count_failure(self) -> None:
        self.failures += 1

    def count_failed_shards(self, number: int) -> None:
        raise AssertionError

    def progressed(self) -> None:
        self.steps += 1


def hit(name: str) -> bytes:
    return b"VALUE %b 0 1\r\nx\r\n" % name.encode()


def test_replies_come_in_the_order_of_the_requests() -> None:
    executor = Executor()
    batch = Batch(executor, ["a", "b", "a", "b", "b"])
    of_a, of_b = batch.part("a", 2, reads=True), batch.part("b", 3, reads=True)
    of_b.take([hit("2"), b"", hit("5")], bare=True)
    assert (executor.answers, batch.available()) == (0, b"")
    of_a.take([hit("1"), hit("3")], bare=True)
    assert executor.answers == 1
    assert batch.reply == b"".join(
        [hit("1"), END, hit("2"), END, hit("3"), END, END, hit("5"), END]
    )


# Each reply to a get may come with or without its END.
@pytest.mark.parametrize("bare", [*itertools.product([False, True], repeat=4)])
def test_replies_with_and_without_their_end(bare: tuple[bool, ...]) -> None:
    batch = Batch(Executor(), ["a", "a", "b", "b"])
    parts = [batch.part("a", 2, reads=True), batch.part("b", 2, reads=True)]
    for number, without in enumerate(bare):
        reply = hit(str(number))
        parts[number // 2].take([reply if without else reply + END], bare=without)
    assert batch.reply == b"".join(hit(str(number)) + END for number in range(4))


@pytest.mark.parametrize("bare", [False, True])
def test_available_replies_are_sent_once(bare: bool) -> None:
    executor = Executor()
    batch = Batch(executor, ["a", "b", "a"])
    of_a, of_b = batch.part("a", 2, reads=True), batch.part("b", 1, reads=True)
    one, two, three = (hit(name) if bare else hit(name) + END for name in "123")
    of_a.take([one], bare=bare)
    batch.progressed()
    assert batch.waits
    assert batch.available() == hit("1") + END
    assert batch.available() == b""
    of_a.take([three], bare=bare)
    assert batch.available() == b""
    of_b.take([two], bare=bare)
    assert batch.reply == hit("2") + END + hit("3") + END


def test_each_request_that_has_no_reply_fails() -> None:
    executor = Executor()
    batch = Batch(executor, ["a", "a", "b", "a"])
    of_a, of_b = batch.part("a", 3, reads=True), batch.part("b", 1, reads=True)
    of_a.take([hit("1")], bare=True)
    of_a.fail(ERROR)
    of_b.take([hit("3")], bare=True)
    assert executor.failures == 2
    assert batch.reply == hit("1") + END + ERROR + hit("3") + END + ERROR


async def test_a_node_counts_the_requests_of_a_batch() -> None:
    node, transport = served()
    executor, last = Executor(), Outcome()
    batch = Batch(executor, [node] * 3)
    node.send_batch(b"get 1\r\nget 2\r\nget 3\r\n", batch.part(node, 3, reads=True))
    node.send(b"get 4\r\n", last)
    assert node.pending == 4
    await asyncio.sleep(0)
    assert transport.written == [b"get 1\r\nget 2\r\nget 3\r\nget 4\r\n"]
    node.replies_received([hit("1")], bare=True)
    assert (node.pending, executor.steps) == (3, 1)
    node.replies_received([hit("2"), hit("3"), hit("4")], bare=True)
    assert node.pending == 0
    assert batch.reply == b"".join(hit(name) + END for name in "123")
    assert last.replies == [hit("4") + END]
    node.stop()


async def test_a_connection_is_lost_in_the_middle_of_a_batch() -> None:
    node, _ = served()
    executor, last = Executor(), Outcome()
    batch = Batch(executor, [node] * 3)
    node.send_batch(b"get 1\r\nget 2\r\nget 3\r\n", batch.part(node, 3, reads=True))
    node.send(b"get 4\r\n", last)
    await asyncio.sleep(0)
    node.replies_received([hit("1")], bare=True)
    node.link_lost("gone", down=True)
    error = b"SERVER_ERROR node 127.0.0.1:1: gone\r\n"
    assert batch.reply == hit("1") + END + error * 2
    assert last.replies == [error]
    assert (node.pending, node.failed, executor.failures) == (0, 3, 2)


async def test_requests_that_were_not_sent_in_time_are_refused_alone() -> None:
    node, transport = served()
    first, batch, last = Outcome(), Batch(Executor(), [node] * 2), Outcome()
    node.send(b"get 0\r\n", first)
    await asyncio.sleep(0)
    node.send_batch(b"get 1\r\nget 2\r\n", batch.part(node, 2, reads=True))
    node.send(b"get 3\r\n", last)
    node._until = 0.0  # as if the process had been stopped for a while
    await asyncio.sleep(0)
    assert transport.written == [b"get 0\r\n"]
    assert batch.reply is not None
    assert batch.reply.count(b"SERVER_ERROR not sent: ") == 2
    assert last.replies[0].startswith(b"SERVER_ERROR not sent: ")
    assert (node.pending, node.requests, node.failed) == (1, 1, 3)
    node.replies_received([hit("0")], bare=True)
    assert first.replies == [hit("0") + END]
    node.stop()
