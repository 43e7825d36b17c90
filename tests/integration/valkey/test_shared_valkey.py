"""Servers that share one store: each sees the other's changes, and no update is lost."""

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pymemcache.client.base import Client

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from tests.support.servers import RunningServer, running
from tests.support.stores import cluster, store
from tests.support.waiting import wait_until

CLIENTS = 4


@pytest.fixture(scope="module", params=["single", pytest.param("cluster", marks=pytest.mark.slow)])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "single":
        with store() as one:
            yield one.port
    else:
        with cluster() as stores:
            yield stores[1].port


@contextlib.contextmanager
def serving(port: int, prefix: str, *arguments: str) -> Iterator[RunningServer]:
    url = f"valkey://127.0.0.1:{port}/{prefix}"
    with running("memlite", "--backend", url, *arguments) as server:
        yield server


Connect = Callable[[RunningServer], Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Yield a function that connects to a server; the connections are closed at the end."""
    with contextlib.ExitStack() as stack:

        def connect(server: RunningServer) -> Client:
            client = Client(("127.0.0.1", server.port), timeout=60, default_noreply=False)
            stack.callback(client.close)
            return client

        yield connect


def work(client: Client, name: int, turns: int) -> list[bool]:
    """Change items that others change too; return for each turn whether the add succeeded."""
    won = []
    for turn in range(turns):
        client.incr("count", 1)
        won.append(client.add(f"add{turn}", str(name)))
        assert client.append("list", f"<{name}.{turn}>")
        while True:
            value, unique = client.gets("sum")
            if client.cas("sum", str(int(value) + 1), unique):
                break
    return won


def test_two_servers_lose_no_update(port: int, connect: Connect) -> None:
    turns = 5
    with serving(port, "updates") as one, serving(port, "updates", "--near-cache", "8m") as two:
        first = connect(one)
        for key, value in (("count", "0"), ("sum", "0"), ("list", "")):
            assert first.set(key, value)
        clients = [connect((one, two)[number % 2]) for number in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            won = list(pool.map(work, clients, range(CLIENTS), [turns] * CLIENTS))
        for client in (connect(one), connect(two)):
            assert client.gets("count")[0] == b"%d" % (CLIENTS * turns)
            assert client.gets("sum")[0] == b"%d" % (CLIENTS * turns)
            words = re.findall(rb"<\d+\.\d+>", client.gets("list")[0])
            assert sorted(words) == sorted(
                b"<%d.%d>" % (name, turn) for name in range(CLIENTS) for turn in range(turns)
            )
            for turn in range(turns):
                (winner,) = [name for name in range(CLIENTS) if won[name][turn]]
                assert client.gets(f"add{turn}")[0] == b"%d" % winner


def test_a_flush_on_one_server_reaches_the_other(port: int, connect: Connect) -> None:
    with serving(port, "flushes") as one, serving(port, "flushes") as two:
        keys = [f"key{number}" for number in range(20)]
        assert not connect(one).set_many(dict.fromkeys(keys, "value"))
        assert len(connect(two).get_many(keys)) == 20
        assert connect(one).flush_all()
        assert connect(one).get_many(keys) == {}
        assert wait_until(lambda: connect(two).get_many(keys) == {})
        assert connect(two).set("key1", "new")
        assert connect(one).get("key1") == b"new"


def test_the_state_is_among_the_statistics(port: int) -> None:
    with serving(port, "stats") as server:
        assert server.ask(b"set k 0 0 1\r\nx\r\nget k\r\nquit\r\n").startswith(b"STORED\r\n")
        stats = server.stats("backend")
        assert stats["state"] == "available"
        assert stats["store"] == f"valkey://127.0.0.1:{port}/stats"
        assert int(stats["servers"]) in (1, 3)
        assert int(stats["commands"]) >= 2
