"""The binary protocol on a backend that must be awaited: ordered replies, with its versions."""

import asyncio
import random
from dataclasses import replace

import pytest

from memlite.config import Config
from memlite.protocol.packets import Opcode, Status
from memlite.server.connections.listeners import listen_tcp
from memlite.server.server import Server
from tests.support.packets import HEADER, NOOP, Reply, count, packet, replies, store, touch
from tests.unit.server.execution.test_pipelined import RandomlySlow, serving


async def answers(one, number):
    """Return this many replies."""
    found = []
    async with asyncio.timeout(60):
        for _ in range(number):
            head = await one.reader.readexactly(HEADER.size)
            found += replies(head + await one.reader.readexactly(HEADER.unpack(head)[6]))
    return found


async def ask(one, *requests):
    """Send requests that all have a reply, and return the replies."""
    one.send(b"".join(requests))
    return await answers(one, len(requests))


@pytest.fixture
async def one():
    async with serving() as one:
        yield one


async def test_reads_are_concurrent_and_replies_in_order(one):
    for number in range(10):
        await one.backend.store(b"k%d" % number, b"%d" % number)
    one.backend.gate.clear()
    one.send(b"".join(packet(Opcode.GETKQ, b"k%d" % number) for number in range(10)) + NOOP)
    await one.under_way(10)
    one.backend.gate.set()
    *hits, end = await answers(one, 11)
    assert [hit.value for hit in hits] == [b"%d" % number for number in range(10)]
    assert end == Reply(Opcode.NOOP)


async def test_the_cas_unique_of_a_reply_is_the_backend_s_version(one):
    await one.backend.store(b"a", b"1")  # so that versions differ from those of a local counter
    for request in (
        store(Opcode.SET, b"a", b"1"),
        store(Opcode.REPLACE, b"a", b"1"),
        packet(Opcode.APPEND, b"a", value=b"2"),
        count(Opcode.INCREMENT, b"a", 1),
        touch(Opcode.TOUCH, b"a", 100),
        touch(Opcode.GAT, b"a", 100),
        packet(Opcode.GET, b"a"),
        count(Opcode.INCREMENT, b"new", 1, 7),
    ):
        key = b"new" if b"new" in request else b"a"
        (reply,) = await ask(one, request)
        item = await one.backend.get(key)
        assert reply.cas == item.version != 0, request
    first, again, late = await ask(
        one,
        store(Opcode.SET, b"a", b"1", cas=(await one.backend.get(b"a")).version),
        store(Opcode.ADD, b"b", b"1"),
        store(Opcode.SET, b"a", b"1", cas=1),
    )
    assert (first.status, again.status, late.status) == (0, 0, Status.EXISTS)


async def test_a_store_without_cas_reads_nothing(one):
    await ask(one, store(Opcode.SET, b"a", b"1"), store(Opcode.SET, b"k with blanks", b"1"))
    assert one.backend.calls == {"put": 2}


async def test_failures_are_answered_to_quiet_commands_too(one):
    one.backend.failing = True
    requests = [
        packet(Opcode.GET, b"a", opaque=1),
        packet(Opcode.GETQ, b"a", opaque=2),
        store(Opcode.SETQ, b"b", b"1", opaque=3),
        count(Opcode.INCREMENTQ, b"c", 1, 1, opaque=4),
        packet(Opcode.DELETEQ, b"d", opaque=5),
        touch(Opcode.GATKQ, b"e", 1, opaque=6),
        packet(Opcode.FLUSHQ, opaque=7),
    ]
    found = await ask(one, *requests)
    assert [reply.opaque for reply in found] == [1, 2, 3, 4, 5, 6, 7]
    assert {(reply.status, reply.value) for reply in found} == {(Status.INTERNAL_ERROR, b"down")}
    one.backend.failing = False
    assert await ask(one, NOOP) == [Reply(Opcode.NOOP)]
    assert one.server.counters.storage_errors == 7


async def test_quit_waits_for_earlier_commands(one):
    one.backend.gate.clear()
    one.send(store(Opcode.SET, b"a", b"1") + packet(Opcode.QUIT) + NOOP)
    await one.under_way(1)
    one.backend.gate.set()
    async with asyncio.timeout(60):
        found = replies(await one.reader.read())
    assert [reply.opcode for reply in found] == [Opcode.SET, Opcode.QUIT]


