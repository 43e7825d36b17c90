"""Gets of several keys that one node answers as a whole, with connections that tests drive."""

from typing import cast

import pytest

from memlite.proxy.changes import Changes
from memlite.proxy.node import Node
from memlite.proxy.replicas import ReplicaSet
from memlite.proxy.whole_gets import WholeGets
from tests.unit.proxy.copies import Client, Connection, Server, setting

GET = b"get k k\r\n"
ITEM = b"VALUE k 0 1\r\n1\r\n"
ERROR = b"SERVER_ERROR out of memory\r\n"


class Scene:
    """Two nodes that have a key; the second is asked first."""

    def __init__(self, *, strict: bool) -> None:
        self.servers = [Server(), Server()]
        for server in self.servers:
            server.execute(setting(b"1"))
        self.nodes = [Connection(name, one) for name, one in zip("ab", self.servers, strict=True)]
        nodes = [cast("Node", node) for node in self.nodes]
        changes = Changes(30, over_after=3)
        primary = ReplicaSet(nodes[0], nodes[1:], changes, "all", spreads=True)
        self.failed = 0
        self.gets = WholeGets(
            nodes, lambda _: primary, changes, strict=strict, count_failed=self._count
        )

    def _count(self, parts: int) -> None:
        self.failed += parts

    def ask(self) -> list[bytes]:
        client = Client()
        self.gets.send(GET, client)
        while busy := [node for node in self.nodes if node.waiting]:
            busy[0].step()
        return client.replies


def failing(server: Server, error: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "get", lambda *_: error)


@pytest.mark.parametrize("strict", [False, True])
def test_primaries_answer_for_a_node_that_sends_an_error(
    strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(strict=strict)
    failing(scene.servers[1], ERROR, monkeypatch)
    assert scene.ask() == [ITEM * 2 + b"END\r\n"]
    assert not scene.failed, "no key is a miss"


@pytest.mark.parametrize("strict", [False, True])
def test_the_error_of_the_node_is_the_reply_if_no_node_answers(
    strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(strict=strict)
    failing(scene.servers[1], ERROR, monkeypatch)
    failing(scene.servers[0], b"SERVER_ERROR another\r\n", monkeypatch)
    assert scene.ask() == [ERROR]
