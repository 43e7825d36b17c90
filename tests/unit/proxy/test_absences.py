"""Notes about nodes that miss changes: when proxies write them, and their effects."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from memlite.client import FENCE
from memlite.proxy.absences import FRESH, Absence, Absences, may_skip
from memlite.proxy.changes import Change, Changes
from memlite.proxy.link import NodeLostError
from memlite.proxy.moving_flush import MovingFlush
from memlite.proxy.notes import word_of
from memlite.proxy.replica_requests import Key
from memlite.server.scheduler import Scheduler
from tests.unit.proxy import copies

_FLUSHING = (b"flush_all", FENCE, b"set memlite:probe:", b"get memlite:probe:")
DEADLINE = 1.0
SETTLED = 3.25


class Server:
    """A node that executes the requests of the protocol."""

    def __init__(self) -> None:
        self.items: dict[bytes, tuple[bytes, int]] = {}
        self.unique = 0

    def execute(self, request: bytes) -> bytes:
        words, _, rest = request.partition(b"\r\n")
        name, *keys = words.split()
        if name in (b"get", b"gets"):
            found = [(key, *self.items[key]) for key in keys if key in self.items]
            lines = [b"VALUE %b 0 %d %d\r\n%b\r\n" % (k, len(v), u, v) for k, v, u in found]
            return b"".join(lines) + b"END\r\n"
        if name == b"flush_all":
            self.items.clear()
            if rest:
                self.execute(rest)
            return b"OK\r\n"
        if words + b"\r\n" == FENCE:
            if rest:
                self.execute(rest)
            return b"VERSION 1.6.18\r\n"
        value, _, rest = rest.partition(b"\r\n")
        self.unique += 1
        if name == b"set" or (name == b"add" and keys[0] not in self.items):
            self.items[keys[0]] = value, self.unique
            if rest:
                self.execute(rest)
            return b"STORED\r\n"
        assert name == b"cas"
        assert keys[2] == b"-1"
        if keys[0] not in self.items:
            return b"NOT_FOUND\r\n"
        if self.items[keys[0]][1] != int(keys[4]):
            return b"EXISTS\r\n"
        del self.items[keys[0]]
        return b"STORED\r\n"


class Node:
    """A proxy's view of a node; requests wait until `step`."""

    def __init__(self, name: str, server: Server) -> None:
        self.name, self.server = name, server
        self.state = "up"
        self.taken_out = ""
        self.tries = 0
        self.waiting: list[tuple[bytes, Any]] = []

    @property
    def down(self) -> bool:
        return self.state == "down"

    def send(self, request: bytes, receiver: Any) -> None:
        assert receiver.reads or request.startswith(_FLUSHING)
        if self.down:
            receiver.fail(b"SERVER_ERROR down\r\n")
        else:
            self.waiting.append((request, receiver))

    def step(self) -> None:
        waiting, self.waiting = self.waiting, []
        for request, receiver in waiting:
            receiver.answer(self.server.execute(request))

    def lose(self) -> None:
        self.state = "down"
        waiting, self.waiting = self.waiting, []
        for _, receiver in waiting:
            receiver.fail(b"SERVER_ERROR lost\r\n")

    def take_out(self, reason: str) -> None:
        self.taken_out = reason
        self.state = "down"

    def try_again(self) -> None:
        self.tries += 1


class Soon:
    def call_soon(self, function: Callable[[str], None], reason: str) -> None:
        function(reason)


class Proxy:
    """A proxy's notes; `nodes` is its view of the nodes, the first of which is away."""

    def __init__(self, servers: list[Server], clock: list[float]) -> None:
        self.nodes = [Node(f"n{number}", server) for number, server in enumerate(servers)]
        self.absences = Absences(Soon(), DEADLINE, lambda: clock[0])
        self.absences.watch(self.nodes)

    @property
    def away(self) -> Absence:
        return self.absences.of(self.nodes[0])

    def step(self) -> None:
        for _ in range(3):
            for node in self.nodes:
                node.step()

    def tick(self) -> None:
        self.absences.tick()
        self.step()

    def skips(self) -> list[bytes]:
        """Make a change without the first node; return its outcome so far."""
        outcome: list[bytes] = []
        self.away.confirm(outcome.append)
        return outcome

    def prepare(self) -> bool:
        """Let the first node return; return whether it must be emptied."""

        async def ask(request: bytes) -> bytes:
            return self.nodes[0].server.execute(request)

        async def prepared() -> bool:
            task = asyncio.create_task(self.away.prepare(ask))
            while not task.done():
                await asyncio.sleep(0)
                self.step()
            return task.result()

        must = asyncio.run(prepared())
        self.away.returned()
        self.nodes[0].state = "up"
        self.step()
        return must


