"""memlite's own client of a cluster, through discovery at real proxies."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlite.client import (
    ClusterClient,
    CommandFailedError,
    DiscoveryError,
    NodeUnreachableError,
    Shape,
    TextLogin,
)
from memlite.core.errors import ConfigError
from tests.support.certificates import Authority, client_context
from tests.support.proxies import proxy
from tests.support.servers import RunningServer, needs_memcached, running
from tests.support.waiting import wait_until

KEYS = [b"key:%d" % number for number in range(100)]


@pytest.fixture(
    scope="module", params=["memlite", pytest.param("memcached", marks=needs_memcached)]
)
def nodes(request: pytest.FixtureRequest) -> Iterator[tuple[RunningServer, ...]]:
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(running(request.param)) for _ in range(3))


@pytest.fixture(scope="module")
def front(nodes: tuple[RunningServer, ...]) -> Iterator[RunningServer]:
    with proxy(nodes) as front:
        yield front


@pytest.fixture
def seed(front: RunningServer) -> str:
    with front.connect() as wire:
        assert wire.ask(b"flush_all\r\n") == b"OK\r\n"
    return at(front)


def at(server: RunningServer) -> str:
    return f"127.0.0.1:{server.port}"


def write(path: Path, nodes: tuple[RunningServer, ...], head: str = "") -> None:
    """Write a topology in which names and weights decide where keys are."""
    tables = (
        f'[[nodes]]\nname = "n{number}"\naddress = "{at(node)}"\nweight = {number}\n'
        for number, node in enumerate(nodes, 1)
    )
    path.write_text(head + "".join(tables), encoding="utf-8")


async def test_commands(seed: str) -> None:
    async with ClusterClient(seed) as cluster:
        for key in KEYS[:10]:
            assert not await cluster.replace(key, b"x")
            assert await cluster.set(key, b"b", flags=7, exptime=100)
            assert not await cluster.add(key, b"x")
            assert await cluster.append(key, b"c")
            assert await cluster.prepend(key, b"a")
            found = await cluster.gets(key)
            assert found is not None
            assert (found.key, found.value, found.flags) == (key, b"abc", 7)
            assert found.unique is not None
            assert await cluster.cas(key, b"9", found.unique)
            assert not await cluster.cas(key, b"10", found.unique)
            assert await cluster.incr(key, 2) == 11
            assert await cluster.decr(key) == 10
            assert await cluster.touch(key, 100)
            got = await cluster.gat(key, 200)
            assert got is not None
            assert got.value == b"10"
            reply = await cluster.request(key, b"mg %b t\r\n" % key, Shape.META)
            assert reply.line in (b"HD t200", b"HD t199")
            assert await cluster.delete(key)
            assert not await cluster.delete(key)
            assert await cluster.get(key) is None
            assert await cluster.incr(key) is None
            assert await cluster.gat(key, 1) is None
            assert not await cluster.touch(key, 1)


async def test_it_places_keys_as_the_proxy_does(
    seed: str, front: RunningServer, nodes: tuple[RunningServer, ...]
) -> None:
    async with ClusterClient(seed) as cluster:
        assert all(await asyncio.gather(*(cluster.set(key, key) for key in KEYS)))
        items = await cluster.get_many([*KEYS, b"nope", KEYS[0]])
        assert {key: item.value for key, item in items.items()} == {key: key for key in KEYS}
        assert await cluster.get_many([]) == {}
        with front.connect() as wire:
            wire.send(b"get " + b" ".join(KEYS) + b"\r\n")
            assert wire.until(b"END\r\n").count(b"VALUE ") == len(KEYS)
        assert set(await cluster.version()) == {at(node) for node in nodes}
        await cluster.flush_all()
        assert await cluster.get_many(KEYS) == {}


@pytest.mark.parametrize(
    "head", ['hash = "ketama-fnv1a"\nhash_tag = "{}"\n', 'hash = "rendezvous"\n', 'hash = "jump"\n']
)
async def test_it_learns_how_the_proxy_places_keys(
    nodes: tuple[RunningServer, ...], tmp_path: Path, head: str
) -> None:
    path = tmp_path / "cluster.toml"
    write(path, nodes, head)
    keys = [b"a{%b}%d" % (key, number) for number, key in enumerate(KEYS)]
    with proxy(path) as front, front.connect() as wire:
        wire.send(b"".join(b"set %b 0 0 1\r\nx\r\n" % key for key in keys))
        assert [wire.line() for _ in keys] == [b"STORED\r\n"] * len(keys)
        async with ClusterClient(at(front)) as cluster:
            assert [node.name for node in cluster.map.nodes] == ["n1", "n2", "n3"]
            assert len(await cluster.get_many(keys)) == len(keys)


def all_nodes_up(front: RunningServer) -> bool:
    states = {n: v for n, v in front.stats().items() if n[:5] == "node:" and n[-6:] == ":state"}
    return set(states.values()) == {"up"}


async def test_it_follows_a_topology_that_changes(
    nodes: tuple[RunningServer, ...], tmp_path: Path
) -> None:
    path = tmp_path / "cluster.toml"
    write(path, nodes)
    with proxy(path) as front:
        async with ClusterClient(at(front), interval=0) as cluster:
            await cluster.flush_all()
            before = cluster.map.version
            for some in (nodes[:2], nodes[1:], nodes):
                write(path, some)
                async with asyncio.timeout(60):
                    while len(cluster.map.nodes) != len(some) or cluster.map.version == before:
                        assert await cluster.set(b"a", b"1")
                        await asyncio.sleep(0.01)
                before = cluster.map.version
                # The proxy empties a node that is new before it forwards to it.
                assert await asyncio.to_thread(wait_until, lambda: all_nodes_up(front))
                with front.connect() as wire:
                    for key in KEYS:
                        assert await cluster.set(key, b"1")
                        assert wire.ask(b"mg %b\r\n" % key) == b"HD\r\n"


async def test_errors_of_a_server(seed: str) -> None:
    async with ClusterClient(seed) as cluster:
        assert await cluster.set(b"a", b"x")
        with pytest.raises(CommandFailedError, match="non-numeric value") as caught:
            await cluster.incr(b"a")
        assert caught.value.reply.startswith(b"CLIENT_ERROR ")
        with pytest.raises(CommandFailedError, match="SERVER_ERROR object too large"):
            await cluster.set(b"a", bytes(2_000_000))


@pytest.mark.parametrize("key", [b"", b"a b", b"a\r\nflush_all", b"x" * 251, b"a\n", b"\x7f"])
async def test_keys_that_cannot_be_sent(seed: str, key: bytes) -> None:
    async with ClusterClient(seed) as cluster:
        for request in (
            cluster.get(key),
            cluster.set(key, b"x"),
            cluster.get_many([b"a", key]),
            cluster.incr(key),
            cluster.touch(key, 1),
            cluster.delete(key),
        ):
            with pytest.raises(ValueError, match="a key must have 1 to 250 bytes"):
                await request


async def test_the_first_seed_that_answers_is_taken(seed: str) -> None:
    async with ClusterClient("127.0.0.1:1", seed) as cluster:
        assert await cluster.set(b"a", b"x")


async def test_no_seed_lists_nodes(nodes: tuple[RunningServer, ...]) -> None:
    with pytest.raises(DiscoveryError) as caught:
        await ClusterClient("127.0.0.1:1", at(nodes[0])).__aenter__()
    assert str(caught.value) == (
        "no seed could list the nodes: 127.0.0.1:1: Connection refused; "
        f"{at(nodes[0])}: it lists no nodes"
    )


def test_seeds_must_be_addresses() -> None:
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        ClusterClient("a b")
    with pytest.raises(ConfigError, match="at least one seed"):
        ClusterClient()


async def test_a_node_that_fails(nodes: tuple[RunningServer, ...], tmp_path: Path) -> None:
    with running("memlite") as gone, proxy((*nodes, gone)) as front:
        async with ClusterClient(at(front)) as cluster:
            assert all(await asyncio.gather(*(cluster.set(key, b"x") for key in KEYS)))
            gone.process.kill()
            gone.process.wait()
            router = cluster.map.router()
            lost = {key for key in KEYS if router.index(key) == 3}
            with contextlib.suppress(ConnectionError):  # the lost connection's own error
                await cluster.get(min(lost))
            with pytest.raises(NodeUnreachableError, match=f"{gone.port}: Connection refused"):
                await cluster.get(min(lost))
            assert set(await cluster.get_many(KEYS)) == {*KEYS} - lost
            assert cluster.failed_shards == 1
            with pytest.raises(NodeUnreachableError):
                await cluster.get_many(lost)
            with pytest.raises(NodeUnreachableError):
                await cluster.flush_all()
            assert await cluster.get_many({*KEYS} - lost) == {}  # the other nodes are flushed


async def test_passwords_and_tls(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("server")
    users, password = tmp_path / "users", tmp_path / "password"
    for path, text in ((users, "ada:pwd\n"), (password, "pwd\n")):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
    guards = ("-Y", str(users), *issued.flags)
    to_nodes = (
        *("--node-user", "ada", "--node-password-file", str(password)),
        *("--node-tls", "--node-tls-ca-cert", str(issued.ca)),
    )
    tls = client_context(issued.ca)
    with (
        running("memlite", *guards, tls=tls) as node,
        proxy([node], *guards, *to_nodes, tls=tls) as front,
    ):
        login = TextLogin(b"ada", b"pwd")
        async with ClusterClient(at(front), tls=tls, login=login) as cluster:
            assert await cluster.set(b"a", b"x")
            assert await cluster.get(b"a")
        with pytest.raises(DiscoveryError, match="CLIENT_ERROR unauthenticated"):
            await ClusterClient(at(front), tls=tls).__aenter__()
        wrong = TextLogin(b"ada", b"wrong")
        with pytest.raises(DiscoveryError, match="authentication as ada: "):
            await ClusterClient(at(front), tls=tls, login=wrong).__aenter__()
