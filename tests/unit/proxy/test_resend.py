"""Requests that wait for a change of their key while the key gets other nodes."""

from typing import cast

import pytest

from memlite.cluster.topology import Phase
from memlite.proxy.changes import Changes
from memlite.proxy.node import TOO_LATE, Node, Receiver
from memlite.proxy.replicas import ReplicaSet
from memlite.proxy.resend import send_again
from memlite.proxy.whole_gets import WholeGets
from tests.unit.proxy.copies import Client, Connection, Server, setting
from tests.unit.proxy.moves import Scene, play

GET = b"get k\r\n"


class Sets:
    """A primary, a node with copies, and a third node that gets a copy later."""

    def __init__(self) -> None:
        self.servers = [Server(), Server(), Server()]
        self.nodes = [Connection("abc"[at], one) for at, one in enumerate(self.servers)]
        self.changes = Changes(30, over_after=3)
        self.before = self.of(0, 1)
        self.current = self.before

    def of(self, *indexes: int) -> ReplicaSet:
        nodes = [cast("Node", self.nodes[index]) for index in indexes]
        return ReplicaSet(
            nodes[0],
            nodes[1:],
            self.changes,
            "all",
            spreads=False,
            find=lambda _key: self.current,
        )

    def run(self) -> None:
        while busy := [node for node in self.nodes if node.waiting]:
            busy[0].step()


def test_a_change_that_has_waited_holds_the_copies_of_the_moment_it_is_made() -> None:
    sets, clients = Sets(), [Client(), Client()]
    for client, value in zip(clients, (b"1", b"2"), strict=True):
        sets.before.send(setting(value), client)
    sets.current = sets.of(0, 1, 2)
    sets.servers[2].execute(setting(b"0"))  # a copy that was made meanwhile
    sets.run()
    assert [client.replies for client in clients] == [[b"STORED\r\n"]] * 2
    assert [server.value for server in sets.servers] == [b"2"] * 3


def test_a_change_that_has_waited_is_made_where_the_key_is_by_then() -> None:
    sets, client = Sets(), Client()
    sets.before.send(setting(b"1"), Client())
    sets.before.send(setting(b"2"), client)
    sets.before.send(GET, client)
    sets.current = sets.of(2, 1)
    sets.run()
    assert client.replies == [b"STORED\r\n", b"VALUE k 0 1\r\n2\r\nEND\r\n"]
    assert [server.value for server in sets.servers] == [b"1", b"2", b"2"]


def test_a_get_of_several_keys_that_has_waited_is_split_if_they_are_elsewhere() -> None:
    sent: list[tuple[str, bytes]] = []

    class Target:
        def __init__(self, name: str) -> None:
            self._name = name

        def send(self, request: bytes, receiver: Receiver) -> None:
            sent.append((self._name, request))
            key = request.split()[-1]
            receiver.answer(b"VALUE %b 0 1\r\n%b\r\nEND\r\n" % (key, key))

    targets = {b"x": Target("one"), b"y": Target("two")}
    client = Client()
    send_again(b"get x y x\r\n", client, targets.__getitem__)
    send_again(b"gats 7 y x\r\n", client, targets.__getitem__)
    assert sent == [
        *[("one", b"get x\r\n"), ("two", b"get y\r\n"), ("one", b"get x\r\n")],
        *[("two", b"gats 7 y\r\n"), ("one", b"gats 7 x\r\n")],
    ]
    x, y = b"VALUE x 0 1\r\nx\r\n", b"VALUE y 0 1\r\ny\r\n"
    assert client.replies == [x + y + x + b"END\r\n", y + x + b"END\r\n"]
    targets[b"y"] = targets[b"x"]
    sent.clear()
    send_again(b"get x y\r\n", client, targets.__getitem__)
    assert sent == [("one", b"get x y\r\n")]