class World:
    def __init__(self, nodes: int = 3) -> None:
        self.clock = [100.0]
        self.servers = [Server() for _ in range(nodes)]
        self.first, self.second = (Proxy(self.servers, self.clock) for _ in range(2))

    def started(self) -> Proxy:
        """Return a proxy that is starting."""
        proxy = Proxy(self.servers, self.clock)
        for node in proxy.nodes[1:]:

            async def ask(request: bytes, node: Node = node) -> bytes:
                return node.server.execute(request)

            asyncio.run(proxy.absences.read(node, ask))
        proxy.nodes[0].state = "connecting"
        return proxy

    def passes(self, seconds: float) -> None:
        self.clock[0] += seconds

    @property
    def notes(self) -> list[list[bytes]]:
        return [sorted(server.items) for server in self.servers]


def test_a_change_waits_for_a_note_on_one_other_node() -> None:
    world = World()
    proxy = world.first
    proxy.nodes[0].lose()
    outcome = proxy.skips()
    assert outcome == []
    proxy.nodes[1].step()
    assert outcome == [b""]
    proxy.step()
    assert world.notes == [[], [b"memlite:absent:n0"], [b"memlite:absent:n0"]]
    assert proxy.skips() == [b""]
    assert not proxy.nodes[1].waiting


def test_a_note_is_written_again_before_it_is_too_old() -> None:
    world = World()
    proxy = world.first
    proxy.nodes[0].lose()
    proxy.skips()
    world.passes(FRESH / 4)
    proxy.step()
    world.passes(FRESH / 4)  # counted from when it was sent
    assert proxy.skips() == [b""]
    assert proxy.nodes[1].waiting
    world.passes(FRESH / 2)
    late = proxy.skips()
    assert late == []
    proxy.step()  # the note confirmed now was sent half a second ago
    assert late == [b""]
    world.passes(FRESH / 2)
    assert proxy.skips() == []


def test_without_another_node_a_change_is_refused() -> None:
    proxy = World().first
    for node in proxy.nodes:
        node.lose()
    (reply,) = proxy.skips()
    assert reply.startswith(b"SERVER_ERROR node n0: down, and no other node has noted that")


def test_a_note_that_no_node_takes_refuses_the_change() -> None:
    proxy = World().first
    proxy.nodes[0].lose()
    outcome = proxy.skips()
    proxy.nodes[1].lose()
    assert outcome == []
    proxy.nodes[2].lose()
    assert outcome[0].startswith(b"SERVER_ERROR")


def test_a_note_that_comes_too_late_refuses_the_change() -> None:
    world = World()
    world.first.nodes[0].lose()
    outcome = world.first.skips()
    world.passes(FRESH)
    world.first.step()
    assert outcome[0].startswith(b"SERVER_ERROR")


def test_reads_need_no_note_but_do_not_overtake_changes() -> None:
    proxy = World().first
    proxy.nodes[0].lose()
    order: list[str] = []
    proxy.away.confirm(lambda _: order.append("first read"), reads=True)
    proxy.away.confirm(lambda _: order.append("change"))
    proxy.away.confirm(lambda _: order.append("read"), reads=True)
    assert order == ["first read"]
    proxy.step()
    assert order == ["first read", "change", "read"]


@pytest.mark.parametrize("away", [1, 2])
def test_a_change_needs_notes_about_all_nodes_that_it_misses(away: int) -> None:
    world = World(5)
    proxy = world.first
    absences = [proxy.absences.of(node) for node in proxy.nodes[:away]]
    for node in proxy.nodes[:away]:
        node.lose()
    outcome: list[bytes] = []
    may_skip(absences, outcome.append)
    assert outcome == []
    proxy.step()
    assert outcome == [b""]
    for server in world.servers[away:]:
        assert len(server.items) == away
    none: list[bytes] = []
    may_skip([], none.append)
    assert none == [b""]


def test_the_only_proxy_that_skipped_a_node_uses_it_at_once_and_removes_the_note() -> None:
    world = World()
    proxy = world.first
    proxy.nodes[0].lose()
    proxy.skips()
    proxy.step()
    assert not proxy.prepare()  # the proxy itself knows which changes were missed
    proxy.tick()
    assert world.notes == [[], [], []]


def test_a_note_stays_while_a_change_is_in_progress() -> None:
    world = World()
    proxy = world.first
    proxy.nodes[0].lose()
    proxy.skips()
    proxy.step()
    proxy.away.skips += 1
    proxy.prepare()
    proxy.tick()
    assert world.notes[1:] == [[b"memlite:absent:n0"]] * 2
    proxy.away.skips -= 1
    proxy.tick()
    assert world.notes == [[], [], []]


