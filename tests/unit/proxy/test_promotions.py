"""Hot keys: which nodes are read when, and that no stale value is read, in virtual time."""

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from memlite.cluster.hot_keys import HotKey, demote, promote, remove
from memlite.cluster.membership.lease import LEASE
from memlite.proxy.changes import Changes
from memlite.proxy.node import Node, Receiver
from memlite.proxy.promotions import HotSet, Promotions
from tests.unit.proxy.copies import PROTECTED, Client, Connection, Server, setting

KEY = b"k"
GET = b"get k\r\n"
DEADLINE = 1.0


class Fixture:
    """A proxy with three nodes, on a clock that tests advance."""

    def __init__(self, *, count: int = 3, base: int = 1) -> None:
        self.now = 1000.0
        self.base = base
        self.servers = [Server() for _ in range(count)]
        self.nodes = [Connection("abcdef"[index], one) for index, one in enumerate(self.servers)]
        self.order = list(range(count))
        self.forgotten: list[bytes] = []
        self.changes = Changes(30)
        self.hot = Promotions(self.changes, DEADLINE, self.forgotten.append, lambda: self.now)

    def update(self, *entries: HotKey) -> None:
        nodes = cast("Sequence[Node]", self.nodes)
        self.hot.update(entries, nodes, lambda _key: self.order[: self.base], "all")

    def run(self) -> None:
        while busy := [node for node in self.nodes if node.waiting]:
            busy[0].step()

    def later(self, seconds: float) -> None:
        """Advance the clock, and do everything that is due."""
        self.now += seconds
        self.hot.tick()
        self.run()

    @property
    def set(self) -> HotSet:
        found = self.hot.of(KEY)
        assert found is not None
        return found

    def ask(self, request: bytes) -> bytes:
        client = Client()
        self.set.send(request, client)
        self.run()
        (reply,) = client.replies
        return reply

    def asked(self, request: bytes = GET, times: int = 12) -> str:
        """Return the names of the nodes that get a request when it is sent several times."""
        names = set()
        for _ in range(times):
            self.set.send(request, Client())
            names |= {node.name for node in self.nodes if node.waiting}
            self.run()
        return "".join(sorted(names))


def promoted() -> Fixture:
    """Return a proxy with a key that is read from all nodes."""
    fixture = Fixture()
    fixture.update(HotKey(KEY, 1))
    fixture.later(fixture.hot.settling)
    assert fixture.asked() == "abc"
    return fixture


def test_copies_are_held_at_once_and_read_when_all_others_hold_them() -> None:
    fixture = Fixture()
    assert fixture.hot.of(KEY) is None
    fixture.update(HotKey(KEY, 1))
    assert fixture.forgotten == [KEY]
    assert fixture.ask(setting(b"1")) == b"STORED\r\n"
    assert fixture.changes.holds == 2
    assert fixture.asked() == "a"
    fixture.later(fixture.hot.settling - 0.1)
    assert fixture.asked() == "a"
    fixture.later(0.1)
    assert fixture.asked() == "abc"
    assert dict(fixture.hot.stats()) == {
        "proxy_hot_keys": 1,
        "hot:k:state": "spread",
        "hot:k:nodes": 3,
    }


def test_the_times_cover_the_lease_and_what_is_on_its_way() -> None:
    hot = Fixture().hot
    assert hot.settling >= LEASE + DEADLINE + 30
    assert hot.linger > LEASE + 3 * DEADLINE
    # A former primary is held again before any proxy reads its copy.
    assert hot.settling > LEASE + hot.linger - 5 * DEADLINE


def test_an_old_copy_is_removed_before_the_first_read() -> None:
    fixture = Fixture()
    fixture.servers[0].execute(setting(b"new"))
    fixture.servers[1].execute(setting(b"old"))
    fixture.update(HotKey(KEY, 1))
    fixture.later(fixture.hot.settling)
    assert [server.value for server in fixture.servers] == [b"new", None, None]
    for _ in range(6):
        assert fixture.ask(GET) == b"VALUE k 0 3\r\nnew\r\nEND\r\n"
    assert [server.value for server in fixture.servers] == [b"new"] * 3


def test_a_node_that_cannot_be_emptied_is_not_read() -> None:
    fixture = Fixture()
    fixture.servers[2].execute(setting(b"old"))
    fixture.nodes[2].down = True
    fixture.update(HotKey(KEY, 1))
    fixture.later(fixture.hot.settling)
    assert fixture.asked() == "ab"
    fixture.nodes[2].down = False
    fixture.later(1)
    assert fixture.servers[2].value is None
    assert fixture.asked() == "abc"


