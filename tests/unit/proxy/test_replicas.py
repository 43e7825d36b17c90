"""Copies of a key, in every order of the steps of two proxies, which may be killed at any step."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest

from memlite.proxy import changes as changing
from memlite.proxy.changes import Changes
from memlite.proxy.node import Node
from memlite.proxy.replica_requests import Key, hold, is_read, is_spread, key_of
from memlite.proxy.replicas import FlushTwice, ReplicaSet
from tests.unit.proxy.copies import PROTECTED, Client, Connection, Server, setting


class Proxy:
    """A proxy with connections to all servers."""

    def __init__(self, servers: Sequence[Server], write: str = "all") -> None:
        self.nodes = [Connection("abc"[index], one) for index, one in enumerate(servers)]
        self.changes = Changes(30, over_after=3)
        nodes = [cast("Node", node) for node in self.nodes]
        self.set = ReplicaSet(nodes[0], nodes[1:], self.changes, write, spreads=True)
        self.flushing = FlushTwice(nodes, self.changes)

    def ask(self, request: bytes) -> Client:
        client = Client()
        target = self.flushing if request.startswith(b"flush_all") else self.set
        target.send(request, client)
        return client

    def run(self) -> None:
        """Carry out all waiting requests."""
        while busy := [node for node in self.nodes if node.waiting]:
            busy[0].step()


GET = b"get k\r\n"
INCR = b"incr k 1\r\n"
Choose = Callable[[int], int]


def play(choose: Choose, requests: Sequence[Sequence[bytes]], *, copy: bool, kills: bool) -> None:
    """Carry out the requests of several proxies in a chosen order, and check every state.

    Raises:
        AssertionError: a replica has a value that the primary does not have.
    """
    servers = [Server(), Server()]
    for server in servers if copy else servers[:1]:
        server.execute(setting(b"0"))
    proxies = [Proxy(servers) for _ in requests]
    clients = [
        proxy.ask(one) for proxy, some in zip(proxies, requests, strict=True) for one in some
    ]
    killed = False
    while choices := [node for proxy in proxies for node in proxy.nodes if node.waiting]:
        chosen = choose(len(choices) + (kills and not killed))
        if chosen == len(choices):
            killed = True
            proxies[0].nodes[0].waiting.clear()
            proxies[0].nodes[1].waiting.clear()
            continue
        choices[chosen].step()
        primary, replica = servers
        assert replica.value in (None, primary.value)
    if not killed:
        assert all(len(client.replies) == 1 for client in clients)


def every_order(run: Callable[[Choose], None]) -> int:
    """Call a function with every sequence of choices; return how many there are."""
    path: list[list[int]] = []  # the choice and the number of alternatives
    count = 0
    while True:
        position = 0

        def choose(alternatives: int) -> int:
            nonlocal position
            if position == len(path):
                path.append([0, alternatives])
            position += 1
            return path[position - 1][0]

        run(choose)
        count += 1
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return count
        path[-1][0] += 1


PAIRS = [
    [[setting(b"1")], [setting(b"2")]],
    [[INCR], [setting(b"5")]],
    [[setting(b"1")], [GET]],
    [[INCR], [GET]],
]


@pytest.mark.parametrize("copy", [False, True], ids=["absent", "copied"])
@pytest.mark.parametrize("requests", PAIRS, ids=["set-set", "incr-set", "set-get", "incr-get"])
def test_every_order_of_two_proxies(requests: list[list[bytes]], copy: bool) -> None:
    orders = every_order(lambda choose: play(choose, requests, copy=copy, kills=True))
    assert orders > 30


THREE = [[setting(b"1")], [setting(b"2"), INCR], [GET, GET]]


def orders_of_three(count: int) -> Iterator[Choose]:
    for seed in range(count):
        yield random.Random(seed).randrange


@pytest.mark.parametrize("kills", [False, True])
def test_orders_of_three_proxies(kills: bool) -> None:
    for number, choose in enumerate(orders_of_three(3000)):
        play(choose, THREE, copy=number % 2 == 0, kills=kills)


@pytest.mark.parametrize("mistake", ["no hold", "no condition", "not seen"])
def test_mistakes_are_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are not held, filled unconditionally, or released despite another proxy's hold."""
    if mistake == "no hold":
        monkeypatch.setattr(changing, "hold", lambda *_args, **_named: b"mg k f c\r\n")
    elif mistake == "no condition":
        monkeypatch.setattr(
            changing, "fill", lambda _key, _unique, _flags, _exptime, value: setting(value)
        )
    else:
        monkeypatch.setattr(changing, "HELD", 0)
    with pytest.raises(AssertionError):
        for number, choose in enumerate(orders_of_three(3000)):
            play(choose, THREE, copy=number % 2 == 0, kills=True)