def test_another_proxy_gives_a_node_up_and_empties_it_once_the_note_stops_changing() -> None:
    world = World()
    skipping, other = world.first, world.second
    skipping.nodes[0].lose()
    skipping.skips()
    skipping.step()
    other.tick()
    assert other.nodes[0].taken_out == "it has missed changes by another proxy"
    for _ in range(3):
        world.passes(FRESH)
        skipping.skips()
        skipping.step()
        with pytest.raises(NodeLostError):
            other.prepare()
    world.passes(SETTLED - 0.1)
    with pytest.raises(NodeLostError):
        other.prepare()
    tries = other.nodes[0].tries
    other.tick()
    assert other.nodes[0].tries == tries + 1
    world.passes(0.1)
    assert other.prepare()
    other.tick()
    assert world.notes == [[], [], []]
    other.tick()
    assert other.nodes[0].state == "up"


@pytest.mark.parametrize("holder", [1, 2])
def test_a_proxy_that_starts_learns_of_an_absence_from_any_other_node(holder: int) -> None:
    world = World()
    world.first.nodes[0].lose()
    world.first.skips()
    world.first.step()
    world.servers[3 - holder].items.clear()
    started = world.started()
    with pytest.raises(NodeLostError):
        started.prepare()
    world.passes(SETTLED)
    assert started.prepare()


def test_a_proxy_that_starts_takes_nodes_without_a_note_as_they_are() -> None:
    assert not World().started().prepare()


def test_a_proxy_that_starts_waits_until_it_knows_of_all_other_nodes() -> None:
    world = World()
    proxy = world.first
    proxy.nodes[2].state = "connecting"

    async def ask(request: bytes) -> bytes:
        return world.servers[0].execute(request)

    async def run() -> None:
        task = asyncio.create_task(proxy.away.prepare(ask))
        for _ in range(10):
            await asyncio.sleep(0)
            proxy.step()
        assert not task.done()
        proxy.nodes[2].state = "down"
        proxy.absences.went_down(proxy.nodes[2])
        assert not await task

    asyncio.run(run())


def test_two_proxies_that_cannot_reach_a_node_do_not_wait_for_each_other_forever() -> None:
    world = World()
    proxies = [world.first, world.second]
    for proxy in proxies:
        proxy.nodes[0].lose()
    out = list(proxies)
    for turn in range(100):
        world.passes(0.1)
        for proxy in list(out):
            assert proxy.skips() in ([], [b""])
            proxy.step()
            if turn % 10 == 0:
                proxy.tick()
                try:
                    proxy.prepare()
                except NodeLostError:
                    continue
                out.remove(proxy)
    assert not out
    for proxy in proxies:
        proxy.tick()
    assert world.notes == [[], [], []]
    for proxy in proxies:
        proxy.tick()
        assert proxy.nodes[0].state == "up"


def test_a_note_that_replaces_another_does_not_hide_it() -> None:
    """Both make changes without the node; one reads the notes only after writing its own."""
    world = World()
    for proxy in (world.first, world.second):
        proxy.nodes[0].lose()
        proxy.skips()
        proxy.step()
    with pytest.raises(NodeLostError):
        world.second.prepare()


def test_a_node_that_was_emptied_by_another_is_used_once_the_note_is_gone() -> None:
    world = World()
    world.first.nodes[0].lose()
    world.first.skips()
    world.first.step()
    world.second.tick()
    world.first.prepare()
    world.first.tick()
    world.passes(0.1)
    assert not world.second.prepare()


def test_a_holder_that_is_down_does_not_make_a_note_forgotten() -> None:
    world = World()
    world.first.nodes[0].lose()
    world.first.skips()
    world.first.step()
    other = world.second
    other.tick()
    for node in other.nodes[1:]:
        node.lose()
        other.absences.went_down(node)
    with pytest.raises(NodeLostError):
        other.prepare()
    world.passes(SETTLED)
    assert other.prepare()


@pytest.mark.parametrize("known", [True, False])
def test_a_flush_keeps_the_notes(known: bool) -> None:
    """This includes flushes by a proxy that has not read the notes yet."""
    world = World()
    world.first.nodes[0].lose()
    world.first.skips()
    world.first.step()
    if known:
        world.second.tick()

    class ExpectsOk:
        reads = False

        def answer(self, reply: bytes) -> None:
            assert reply == b"OK\r\n"

        fail = answer

    for proxy in (world.second, world.first):
        before = [dict(server.items) for server in world.servers]
        for target in proxy.absences.flushed(proxy.nodes[1:]):
            cast("Any", target).send(b"flush_all\r\n", ExpectsOk())
        proxy.step()
        after = [dict(server.items) for server in world.servers]
        assert [{k: v[0] for k, v in one.items()} for one in after] == [
            {k: v[0] for k, v in one.items()} for one in before
        ]


