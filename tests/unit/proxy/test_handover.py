"""Keys that get another node without their items, which other proxies may not know yet."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from memlite.cluster.membership.lease import ALL_INFORMED
from memlite.cluster.topology import Move, Phase, Topology, parse_nodes
from memlite.proxy.cluster import Cluster
from memlite.proxy.node import Access, Node, Receiver
from memlite.server.scheduler import Scheduler

SECONDS = 2.0
KEYS = [b"key:%d" % number for number in range(60)]


class Time(Scheduler):
    """A scheduler whose clock advances when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.timers: list[tuple[float, object]] = []
        self.loop = cast("asyncio.AbstractEventLoop", self)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, function: object, *_arguments: object) -> None:  # type: ignore[override]
        self.timers.append((self.now + delay, function))

    def passes(self, seconds: float) -> None:
        until = self.now + seconds
        for due, function in sorted(self.timers, key=lambda timer: timer[0]):
            if due <= until:
                self.timers.remove((due, function))
                self.now = due
                cast("type[int]", function)()
        self.now = until


class Client:
    """Collects replies."""

    reads = False

    def __init__(self) -> None:
        self.replies: list[bytes] = []

    def answer(self, reply: bytes) -> None:
        self.replies.append(reply)

    def fail(self, error: bytes) -> None:
        self.replies.append(error)


class Scene:
    def __init__(self, nodes: int, *, seconds: float) -> None:
        self.time = Time()
        self.sent: list[tuple[str, bytes]] = []
        self.cluster = Cluster(
            topology_of(nodes), self.time, Access(60), strict=False, follows_within=seconds
        )
        self.client = Client()

    def ask(self, key: bytes, request: bytes) -> list[bytes]:
        """Send a request; return the replies so far."""
        self.cluster.node_of(key).send(request, cast("Receiver", self.client))
        return self.client.replies


