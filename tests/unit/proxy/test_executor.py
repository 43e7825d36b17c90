"""The executor of a proxy's connection, without nodes."""

import gc
from collections.abc import Iterator
from typing import Any, cast

import pytest

from memlite.memory import Part
from memlite.protocol import Limits
from memlite.proxy.batch import Batch
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.node import Receiver
from memlite.proxy.recognizer import Recognizer


class Node:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.receivers: list[Receiver] = []

    def send(self, _request: bytes, receiver: Receiver) -> None:
        self.receivers.append(receiver)


class Cluster:
    """Has one node."""

    def __init__(self) -> None:
        self.node = Node()
        self.by_line = {b"get a\r\n": self.node, b"get b\r\n": self.node}
        self.known_nodes: dict[bytes, Node] = {}
        self.due: list[ProxyExecutor] = []

    def call_shortly(self, _function: object) -> None:
        """Do not: all comes at once."""

    def node_of_word(self, _key: bytes) -> Node:
        return self.node


class Client:
    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def reply(self, reply: bytes) -> None:
        self.replies.append(reply)

    def settle(self) -> None:
        """As a connection."""

    close = settle


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def new(cluster: Cluster, client: Client, out: list[Part]) -> ProxyExecutor:
    recognizer = Recognizer(cast("Any", cluster), Limits())
    return ProxyExecutor(
        cast("Any", cluster), cast("Any", None), cast("Any", client), out, recognizer
    )


def test_it_is_freed_with_its_client() -> None:
    cluster, client, out = Cluster(), Client(), list[Part]()
    executor = new(cluster, client, out)
    assert executor.take(b"get a\r\n") == executor.take(b"get b\r\n") == 7
    for receiver, reply in zip(cluster.node.receivers, (b"1", b"2"), strict=True):
        receiver.answer(reply)
    cluster.due.pop().deliver()
    assert out == [b"1", b"2"]
    executor.detach()
    cluster.node.receivers.clear()
    del receiver, executor
    assert gc.collect() == 0


def test_replies_are_not_kept() -> None:
    cluster, out = Cluster(), list[Part]()
    executor = new(cluster, Client(), out)
    executor.take(b"get a\r\n")
    executor.take(b"get b\r\n")  # so that the first one gets an object of its own
    cluster.node.receivers.pop(0).answer(b"1")
    cluster.node.receivers.pop(0).answer(b"2")
    cluster.due.pop().deliver()
    out.clear()
    assert not any(b"1" in gc.get_referents(one) for one in gc.get_referents(executor))


def test_after_quit_nothing_is_taken() -> None:
    executor = new(Cluster(), Client(), [])
    assert executor.take(b"get a\r\n") == 7
    executor.quit()
    for data in (b"get a\r\n", b"get a\r\nget b\r\n", b"set a 0 0 1\r\nx\r\n", b"delete a\r\n"):
        assert executor.take(data) == 0


def test_a_batch_is_freed_when_it_is_answered() -> None:
    cluster = Cluster()
    batch = Batch(new(cluster, Client(), []), ["a", "b"])
    for part in [batch.part(name, 1, reads=True) for name in "ab"]:
        part.answer(b"END\r\n")
    assert batch.reply == b"END\r\nEND\r\n"
    cluster.due.clear()
    del batch, part
    assert gc.collect() == 0