async def test_a_flush_while_keys_move_keeps_the_notes() -> None:
    world = World()
    world.first.nodes[0].lose()
    world.first.skips()
    world.first.step()
    before = world.notes
    assert any(before)
    proxy = world.second  # has not read the notes
    replies: list[bytes] = []

    class Client:
        reads = False
        answer = fail = replies.append

    class Loop(Scheduler):
        @property
        def loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        def spawn(self, coroutine: Any) -> Any:
            tasks.append(asyncio.ensure_future(coroutine))

    tasks: list[Any] = []
    flush = MovingFlush(
        cast("Any", proxy.nodes[1:]),
        Loop(),
        ended=list,
        begun=list,
        delivered=list,
        valid=lambda: True,
        find=lambda _: cast("Any", None),
        absences=lambda: proxy.absences,
    )
    flush.send(b"flush_all\r\n", Client())
    for _ in range(100):
        await asyncio.sleep(0)
        proxy.step()
    assert replies == [b"OK\r\n"]
    assert [[k for k in one if b"probe" not in k] for one in world.notes] == before


def test_a_flushed_node_gets_the_known_notes_about_other_nodes() -> None:
    """They are added, not set: it may have a note that is not known yet."""
    world = World()
    proxy = world.first
    proxy.nodes[0].lose()
    proxy.skips()
    proxy.nodes[1].step()
    again = proxy.absences.again(cast("Any", proxy.nodes[2]))
    assert again.startswith(b"add memlite:absent:n0 0 0 ")
    assert b" noreply\r\n" in again
    assert proxy.absences.again(cast("Any", proxy.nodes[0])) == b""


def test_an_outdated_note_comes_back_with_the_node_that_holds_it() -> None:
    """The node that holds it was down when the note was removed from the others."""
    world = World()
    world.first.nodes[0].lose()
    world.first.skips()
    world.first.step()
    other = world.second
    other.tick()
    other.nodes[2].lose()
    other.absences.went_down(other.nodes[2])
    world.passes(SETTLED)
    other.tick()
    assert other.prepare()
    other.tick()
    assert world.notes == [[], [], [b"memlite:absent:n0"]]
    other.nodes[2].state = "up"
    other.tick()
    assert other.nodes[0].state == "up"
    other.tick()
    assert world.notes == [[], [], []]


def test_notes_about_many_nodes_take_several_requests() -> None:
    world = World(120)
    world.first.absences.look()
    requests = [request for request, _ in world.first.nodes[7].waiting]
    assert [request.count(b"memlite:") for request in requests] == [100, 100, 40]


def test_a_node_that_leaves_is_forgotten() -> None:
    world = World()
    world.first.nodes[0].lose()
    world.first.skips()
    world.first.step()
    other = world.second
    other.tick()
    other.absences.watch(other.nodes[1:])
    other.tick()
    assert other.nodes[1].state == "up"


@pytest.mark.parametrize("returns", [False, True])
def test_a_replica_that_is_back_when_the_note_is_there_gets_the_change(returns: bool) -> None:
    world = World()
    away = world.first.away
    world.first.nodes[0].lose()
    servers = [copies.Server() for _ in range(3)]
    primary, present, gone = (copies.Connection(f"n{n}", one) for n, one in enumerate(servers))
    cast("Any", gone).returning = SimpleNamespace(absence=away)
    changes, client = Changes(30), copies.Client()
    changes.absences = world.first.absences
    gone.down = True
    nodes: Any = [present, gone]
    change = Change(
        changes, Key(b"k", b""), copies.setting(b"new"), client, primary, nodes, "majority"
    )
    change.start(b"k")
    while present.waiting:
        present.step()
    assert not primary.waiting  # it waits for the note
    gone.down = not returns
    world.first.step()
    assert bool(primary.waiting) is not returns
    assert away.skips == (not returns)
    for _ in range(9):
        for one in (gone, present, primary):
            if one.waiting:
                one.step()
    assert client.replies == [b"STORED\r\n"]
    assert away.skips == 0
    assert servers[2].value == (b"new" if returns else None)


@pytest.mark.parametrize("name", ["a b", "nöde", "x" * 201, "x" * 1000, "tab\tbed", "\x7f", "\0"])
def test_an_odd_name_has_a_key_of_its_own(name: str) -> None:
    word = word_of(name)
    assert len(word) == 64
    assert word != word_of(name + "x")


def test_a_usual_name_is_in_the_key() -> None:
    assert word_of("10.0.0.1:11211") == b"10.0.0.1:11211"
    assert word_of("x" * 200) == b"x" * 200


@pytest.mark.parametrize("value", [b"", b"x", b"1-", b"-", b"a-b", b"0123-7"])
def test_any_value_of_a_note_takes_the_node_out(value: bytes) -> None:
    world = World()
    world.servers[1].items[b"memlite:absent:n0"] = value, 7
    other = world.second
    other.tick()
    assert other.nodes[0].state == "down"
    world.passes(SETTLED)
    other.tick()
    assert other.prepare()
    other.tick()
    assert world.notes == [[], [], []]