@pytest.mark.parametrize("write", ["all", "majority", "primary"])
def test_a_replica_that_is_down(write: str) -> None:
    servers = [Server(), Server(), Server()]
    proxy = Proxy(servers, write)
    proxy.nodes[2].down = True
    client = proxy.ask(setting(b"1"))
    proxy.run()
    if write == "all":
        assert client.replies == [b"SERVER_ERROR replica c: down\r\n"]
        assert [server.item for server in servers] == [None, None, None]
    else:
        assert client.replies == [b"STORED\r\n"]
        assert [server.value for server in servers] == [b"1", b"1", None]
    assert proxy.changes.idle


def test_holds_stay_if_it_is_unknown_whether_the_primary_has_made_the_change() -> None:
    servers = [Server(), Server()]
    proxy = Proxy(servers)
    client = proxy.ask(setting(b"1"))
    while not proxy.nodes[0].waiting:
        proxy.nodes[1].step()
    proxy.nodes[0].lose(executed=True)
    assert client.replies == [b"SERVER_ERROR node a: lost\r\n"]
    assert servers[1].item is not None
    assert servers[1].value is None
    assert proxy.changes.idle


def test_the_reply_says_that_only_the_primary_has_made_the_change() -> None:
    servers = [Server(), Server()]
    proxy = Proxy(servers)
    client = proxy.ask(setting(b"1"))
    while not proxy.nodes[0].waiting:
        proxy.nodes[1].step()
    proxy.nodes[0].step()
    assert not client.replies
    proxy.nodes[1].lose()
    error = b"SERVER_ERROR replica b: lost; the primary has made the change\r\n"
    assert client.replies == [error]


def test_a_change_that_the_primary_has_not_made_is_not_said_to_be() -> None:
    proxy = Proxy([Server(), Server()])
    client = proxy.ask(INCR)
    while not proxy.nodes[0].waiting:
        proxy.nodes[1].step()
    proxy.nodes[0].step()
    proxy.nodes[1].lose()
    assert client.replies == [b"NOT_FOUND\r\n"]
    assert proxy.changes.idle


@pytest.mark.parametrize("request_", [GET, b"mg k v f\r\n", b"mg k v c\r\n", b"mg k f\r\n"])
def test_a_hold_at_the_primary_is_not_a_value(request_: bytes) -> None:
    """The primary may have been a replica until a moment ago."""
    servers = [Server(), Server()]
    servers[0].execute(HOLD)
    proxy = Proxy(servers)
    for _ in range(2):  # one of the two asks the replica first
        client = proxy.ask(request_)
        proxy.run()
        assert client.replies == [ODD]


HOLD = hold(Key(b"k", b""), 30)
ODD = b"SERVER_ERROR node a: has only a copy; the nodes have changed\r\n"
ADD = b"add k 0 0 1\r\n1\r\n"