def test_a_whole_get_that_has_waited_is_sent_again() -> None:
    sets, waited = Sets(), []
    gets = WholeGets(
        [cast("Node", node) for node in sets.nodes],
        lambda _: sets.current,
        sets.changes,
        strict=False,
        count_failed=lambda _: None,
        again=lambda request, _: waited.append(request),
    )
    sets.before.send(setting(b"1"), Client())
    gets.send(b"get k k\r\n", Client())
    assert not waited
    sets.run()
    assert waited == [b"get k k\r\n"]


def test_a_change_that_waits_when_keys_begin_to_move_is_made_as_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(scene: Scene) -> None:
        key = scene.moved()
        change = b"set %b 0 0 1\r\nx\r\n" % key
        clients = [scene.ask(key, change), scene.ask(key, change)]
        scene.enter(Phase.GATHER)
        assert "127.0.0.1:4" not in scene.holders(key)
        await scene.run()
        assert [client.replies for client in clients] == [[b"STORED\r\n"]] * 2
        assert "127.0.0.1:4" in scene.holders(key)

    play(scenario, monkeypatch)


def test_a_change_that_waits_between_phases_is_made_as_in_the_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(scene: Scene) -> None:
        key = scene.moved()
        scene.enter(Phase.GATHER)
        change = b"set %b 0 0 1\r\nx\r\n" % key
        clients = [scene.ask(key, change), scene.ask(key, change)]
        assert len(scene.holders(key)) == 2
        scene.spread()
        scene.sent.clear()
        await scene.run()
        assert [client.replies for client in clients] == [[b"STORED\r\n"]] * 2
        assert scene.holders(key) == {"127.0.0.1:4"}

    play(scenario, monkeypatch)


def test_a_flush_that_has_waited_is_refused_if_there_are_other_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(scene: Scene) -> None:
        key = scene.moved()
        changed = scene.ask(key, b"set %b 0 0 1\r\nx\r\n" % key)
        flushes = [scene.flush(), scene.flush()]
        read = scene.ask(key, b"get %b\r\n" % key)
        scene.enter(Phase.GATHER)
        await scene.run()
        assert changed.replies == [b"STORED\r\n"]
        assert [flush.replies for flush in flushes] == [[TOO_LATE]] * 2
        assert read.replies == [b"END\r\n"]
        assert not [one for one in scene.sent if one[1].startswith(b"flush_all")]
        assert scene.cluster.replicated.idle

    play(scenario, monkeypatch)


def test_a_flush_of_a_move_that_is_over_when_it_is_made_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(scene: Scene) -> None:
        key = scene.moved()
        scene.enter(Phase.GATHER)
        change = b"set %b 0 0 1\r\nx\r\n" % key
        changed, flushed = scene.ask(key, change), scene.flush()
        later = scene.ask(key, change)
        scene.spread()
        scene.sent.clear()
        await scene.run()
        assert (changed.replies, flushed.replies) == ([b"STORED\r\n"], [TOO_LATE])
        assert later.replies == [b"STORED\r\n"]
        assert scene.holders(key) == {"127.0.0.1:4"}
        assert scene.cluster.replicated.idle

    play(scenario, monkeypatch)


def test_a_change_that_came_before_a_flush_is_made_before_it_while_keys_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(scene: Scene) -> None:
        key = scene.moved()
        scene.enter(Phase.GATHER)
        change = b"set %b 0 0 1\r\nx\r\n" % key
        clients = [scene.ask(key, change), scene.ask(key, change), scene.flush()]
        clients.append(scene.ask(key, change))
        await scene.run()
        assert [client.replies for client in clients] == [
            *[[b"STORED\r\n"]] * 2,
            [b"OK\r\n"],
            [b"STORED\r\n"],
        ]
        order = [request.split()[0] for _, request in scene.sent]
        order = [name for name in order if name in (b"set", b"flush_all")]
        assert order[:2] == [b"set"] * 2
        assert order[2:-1] == [b"flush_all"] * 8
        assert order[-1] == b"set"

    play(scenario, monkeypatch)