def topology_of(nodes: int) -> Topology:
    return parse_nodes(",".join(f"127.0.0.1:{number + 1}" for number in range(nodes)))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a scene of two nodes; a third will take over some of their keys."""
    found = Scene(2, seconds=SECONDS)

    def send(node: Node, request: bytes, receiver: Receiver) -> None:
        found.sent.append((node.name, request))
        receiver.answer(b"from %b\r\n" % node.name.encode())

    monkeypatch.setattr(Node, "send", send)
    return found


def owners(nodes: int) -> dict[bytes, str]:
    topology = topology_of(nodes)
    router = topology.router()
    return {key: topology.nodes[router.index(key)].name for key in KEYS}


def moving_key(before: int, after: int) -> bytes:
    return next(key for key in KEYS if owners(before)[key] != owners(after)[key])


def staying_key(before: int, after: int) -> bytes:
    return next(key for key in KEYS if owners(before)[key] == owners(after)[key])


def test_a_key_that_gets_another_node_waits_until_all_proxies_know(scene: Scene) -> None:
    key, new = moving_key(2, 3), owners(3)[moving_key(2, 3)]
    scene.cluster.change(topology_of(3))
    assert scene.ask(key, b"get %b\r\n" % key) == [b"END\r\n"], "a miss, as at the new node"
    assert scene.ask(key, b"mg %b v\r\n" % key)[-1] == b"EN\r\n"
    before = len(scene.client.replies)
    change, read = b"set %b 0 0 1\r\nx\r\n" % key, b"get %b\r\n" % key
    scene.ask(key, change)
    scene.ask(key, read)
    assert len(scene.client.replies) == before
    assert not scene.sent
    scene.time.passes(SECONDS / 2)
    assert not scene.sent
    scene.time.passes(SECONDS / 2)
    assert scene.sent == [(new, change), (new, read)], "in the order in which they came"
    scene.ask(key, read)
    assert len(scene.sent) == 3


def test_with_copies_everything_waits_as_long_as_another_proxy_may_not_know(scene: Scene) -> None:
    key, new = moving_key(2, 3), owners(3)[moving_key(2, 3)]
    for nodes in (2, 3):
        scene.cluster.change(replace(topology_of(nodes), replicas=2))
    read = b"get %b\r\n" % key
    assert not scene.ask(key, read)
    scene.time.passes(ALL_INFORMED - 0.1)
    assert not scene.sent
    scene.time.passes(0.1)
    assert scene.sent[-1] == (new, read), "the primary has the last word"
    assert scene.client.replies == [b"from %b\r\n" % new.encode()]


def test_other_keys_are_not_delayed(scene: Scene) -> None:
    key = staying_key(2, 3)
    scene.cluster.change(topology_of(3))
    for request in (b"set %b 0 0 1\r\nx\r\n" % key, b"get %b\r\n" % key):
        scene.ask(key, request)
    assert [name for name, _ in scene.sent] == [owners(3)[key]] * 2


def test_a_second_topology_change_prolongs_the_wait(scene: Scene) -> None:
    """Another proxy may still use the first nodes, or the second ones."""
    key = moving_key(2, 3)
    scene.cluster.change(topology_of(3))
    scene.time.passes(SECONDS / 2)
    scene.cluster.change(topology_of(2))
    scene.ask(key, b"delete %b\r\n" % key)
    scene.time.passes(0.75 * SECONDS)
    assert not scene.sent
    scene.time.passes(0.25 * SECONDS)
    assert [name for name, _ in scene.sent] == [owners(2)[key]]


def test_a_flush_comes_after_changes_that_wait(scene: Scene) -> None:
    key, other = moving_key(2, 3), staying_key(2, 3)
    scene.cluster.change(topology_of(3))
    for target in scene.cluster.targets:
        target.send(b"flush_all\r\n", cast("Receiver", scene.client))
    assert len(scene.sent) == 3, "nothing waits"
    scene.sent.clear()
    scene.ask(key, b"delete %b\r\n" % key)
    for target in scene.cluster.targets:
        target.send(b"flush_all\r\n", cast("Receiver", scene.client))
    scene.ask(other, b"get %b\r\n" % other)
    assert not scene.sent, "the read must see the flush"
    scene.time.passes(SECONDS)
    assert [request.split()[0] for _, request in scene.sent] == [
        b"delete",
        *[b"flush_all"] * 3,
        b"get",
    ]


def test_a_flush_that_waits_goes_to_the_nodes_of_the_moment_it_is_carried_out(
    scene: Scene,
) -> None:
    key = moving_key(2, 3)
    scene.cluster.change(topology_of(3))
    scene.ask(key, b"delete %b\r\n" % key)
    for target in scene.cluster.targets:
        target.send(b"flush_all\r\n", cast("Receiver", scene.client))
    after = parse_nodes("127.0.0.1:1,127.0.0.1:3,127.0.0.1:4,127.0.0.1:5")
    scene.cluster.change(after)
    scene.time.passes(SECONDS)
    flushed = [name for name, request in scene.sent if request == b"flush_all\r\n"]
    assert flushed == [node.name for node in after.nodes]
    assert len(scene.client.replies) == 2, "one to the change, one to the flush"


def test_the_reply_to_a_flush_that_waited_is_the_error_of_one_node(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = b"SERVER_ERROR node 127.0.0.1:2: down\r\n"
    key = moving_key(2, 3)
    scene.cluster.change(topology_of(3))
    scene.ask(key, b"delete %b\r\n" % key)
    for target in scene.cluster.targets:
        target.send(b"flush_all\r\n", cast("Receiver", scene.client))

    def send(node: Node, _request: bytes, receiver: Receiver) -> None:
        if node is scene.cluster.nodes[1]:
            receiver.fail(bad)
        else:
            receiver.answer(b"OK\r\n")

    monkeypatch.setattr(Node, "send", send)
    scene.time.passes(SECONDS)
    assert scene.client.replies[-1] == bad


def test_too_many_are_refused(scene: Scene) -> None:
    key = moving_key(2, 3)
    scene.cluster.change(topology_of(3))
    for _ in range(16_384):
        assert not scene.ask(key, b"delete %b\r\n" % key)
    assert scene.ask(key, b"delete %b\r\n" % key) == [
        b"SERVER_ERROR too many changes wait for keys that get another node\r\n"
    ]


def test_a_move_is_known_to_all_before_it_ends(scene: Scene) -> None:
    before, after = topology_of(2), topology_of(3)
    for phase in (Phase.PREPARE, Phase.MOVE, Phase.SETTLE):
        move = Move(phase, after.nodes, "0" * 32)
        scene.cluster.change(replace(before, move=move))
    scene.cluster.change(after)
    key = moving_key(2, 3)
    scene.ask(key, b"delete %b\r\n" % key)
    assert len(scene.sent) == 1


def test_proxies_that_do_not_follow_a_store_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(2, seconds=0.0)
    monkeypatch.setattr(Node, "send", lambda _node, _request, receiver: receiver.answer(b"x"))
    scene.cluster.change(topology_of(3))
    key = moving_key(2, 3)
    assert scene.ask(key, b"delete %b\r\n" % key) == [b"x"]