async def test_fatal_errors_wait_for_earlier_commands(one):
    one.backend.gate.clear()
    one.send(packet(Opcode.GET, b"a") + packet(Opcode.GET) + NOOP)
    await one.under_way(1)
    one.backend.gate.set()
    async with asyncio.timeout(60):
        found = replies(await one.reader.read())
    assert [reply.status for reply in found] == [Status.NOT_FOUND, Status.INVALID]


async def test_a_command_that_loses_a_race_is_retried(one):
    await one.backend.store(b"n", b"1")
    put = one.backend.put
    raced = []

    async def put_late(record, replacing):
        if not raced:
            raced.append(record.key)
            await one.backend.store(b"n", b"10")
        return await put(record, replacing)

    one.backend.put = put_late
    (reply,) = await ask(one, count(Opcode.INCREMENT, b"n", 1))
    assert reply.number == 11
    assert reply.cas == (await one.backend.get(b"n")).version
    assert one.server.counters.incr_hits == 1


async def test_a_stale_cas_unique_from_a_near_cache_fails(one):
    async with serving(near_cache=2**20, near_cache_ttl=100) as near:
        await ask(near, store(Opcode.SET, b"a", b"1"))
        await near.backend.store(b"a", b"another server's")
        (shown,) = await ask(near, packet(Opcode.GET, b"a"))
        assert shown.value == b"1"
        (late,) = await ask(near, store(Opcode.SET, b"a", b"2", cas=shown.cas))
        assert late.status == Status.EXISTS


async def test_items_held_by_write_back_have_a_cas_unique_that_fails_once():
    async with serving(write_back=True) as one:
        (stored,) = await ask(one, store(Opcode.SET, b"a", b"1"))
        (shown,) = await ask(one, packet(Opcode.GET, b"a"))
        assert one.backend.calls["put"] == 0
        assert stored.cas == shown.cas == 2**64 - 1
        (late,) = await ask(one, store(Opcode.SET, b"a", b"2", cas=shown.cas))
        assert late.status == Status.EXISTS
        # Held changes were stored for that.
        (shown,) = await ask(one, packet(Opcode.GET, b"a"))
        (changed,) = await ask(one, store(Opcode.SET, b"a", b"2", cas=shown.cas))
        assert changed.status == Status.SUCCESS


KEYS = [b"a", b"b", b"c c"]


def random_command(choice):
    key = choice(KEYS)
    return choice(
        [
            store(choice([Opcode.SET, Opcode.SETQ, Opcode.ADD, Opcode.REPLACEQ]), key, b"1", 5),
            store(Opcode.SET, key, b"1", cas=99999),
            packet(Opcode.APPEND, key, value=b"7"),
            count(Opcode.INCREMENT, key, choice(range(100)), 3),
            count(Opcode.DECREMENTQ, key, 1, 3, 0xFFFFFFFF),
            packet(choice([Opcode.DELETE, Opcode.DELETEQ]), key),
            packet(choice([Opcode.GET, Opcode.GETQ, Opcode.GETK]), key),
            touch(choice([Opcode.TOUCH, Opcode.GATKQ]), key, 0),
            packet(Opcode.FLUSH),
            packet(Opcode.STAT, b"sizes"),
            packet(0x50, b"bad"),
            NOOP,
        ]
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"near_cache": 2**20}, {"write_back": True}, {"near_cache": 2**20, "write_back": True}],
    ids=["plain", "near", "write-back", "both"],
)
@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))]
)
async def test_replies_are_those_of_the_memory_engine(seed, options):
    rng = random.Random(seed)
    commands = b"".join(random_command(rng.choice) for _ in range(200)) + packet(Opcode.QUIT)
    found = []
    for make in (RandomlySlow, None):
        listeners = listen_tcp(["127.0.0.1"], 0, 100)
        server = Server(Config(**options if make else {}), listeners, backend=make)
        ready = asyncio.Event()
        task = asyncio.ensure_future(server.run(ready.set))
        await ready.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", listeners[0].port)
        writer.write(commands)
        async with asyncio.timeout(60):
            # With a backend, a new expiry means a new version.
            some = [replace(one, cas=bool(one.cas)) for one in replies(await reader.read())]
            found.append(some)
        writer.close()
        server.request_stop()
        await task
    assert found[0] == found[1]
    assert len(found[0]) > 50