@pytest.mark.parametrize("flags", PROTECTED)
def test_a_hold_at_the_primary_is_removed_when_its_change_must_be_over(flags: bytes) -> None:
    """A lease protects nothing, however new it is."""
    servers = [Server(), Server()]
    servers[0].left = 26 if flags == PROTECTED[0] else 30
    proxy = Proxy(servers)
    for request, miss in ((GET, b"END\r\n"), (b"mg k v c\r\n", b"EN\r\n")):
        servers[0].execute(HOLD.replace(PROTECTED[0], flags))
        client = proxy.ask(request)
        proxy.run()
        assert client.replies == [miss]
        assert servers[0].item is None


@pytest.mark.parametrize("name", [b"get", b"gets"])
def test_a_hold_at_the_primary_is_removed_by_a_read_of_several_keys(name: bytes) -> None:
    servers = [Server(), Server()]
    servers[0].left = 26
    proxy = Proxy(servers)
    for _ in range(2):  # one of the two may ask the replica first
        servers[0].execute(HOLD)
        client = proxy.ask(b"%b k k\r\n" % name)
        proxy.run()
        assert client.replies == [b"END\r\n"]
        assert servers[0].item is None


def test_a_read_of_several_keys_fails_while_a_hold_at_the_primary_may_be_needed() -> None:
    servers = [Server(), Server()]
    servers[0].execute(HOLD)
    proxy = Proxy(servers)
    client = proxy.ask(b"gets k k\r\n")
    proxy.run()
    assert client.replies == [ODD]
    assert servers[0].item is not None


@pytest.mark.parametrize(
    ("request_", "reply"), [(INCR, b"NOT_FOUND\r\n"), (ADD.replace(b"add", b"set"), b"STORED\r\n")]
)
def test_a_change_does_not_take_a_hold_for_an_item(request_: bytes, reply: bytes) -> None:
    servers = [Server(), Server()]
    proxy = Proxy(servers)
    proxy.changes.nodes_changed()
    servers[0].left = 26
    servers[0].execute(HOLD)
    client = proxy.ask(request_)
    proxy.run()
    assert client.replies == [reply]
    assert servers[0].value == servers[1].value == (b"1" if request_ != INCR else None)


def test_a_change_waits_for_a_hold_that_may_still_be_needed() -> None:
    servers = [Server(), Server()]
    proxy = Proxy(servers)
    proxy.changes.nodes_changed()
    servers[0].execute(HOLD)
    client = proxy.ask(INCR)
    proxy.run()
    assert client.replies == [ODD]
    assert servers[0].item is not None
    assert servers[1].item is None, "the copy is not held any more"
    servers[0].left = 26
    client = proxy.ask(INCR)
    proxy.run()
    assert client.replies == [b"NOT_FOUND\r\n"]


def test_a_client_has_an_item_that_looks_like_a_hold() -> None:
    servers = [Server(), Server()]
    proxy = Proxy(servers)
    proxy.changes.nodes_changed()
    servers[0].left = 1
    servers[0].execute(b"set k %b 0 1\r\n4\r\n" % PROTECTED[0])
    client = proxy.ask(INCR)
    proxy.run()
    assert client.replies == [b"5\r\n"]


def test_large_changes_in_progress_are_bounded() -> None:
    proxy = Proxy([Server(), Server()])
    clients = [proxy.ask(setting(bytes(1_000_000))) for _ in range(100)]
    refused = [client for client in clients if client.replies]
    assert 30 < len(refused) < 40
    error = b"SERVER_ERROR too many large changes are in progress\r\n"
    assert all(client.replies == [error] for client in refused)
    proxy.run()
    assert sum(client.replies == [b"STORED\r\n"] for client in clients) == 100 - len(refused)
    client = proxy.ask(setting(bytes(1_000_000)))
    proxy.run()
    assert client.replies == [b"STORED\r\n"]
    assert proxy.changes._bytes == 0