def test_emptying_is_tried_again() -> None:
    fixture = Fixture()
    fixture.update(HotKey(KEY, 1))
    fixture.now += fixture.hot.settling
    fixture.hot.tick()
    fixture.nodes[1].lose()
    fixture.run()
    assert fixture.asked() == "a"
    fixture.nodes[1].down = False
    fixture.later(1)
    assert fixture.asked() == "abc"


def test_after_a_demotion_copies_are_read_no_more_but_held_for_a_while() -> None:
    fixture = promoted()
    fixture.update(HotKey(KEY, 2, demoted=True))
    assert fixture.asked() == "a"
    before = fixture.changes.holds
    fixture.later(fixture.hot.linger - 0.1)
    fixture.ask(setting(b"2"))
    assert fixture.changes.holds == before + 2
    assert not fixture.hot.over
    assert fixture.servers[1].value == b"2"
    fixture.later(0.1)  # the copies that are left are removed first
    assert [server.value for server in fixture.servers] == [b"2", None, None]
    fixture.later(1)
    assert fixture.hot.of(KEY) is None
    assert fixture.forgotten == [KEY, KEY]
    assert fixture.hot.over == {HotKey(KEY, 2, demoted=True)}
    fixture.update(HotKey(KEY, 2, demoted=True))  # it is still in the list
    assert fixture.hot.of(KEY) is None
    fixture.update()
    assert not fixture.hot.over


def test_a_key_that_is_no_longer_listed_is_demoted() -> None:
    fixture = promoted()
    fixture.update()
    assert fixture.asked() == "a"
    assert dict(fixture.hot.stats())["hot:k:state"] == "demoted"
    fixture.later(fixture.hot.linger)
    fixture.later(1)
    assert not fixture.hot.active


def test_nothing_is_promoted_or_removed_while_keys_move() -> None:
    fixture = promoted()
    fixture.ask(setting(b"1"))
    nodes = cast("Sequence[Node]", fixture.nodes)
    fixture.hot.update([HotKey(KEY, 1)], nodes, lambda _key: [0], "all", moving=True)
    assert fixture.asked() == "a"
    fixture.later(fixture.hot.linger)
    assert not fixture.hot.active
    assert not fixture.hot.over
    assert fixture.servers[1].value == b"1"  # it may have been moved there
    fixture.update(HotKey(KEY, 1))
    fixture.later(fixture.hot.settling)
    assert fixture.servers[1].value is None


def test_a_proxy_that_starts_holds_copies_of_demoted_keys() -> None:
    fixture = Fixture()
    fixture.update(HotKey(KEY, 2, demoted=True))
    fixture.ask(setting(b"1"))
    assert fixture.changes.holds == 2
    fixture.later(fixture.hot.settling)
    fixture.later(1)
    assert fixture.hot.of(KEY) is None


def test_a_second_promotion_starts_over() -> None:
    fixture = promoted()
    fixture.update(HotKey(KEY, 2, demoted=True))
    fixture.later(1)
    fixture.servers[1].execute(setting(b"old"))
    fixture.update(HotKey(KEY, 3))
    fixture.later(fixture.hot.settling - 0.1)
    assert fixture.asked() == "a"
    fixture.later(0.1)
    assert fixture.servers[1].value is None
    assert fixture.asked() == "abc"


def test_a_promotion_that_was_missed_starts_over() -> None:
    fixture = promoted()
    fixture.update(HotKey(KEY, 3))
    assert fixture.asked() == "a"


def test_automatic_promotions_make_no_difference() -> None:
    fixture = promoted()
    fixture.update(HotKey(KEY, 1, automatic=True))
    assert fixture.asked() == "abc"


def test_a_proxy_that_was_suspended_starts_over() -> None:
    fixture = promoted()
    fixture.hot.suspend()
    assert fixture.asked() == "a"
    fixture.later(100)
    assert fixture.asked() == "a"
    fixture.update(HotKey(KEY, 1))
    fixture.later(fixture.hot.settling - 0.1)
    assert fixture.asked() == "a"
    fixture.later(0.1)
    assert fixture.asked() == "abc"


