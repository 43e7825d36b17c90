"""The cluster client with scripted seeds and nodes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from memlite.client import (
    ClusterClient,
    DiscoveryError,
    NodeUnreachableError,
    OutcomeUnknownError,
)
from tests.support.waiting import eventually

NEW = b"config get cluster\r\n"
OLD = b"get AmazonElastiCache:cluster\r\n"
TOPOLOGY = b"config get topology\r\n"
FOREVER = 3600.0


class Scripted:
    """A server that answers each line with its scripted reply, or with ERROR if there is none.

    Attributes:
        port: the port that it listens on.
        replies: the replies by the whole line; None closes the connection.
        asked: the lines that it has received.
        connects: the number of connections accepted.
        held: while this is not set, no reply is sent.
    """

    def __init__(self) -> None:
        self.port = 0
        self.replies: dict[bytes, bytes | None] = {b"version\r\n": b"VERSION 1.6.45\r\n"}
        self.asked: list[bytes] = []
        self.connects = 0
        self.held = asyncio.Event()
        self.held.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connects += 1
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self.asked.append(line)
                await self.held.wait()
                reply = self.replies.get(line, b"ERROR\r\n")
                if reply is None:
                    break
                writer.write(reply)
        writer.close()

    def lists(self, version: int, *nodes: "Scripted", request: bytes = NEW) -> None:
        """Answer a request with a list of nodes."""
        shown = b" ".join(b"127.0.0.1||%d" % node.port for node in nodes)
        payload = b"%d\n%b\n" % (version, shown)
        head = b"CONFIG cluster" if request == NEW else b"VALUE AmazonElastiCache:cluster"
        self.replies[request] = b"%b 0 %d\r\n%b\r\nEND\r\n" % (head, len(payload), payload)


@contextlib.asynccontextmanager
async def scripted(count: int) -> AsyncIterator[list[Scripted]]:
    servers = [Scripted() for _ in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
            server.port = listener.sockets[0].getsockname()[1]
            stack.callback(listener.close)
        yield servers
    # Clients have closed their connections: let the servers notice.
    assert await eventually(lambda: len(asyncio.all_tasks()) == 1)


def client(*seeds: Scripted, interval: float = FOREVER) -> ClusterClient:
    return ClusterClient(*(f"127.0.0.1:{seed.port}" for seed in seeds), interval=interval)


async def until_version(cluster: ClusterClient, version: int) -> None:
    assert await eventually(lambda: cluster.map.version == version)


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        (NEW, [TOPOLOGY, b"version\r\n", NEW, b"version\r\n"]),
        (OLD, [TOPOLOGY, b"version\r\n", NEW, b"version\r\n", OLD]),
    ],
    ids=["new", "old"],
)
async def test_servers_that_support_only_one_form(form: bytes, asked: list[bytes]) -> None:
    async with scripted(2) as (seed, node):
        seed.lists(3, node, request=form)
        node.replies[b"delete a\r\n"] = b"DELETED\r\n"
        async with client(seed) as cluster:
            assert cluster.map.version == 3
            assert [one.name for one in cluster.map.nodes] == [f"127.0.0.1:{node.port}"]
            assert seed.asked == asked
            assert node.connects == 0
            assert await cluster.delete(b"a")
        assert node.asked == [b"delete a\r\n"]


@pytest.mark.parametrize(
    ("request_", "text", "why"),
    [
        (NEW, b"x\na|b|1\n", "invalid literal for int"),
        (NEW, b"1\n\n", "there must be at least one"),
        (NEW, b"1\na|b\n", "not enough values"),
        (NEW, b"1\na|b|x\n", "not HOST:PORT"),
        (NEW, b"1\n|b|1\n", "not HOST:PORT"),
        (NEW, b"1\na|b|1 a||1\n", "duplicate name"),
        (TOPOLOGY, b"1\n{\n", "Expecting property name"),
        (TOPOLOGY, b"1\n{}\n", "'nodes'"),
        (TOPOLOGY, b"1\n[]\n", "no attribute 'keys'"),
        (
            TOPOLOGY,
            b'1\n{"hash":"x","hash_tag":"","nodes":[{"name":"a","address":"a","weight":1}]}\n',
            "must be one of",
        ),
        (
            TOPOLOGY,
            b'1\n{"hash": "ketama", "hash_tag": "", "replicas": 2, "nodes": []}\n',
            "this client does not support replicas",
        ),
    ],
)
async def test_invalid_node_lists(request_: bytes, text: bytes, why: str) -> None:
    async with scripted(1) as (seed,):
        seed.replies[request_] = b"CONFIG x 0 %d\r\n%b\r\nEND\r\n" % (len(text), text)
        with pytest.raises(DiscoveryError, match=why):
            await client(seed).__aenter__()


async def test_a_seed_that_refuses_says_why() -> None:
    async with scripted(1) as (seed,):
        seed.replies[NEW] = b"SERVER_ERROR nodes on UNIX sockets cannot be listed\r\n"
        seed.replies[OLD] = b"END\r\n"
        with pytest.raises(DiscoveryError, match="SERVER_ERROR nodes on UNIX sockets"):
            await client(seed).__aenter__()


@pytest.mark.slow
async def test_higher_versions_are_followed_and_lower_ones_are_not() -> None:
    async with scripted(3) as (seed, one, other):
        for node in (one, other):
            node.replies[b"delete a\r\n"] = b"DELETED\r\n"
        seed.lists(5, one)
        async with client(seed, interval=0) as cluster:
            assert await cluster.delete(b"a")
            seed.lists(4, other)
            before = len(seed.asked)
            assert await eventually(lambda: len(seed.asked) >= before + 12)
            assert cluster.map.version == 5
            seed.lists(6, one, other)
            await until_version(cluster, 6)
            assert await cluster.delete(b"a")
            seed.lists(7, one)
            await until_version(cluster, 7)
            assert await cluster.delete(b"a")
            assert one.connects == 1  # it was a member all along


async def test_a_request_goes_to_the_new_node_if_the_old_one_cannot_be_reached() -> None:
    async with scripted(2) as (seed, node):
        gone = Scripted()
        gone.port = 1
        node.replies[b"incr a 1\r\n"] = b"2\r\n"
        seed.lists(1, gone)
        async with client(seed) as cluster:
            seed.lists(2, node)
            assert await cluster.incr(b"a") == 2
            assert node.asked == [b"incr a 1\r\n"]


async def test_seeds_are_asked_once_however_many_requests_fail() -> None:
    async with scripted(1) as (seed,):
        gone = Scripted()
        gone.port = 1
        seed.lists(1, gone)
        async with client(seed) as cluster:
            before = seed.asked.count(NEW)
            results = await asyncio.gather(
                *(cluster.get(b"a") for _ in range(50)), return_exceptions=True
            )
            assert {type(result) for result in results} == {NodeUnreachableError}
            # Once for the requests, and once by the refresh task that they woke early.
            assert seed.asked.count(NEW) - before in (1, 2)


async def test_a_server_error_makes_it_ask_again() -> None:
    async with scripted(2) as (seed, node):
        node.replies[b"delete a\r\n"] = b"SERVER_ERROR not mine\r\n"
        seed.lists(1, node)
        async with client(seed) as cluster:
            seed.lists(2, node)
            assert (await cluster.request(b"a", b"delete a\r\n")).line == b"SERVER_ERROR not mine"
            await until_version(cluster, 2)


async def test_a_request_whose_reply_is_lost_is_not_sent_again() -> None:
    async with scripted(2) as (seed, node):
        node.replies[b"incr a 1\r\n"] = None
        seed.lists(1, node)
        async with client(seed) as cluster:
            with pytest.raises(OutcomeUnknownError, match=r"the outcome of 'incr a 1' is unknown"):
                await cluster.incr(b"a")
            assert node.asked == [b"incr a 1\r\n"]
            node.replies[b"incr a 1\r\n"] = b"7\r\n"
            assert await cluster.incr(b"a") == 7
            assert node.connects == 2


async def test_a_removed_node_still_answers_earlier_requests() -> None:
    async with scripted(3) as (seed, old, new):
        old.replies[b"incr a 1\r\n"] = b"1\r\n"
        new.replies[b"incr a 1\r\n"] = b"100\r\n"
        seed.lists(1, old)
        old.held.clear()
        async with client(seed, interval=0) as cluster:
            asked = asyncio.create_task(cluster.incr(b"a"))
            assert await eventually(lambda: bool(old.asked))
            seed.lists(2, new)
            await until_version(cluster, 2)
            assert await cluster.incr(b"a") == 100
            old.held.set()
            assert await asked == 1


async def test_the_nodes_stay_while_no_seed_answers() -> None:
    async with scripted(3) as (seed, second, node):
        node.replies[b"delete a\r\n"] = b"DELETED\r\n"
        seed.lists(1, node)
        async with client(second, seed, interval=0) as cluster:
            seed.replies[NEW] = None
            before = second.asked.count(NEW)
            assert await eventually(lambda: second.asked.count(NEW) >= before + 2)
            assert await cluster.delete(b"a")
            second.lists(2, node)
            await until_version(cluster, 2)


async def test_requests_after_the_end() -> None:
    async with scripted(2) as (seed, node):
        node.replies[b"delete a\r\n"] = b"DELETED\r\n"
        node.held.clear()
        seed.lists(1, node)
        async with client(seed) as cluster:
            asked = asyncio.create_task(cluster.delete(b"a"))
            assert await eventually(lambda: bool(node.asked))
        with pytest.raises(OutcomeUnknownError, match="closed"):
            await asked
        with pytest.raises(NodeUnreachableError, match="closed"):
            await cluster.delete(b"a")
        node.held.set()
