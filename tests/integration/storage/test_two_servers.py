"""Two servers on one store: visibility of each other's changes, and outages."""

import asyncio
import contextlib
import itertools

import pytest

from memlite.config import Config
from memlite.server.connections.listeners import listen_tcp
from memlite.server.server import Server
from tests.unit.backends.slow_backend import SlowBackend

MEGABYTE = 1024 * 1024
TTL = 30


class Shared(SlowBackend):
    """A store for several servers; a server's close has no effect on it."""

    async def close(self):
        pass


class Both:
    """Two servers on one store with one clock, and a client of each."""

    def __init__(self):
        self.store = Shared()
        self.servers = []
        self.clients = []

    async def start(self, stack, **options):
        listeners = listen_tcp(["127.0.0.1"], 0, 100)
        server = Server(
            Config(**options), listeners, clock=self.store.clock, backend=lambda context: self.store
        )
        ready = asyncio.Event()
        task = asyncio.ensure_future(server.run(ready.set))
        await ready.wait()
        stack.push_async_callback(asyncio.wait, [task])
        stack.callback(server.request_stop)
        reader, writer = await asyncio.open_connection("127.0.0.1", listeners[0].port)
        stack.callback(writer.close)
        self.servers.append(server)
        self.clients.append((reader, writer))

    async def ask(self, which, request, lines=1):
        reader, writer = self.clients[which]
        writer.write(request + b"\r\n")
        async with asyncio.timeout(60):
            return b"".join([await reader.readline() for _ in range(lines)])

    async def get(self, which, key=b"k"):
        head = await self.ask(which, b"get " + key)
        if not head.startswith(b"VALUE"):
            return head
        reader, _ = self.clients[which]
        return (await reader.readuntil(b"\r\nEND\r\n"))[: -len(b"\r\nEND\r\n")]

    async def set(self, which, value, key=b"k"):
        return await self.ask(which, b"set %b 0 0 %d\r\n%b" % (key, len(value), value))

    def wait(self, seconds):
        self.store.seconds += seconds


@contextlib.asynccontextmanager
async def both(**options):
    two = Both()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            await two.start(stack, **{"near_cache": 8 * MEGABYTE, "near_cache_ttl": TTL, **options})
        try:
            yield two
        finally:
            two.store.failing = two.store.losing = False
            two.store.gate.set()


async def test_changes_by_the_other_server_are_seen_within_the_bound():
    async with both() as two:
        await two.set(0, b"1")
        assert await two.get(1) == b"1"
        await two.set(0, b"2")
        assert await two.get(0) == b"2"  # own changes at once
        two.wait(TTL - 0.1)
        assert await two.get(1) == b"1"
        two.wait(0.2)
        assert await two.get(1) == b"2"


async def test_conditional_changes_never_use_copies():
    async with both() as two:
        await two.set(0, b"1")
        assert await two.get(1) == b"1"
        await two.set(0, b"5")
        assert await two.ask(1, b"incr k 1") == b"6\r\n"
        assert await two.get(1) == b"6"
        assert await two.get(0) == b"5"  # a copy
        head = await two.ask(0, b"gets k", 3)
        assert head.split(b"\r\n")[1] == b"6"
        unique = head.split()[4]
        assert await two.ask(1, b"append k 0 0 1\r\n7") == b"STORED\r\n"
        assert await two.ask(0, b"cas k 0 0 1 %b\r\nx" % unique) == b"EXISTS\r\n"
        assert await two.ask(0, b"delete k") == b"DELETED\r\n"
        assert await two.ask(1, b"add k 0 0 1\r\n9") == b"STORED\r\n"
        assert await two.ask(0, b"add k 0 0 1\r\n9") == b"NOT_STORED\r\n"


async def test_no_increment_on_two_servers_is_lost():
    async with both() as two:
        await two.set(0, b"0")

        async def count(which):
            return [int(await two.ask(which, b"incr k 1")) for _ in range(30)]

        numbers = await asyncio.gather(count(0), count(1))
        assert sorted(itertools.chain(*numbers)) == list(range(1, 61))
        assert sum(server.counters.incr_hits for server in two.servers) == 60


async def test_deferred_sets_appear_when_stored_and_conditional_ones_at_once():
    async with both(write_back=True) as two:
        await two.set(0, b"1")
        assert await two.get(0) == b"1"
        assert await two.get(1) == b"END\r\n"
        assert await two.ask(0, b"incr k 1") == b"2\r\n"
        assert await two.get(1) == b"2"
        await two.set(0, b"3")
        two.wait(1.5)
        async with asyncio.timeout(60):
            while await two.store.value(b"k") != b"3":  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("write_back", [False, True])
async def test_an_outage(write_back):
    """Requests that need the store fail, others get copies. All writes are stored afterwards."""
    async with both(write_back=write_back) as two:
        for number in range(20):
            assert await two.set(0, b"before", b"k%d" % number) == b"STORED\r\n"
            await two.get(0, b"k%d" % number)
        acknowledged = {b"k%d" % number: b"before" for number in range(20)}
        unsure = {}
        if write_back:
            two.wait(1.5)
            await asyncio.sleep(0.3)
        two.store.failing = True
        for second in range(10):
            two.wait(1)
            for number in range(10):
                key, value = b"k%d" % number, b"during%d" % second
                reply = await two.set(0, value, key)
                if reply == b"STORED\r\n":
                    acknowledged[key] = value
                    unsure.pop(key, None)
                else:
                    assert reply == b"SERVER_ERROR down\r\n"
                    unsure.setdefault(key, set()).add(value)
                assert (await two.ask(0, b"incr %b 1" % key)).startswith(b"SERVER_ERROR")
            for number in range(10, 20):
                assert await two.get(0, b"k%d" % number) == b"before"
            await asyncio.sleep(0.01)
        if write_back:
            assert unsure  # after some seconds clients get errors
        two.store.failing = False
        two.wait(1)
        assert await two.set(0, b"after", b"new") == b"STORED\r\n"
        two.wait(2)
        for key, value in acknowledged.items():
            allowed = {value, *unsure.get(key, ())}
            assert await two.get(0, key) in allowed
            async with asyncio.timeout(60):
                while await two.store.value(key) not in allowed:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while two.servers[0].scheduler._tasks:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