def test_a_node_that_comes_is_held_at_once_and_read_later() -> None:
    fixture = promoted()
    server = Server()
    fixture.servers.append(server)
    fixture.nodes = [*fixture.nodes, Connection("d", server)]
    fixture.update(HotKey(KEY, 1))
    before = fixture.changes.holds
    fixture.ask(setting(b"1"))
    assert fixture.changes.holds == before + 3
    assert fixture.asked() == "abc"
    fixture.later(fixture.hot.settling)
    assert fixture.asked() == "abcd"


def test_a_node_that_goes_changes_nothing_for_the_others() -> None:
    fixture = promoted()
    fixture.nodes = fixture.nodes[:2]
    fixture.update(HotKey(KEY, 1))
    assert fixture.asked() == "ab"


def test_another_primary_starts_over_and_the_former_one_is_not_held() -> None:
    """Other proxies may still consider it the primary, and must not find holds there."""
    fixture = promoted()
    fixture.order = [1, 0, 2]
    fixture.update(HotKey(KEY, 1))
    assert fixture.asked() == "b"
    fixture.ask(setting(b"1"))
    assert b"\r\n1\r\n" in fixture.servers[1].execute(GET), "the primary has made the change"
    assert fixture.asked(setting(b"2"), 1) == "c"
    fixture.later(fixture.hot.linger)
    fixture.set.send(setting(b"3"), Client())
    assert [node.name for node in fixture.nodes if node.waiting] == ["a", "c"]
    fixture.run()
    fixture.later(fixture.hot.settling)
    assert fixture.asked() == "abc"


def test_after_a_gap_every_node_is_held() -> None:
    """Other proxies may have known the new primary for a long time."""
    fixture = promoted()
    fixture.hot.suspend()
    fixture.order = [1, 0, 2]
    fixture.update(HotKey(KEY, 1))
    fixture.set.send(setting(b"1"), Client())
    assert [node.name for node in fixture.nodes if node.waiting] == ["a", "c"]


def test_the_hold_of_another_proxy_at_the_primary_is_not_given_to_clients() -> None:
    fixture = Fixture()
    fixture.update(HotKey(KEY, 1))
    held = b"ms k 32 F%b T30\r\nmemlite: a copy is being changed\r\n" % PROTECTED[0]
    fixture.servers[0].execute(held)
    assert fixture.ask(GET).startswith(b"SERVER_ERROR node a: has only a copy")
    assert fixture.ask(b"mg k v\r\n").startswith(b"SERVER_ERROR node a: has only a copy")


def test_replicas_are_read_all_the_time() -> None:
    fixture = Fixture(base=2)
    fixture.update(HotKey(KEY, 1))
    assert fixture.asked() == "ab"
    before = fixture.changes.holds
    fixture.ask(setting(b"1"))
    assert fixture.changes.holds == before + 2
    fixture.later(fixture.hot.settling)
    assert fixture.asked() == "abc"
    fixture.update()
    assert fixture.asked() == "ab"


def test_a_key_in_use_is_demoted_when_its_changes_are_over() -> None:
    """Otherwise later requests would overtake them."""
    fixture = promoted()
    fixture.update()
    fixture.set.send(setting(b"1"), Client())
    fixture.now += fixture.hot.linger
    fixture.hot.tick()
    assert fixture.hot.active
    fixture.run()
    fixture.hot.tick()
    assert not fixture.hot.active


def test_a_key_with_a_space() -> None:
    fixture = Fixture()
    fixture.update(HotKey(b"a b", 1))
    fixture.now += fixture.hot.settling
    fixture.hot.tick()
    assert fixture.nodes[1].waiting[0][0].startswith(b"ms YSBi 32 b ")


# A simulation: proxies that follow late, start and stop, and nodes that are slow.


class TimedServer(Server):
    """A server whose holds and leases expire."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._expires = 0.0

    def execute(self, request: bytes) -> bytes:
        if self.item is not None and self.item[0] in PROTECTED and self._clock() >= self._expires:
            self.item = None
        before = self.item
        reply = super().execute(request)
        left = max(int(self._expires - self._clock()), 0)
        reply = reply.replace(b" t30\r\n", b" t%d\r\n" % left)
        if self.item is not before:
            words = request[: request.index(b"\r\n")].split()
            self._expires = self._clock() + next(
                (int(word[1:]) for word in words[3:] if word[:1] == b"T"), 0
            )
        return reply


class World:
    """A key on three nodes, the list of hot keys, and virtual time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1_000.0
        self.servers = [TimedServer(lambda: self.now) for _ in range(3)]
        self.listed: tuple[HotKey, ...] = ()
        self.epoch = 1
        self.copies = self.reads = 0  # reads answered by a copy, and all reads of replicas
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time, next(self._numbers), event))

    def repeat(self, pause: Callable[[], float], event: Callable[[], None]) -> None:
        def again() -> None:
            event()
            self.at(self.now + pause(), again)

        self.at(self.now + pause(), again)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._due[0][0] <= until:
            self.now, _, event = heapq.heappop(self._due)
            event()

    def execute(self, server: TimedServer, request: bytes) -> bytes:
        reply = server.execute(request)
        if request == GET and server is not self.servers[0]:
            self.reads += 1
            if server.value is not None:
                self.copies += 1
                assert server.value == self.servers[0].value, "a stale copy was read"
        return reply

    def change_list(self) -> None:
        self.epoch += 1
        change = promote if self.random.random() < 0.6 else demote
        self.listed = change(self.listed, [KEY], self.epoch)