def test_requests_for_a_key_are_carried_out_in_order() -> None:
    proxy = Proxy([Server(), Server()])
    requests = [setting(b"1"), INCR, GET, b"flush_all\r\n", GET, setting(b"7"), GET]
    clients = [proxy.ask(request) for request in requests]
    proxy.run()
    assert [client.replies for client in clients] == [
        [b"STORED\r\n"],
        [b"2\r\n"],
        [b"VALUE k 0 1\r\n2\r\nEND\r\n"],
        [b"OK\r\n"],
        [b"END\r\n"],
        [b"STORED\r\n"],
        [b"VALUE k 0 1\r\n7\r\nEND\r\n"],
    ]
    assert proxy.changes.idle


def test_a_read_fills_a_replica() -> None:
    servers = [Server(), Server()]
    servers[0].execute(setting(b"1"))
    proxy = Proxy(servers)
    for _ in range(2):
        client = proxy.ask(GET)
        proxy.run()
        assert client.replies == [b"VALUE k 0 1\r\n1\r\nEND\r\n"]
    assert servers[1].value == b"1"
    assert proxy.changes.fills == 1


class Noting(Server):
    """A server that records its requests, and has no items."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []

    def execute(self, request: bytes) -> bytes:
        self.asked.append(request.split()[0])
        return b"HD c1\r\n" if request.startswith((b"ms", b"md")) else b"EN\r\n"


def test_no_request_overtakes_a_read_of_several_keys() -> None:
    """The read waits for k; later requests for the other key wait for the read."""
    primary = Noting()
    proxy = Proxy([primary, Noting()])
    requests = [setting(b"1"), b"gets k other\r\n", b"delete other\r\n", INCR]
    clients = [proxy.ask(request) for request in requests]
    proxy.run()
    assert primary.asked[:2] == [b"set", b"gets"]
    assert sorted(primary.asked[2:]) == [b"delete", b"incr"]
    assert all(len(client.replies) == 1 for client in clients)
    assert proxy.changes.idle


def hold_on(server: Server) -> int:
    """Put another proxy's hold on a server, and return its cas unique."""
    server.execute(b"ms k 32 F%b T30 c\r\nmemlite: a copy is being changed\r\n" % PROTECTED[0])
    assert server.item is not None
    return server.item[2]


def test_the_hold_of_another_proxy_is_put_back_for_the_time_that_it_had_left() -> None:
    now = 0.0
    servers = [Server(), Server()]
    proxy = Proxy(servers)
    proxy.changes.now = lambda: now
    hold_on(servers[1])
    client = proxy.ask(setting(b"1"))
    while not proxy.nodes[0].waiting:
        proxy.nodes[1].step()
    now = 11.5
    proxy.nodes[0].step()
    (request, _) = proxy.nodes[1].waiting[0]
    assert request.startswith(b"ms k 32 F%b T20 c C2\r\n" % PROTECTED[0])
    proxy.run()
    assert client.replies == [b"STORED\r\n"]
    assert servers[1].value is None
    assert proxy.changes.left == 1


def test_a_hold_that_would_have_expired_is_released() -> None:
    now = 0.0
    servers = [Server(), Server()]
    proxy = Proxy(servers)
    proxy.changes.now = lambda: now
    hold_on(servers[1])
    proxy.ask(setting(b"1"))
    while not proxy.nodes[0].waiting:
        proxy.nodes[1].step()
    now = 31.0
    proxy.run()
    assert servers[1].value == b"1"


def test_a_hold_that_another_has_put_meanwhile_is_not_put_back() -> None:
    servers = [Server(), Server()]
    proxy = Proxy(servers)
    hold_on(servers[1])
    proxy.ask(setting(b"1"))
    while not proxy.nodes[0].waiting:
        proxy.nodes[1].step()
    other = hold_on(servers[1])
    proxy.run()
    assert servers[1].item is not None
    assert servers[1].item[2] == other + 1  # a new hold, of full length


def test_only_spaces_divide_the_words_of_requests() -> None:
    assert key_of(b"set a\tb 0 0 1\r\nx\r\n") == Key(b"a\tb", b"")
    assert is_read(b"mg a\tT5 v\r\n")
    assert is_spread(b"mg a\tT5 v\r\n")