class SlowNode:
    """A connection to a server. Some changes are made long after they were reported to fail."""

    def __init__(self, world: World, server: TimedServer, name: str) -> None:
        self.name = name
        self.down = False
        self._world = world
        self._server = server
        self._last = 0.0

    def send(self, request: bytes, receiver: Receiver) -> None:
        world = self._world
        if request.startswith(b"set") and world.random.random() < 0.02:
            late = world.now + world.random.uniform(1, 29)
            world.at(late, lambda: void(world.execute(self._server, request)))
            world.at(world.now + DEADLINE, lambda: receiver.fail(b"SERVER_ERROR late\r\n"))
            return
        self._last = max(self._last, world.now + world.random.expovariate(20))
        world.at(self._last, lambda: receiver.answer(world.execute(self._server, request)))


def void(_reply: bytes) -> None:
    pass


class SimulatedProxy:
    """A proxy that follows the list, with interruptions, and serves clients."""

    def __init__(self, world: World, patience: float) -> None:
        self._world = world
        self._patience = patience
        self.hot: Promotions
        self._away = 0.0
        self.start()
        world.repeat(lambda: 1.0, self._follow)
        world.repeat(lambda: world.random.expovariate(4), self._serve)
        world.repeat(lambda: world.random.expovariate(1 / 150), self._lose_store)
        world.repeat(lambda: world.random.expovariate(1 / 600), self.start)

    def start(self) -> None:
        """Start or restart."""
        world = self._world
        self._nodes = [
            SlowNode(world, server, "abc"[number]) for number, server in enumerate(world.servers)
        ]
        changes = Changes(30, lambda: world.now)
        self.hot = Promotions(changes, DEADLINE, lambda _key: None, lambda: world.now)
        self._read_at = world.now - LEASE
        self._follow()

    def _lose_store(self) -> None:
        self._away = self._world.now + self._world.random.uniform(0, self._patience)

    def _follow(self) -> None:
        world = self._world
        late = world.now - self._read_at >= LEASE
        if late:
            self.hot.suspend()
        if world.now >= self._away:
            self._read_at = world.now
            nodes = cast("Sequence[Node]", self._nodes)
            self.hot.update(world.listed, nodes, lambda _key: [0], "all")
            if over := self.hot.over:
                world.listed = remove(world.listed, over)
        self.hot.tick()

    def _serve(self) -> None:
        world = self._world
        if world.now - self._read_at >= LEASE:
            return
        request = GET
        if world.random.random() < 0.05:
            request = setting(b"%d" % world.random.randrange(10**9))
        target = self.hot.of(KEY) or self._nodes[0]
        target.send(request, Client())


def simulate(seed: int, seconds: float = 2000.0) -> World:
    world = World(seed)
    for _ in range(3):
        SimulatedProxy(world, patience=40.0)
    world.repeat(lambda: world.random.expovariate(1 / 90), world.change_list)
    world.run(seconds)
    return world


@pytest.mark.slow
def test_nothing_stale_is_read() -> None:
    worlds = [simulate(seed) for seed in range(4)]
    assert sum(world.copies for world in worlds) > 500


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["settling", "linger"])
def test_mistakes_are_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are read, or no longer held, as soon as this proxy knows of the change."""
    begin = Promotions.__init__

    def hasty(self: Promotions, *arguments: object) -> None:
        begin(self, *arguments)  # type: ignore[arg-type]
        setattr(self, mistake, 0.0)

    monkeypatch.setattr(Promotions, "__init__", hasty)
    with pytest.raises(AssertionError, match="a stale copy was read"):
        for seed in range(30):
            simulate(seed)
