"""Commands on a backend that must be asked: side by side, answered in order, bounded."""

import asyncio
import contextlib
import gc
import random
import socket
import struct

import pytest

from memlite.backends import Item
from memlite.config import Config
from memlite.errors import StorageError
from memlite.server.deferred import DeferredConnection
from memlite.server.server import Server
from memlite.server.sockets import listen_tcp
from tests.unit.slow_backend import SlowBackend


class Fixture:
    """A server on a slow backend, and a connection to it."""

    def __init__(self, server, backend, reader, writer):
        self.server = server
        self.backend = backend
        self.reader = reader
        self.writer = writer

    def send(self, data):
        self.writer.write(data)

    async def expect(self, reply):
        async with asyncio.timeout(10):
            assert await self.reader.readexactly(len(reply)) == reply

    async def ask(self, data, reply):
        self.send(data)
        await self.expect(reply)

    async def until(self, condition):
        """Return once `condition` holds."""
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - it is the server's, which tells nobody
                await asyncio.sleep(0.001)

    async def under_way(self, count):
        await self.until(lambda: self.backend.under_way == count)

    @property
    def connection(self):
        (connection,) = self.server.connections
        return connection


@contextlib.asynccontextmanager
async def serving(make=SlowBackend, **options):
    listeners = listen_tcp(["127.0.0.1"], 0, 100)
    server = Server(Config(**options), listeners, backend=make)
    ready = asyncio.Event()
    task = asyncio.ensure_future(server.run(ready.set))
    await ready.wait()
    port = listeners[0].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    one = Fixture(server, server.backend, reader, writer)
    try:
        yield one
    finally:
        one.backend.gate.set()
        one.backend.after.set()
        writer.close()
        server.request_stop()
        async with asyncio.timeout(20):
            await task
        assert one.backend.closed


@pytest.fixture
async def one():
    async with serving() as one:
        yield one


async def test_reads_go_out_together_and_replies_come_in_order(one):
    for number in range(10):
        await one.backend.store(b"k%d" % number, b"%d" % number)
    one.backend.gate.clear()
    one.send(b"".join(b"get k%d\r\n" % number for number in range(10)))
    await one.under_way(10)
    one.backend.gate.set()
    await one.expect(
        b"".join(b"VALUE k%d 0 1\r\n%d\r\nEND\r\n" % (number, number) for number in range(10))
    )


async def test_a_reply_that_is_ready_waits_for_those_before_it(one):
    one.backend.gate.clear()
    one.send(b"get a\r\nnonsense\r\nversion\r\n")
    await one.under_way(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await one.reader.read(1)
    one.backend.gate.set()
    await one.expect(b"END\r\nERROR\r\nVERSION ")


async def test_a_key_is_asked_for_once_in_a_get(one):
    await one.backend.store(b"a", b"1")
    await one.ask(b"get a a a\r\n", b"VALUE a 0 1\r\n1\r\n" * 3 + b"END\r\n")
    assert one.backend.calls["get"] == 1


class RandomlySlow(SlowBackend):
    """Takes a random time for everything."""

    async def _do(self, name, work):
        await asyncio.sleep(random.random() / 500)
        return await super()._do(name, work)


KEYS = [b"a", b"b", b"c"]


def random_command(choice):
    key = choice(KEYS)
    return choice(
        [
            b"set %b 1 0 1\r\n%d\r\n" % (key, choice(range(10))),
            b"add %b 2 0 1\r\n5\r\n" % key,
            b"append %b 0 0 1\r\n7\r\n" % key,
            b"incr %b %d\r\n" % (key, choice(range(100))),
            b"delete %b\r\n" % key,
            b"get a b c\r\n",
            b"get %b\r\n" % key,
            b"gat 0 %b %b\r\n" % (key, choice(KEYS)),
            b"touch %b 0\r\n" % key,
            b"replace %b 0 0 2 noreply\r\nxx\r\n" % key,
            b"cas %b 0 0 1 99999\r\nx\r\n" % key,
            b"flush_all\r\n",
            b"bad\r\n",
            b"verbosity 0\r\n",
        ]
    )


@pytest.mark.parametrize("seed", range(20))
async def test_replies_are_those_of_the_memory_engine(seed):
    rng = random.Random(seed)
    commands = b"".join(random_command(rng.choice) for _ in range(200)) + b"version\r\n"
    answers = []
    for make in (RandomlySlow, None):
        listeners = listen_tcp(["127.0.0.1"], 0, 100)
        server = Server(Config(), listeners, backend=make)
        ready = asyncio.Event()
        task = asyncio.ensure_future(server.run(ready.set))
        await ready.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", listeners[0].port)
        writer.write(commands)
        async with asyncio.timeout(20):
            answers.append(await reader.readuntil(b"VERSION"))
        writer.close()
        server.request_stop()
        await task
    assert answers[0] == answers[1]


async def test_no_more_is_under_way_than_there_may_be(one):
    one.backend.gate.clear()
    one.send(b"".join(b"get key%d\r\n" % number for number in range(5_000)))
    await asyncio.sleep(0.3)
    assert 64 <= one.backend.most < 64 + 20
    one.backend.gate.set()
    await one.expect(b"END\r\n" * 5_000)
    assert one.backend.most < 64 + 20


async def test_replies_that_wait_for_one_that_takes_long_are_bounded(one):
    await one.backend.store(b"large", b"x" * 1_000_000)
    one.backend.gate.clear()
    one.send(b"get first\r\n")
    await one.under_way(1)
    waiting, one.backend.gate = one.backend.gate, asyncio.Event()
    one.backend.gate.set()
    one.send(b"get large\r\n" * 300)
    await asyncio.sleep(0.5)
    assert one.backend.calls["get"] < 64 + 20
    waiting.set()
    await one.expect(b"END\r\n")
    for _ in range(300):
        await one.expect(b"VALUE large 0 1000000\r\n" + b"x" * 1_000_000 + b"\r\nEND\r\n")


async def test_a_client_that_stops_sending_gets_all_replies(one):
    one.backend.gate.clear()
    one.send(b"set a 0 0 1\r\n1\r\nget a\r\n")
    one.writer.write_eof()
    await one.under_way(1)
    one.backend.gate.set()
    async with asyncio.timeout(10):
        assert await one.reader.read() == b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n"


async def test_what_a_client_that_vanishes_has_begun_is_carried_out(one):
    one.backend.gate.clear()
    one.send(b"set a 0 0 1\r\n1\r\nincr a 5\r\n")
    await one.under_way(1)
    # A reset: an end alone would be no reason not to wait for the replies.
    sock = one.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.writer.transport.abort()
    await one.until(lambda: not one.server.connections)
    one.backend.gate.set()
    await one.until(lambda: not one.server._work)
    assert await one.backend.value(b"a") == b"6"
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, DeferredConnection)]


async def test_quit_behind_others_waits_for_them(one):
    one.backend.gate.clear()
    one.send(b"get a\r\nset a 0 0 1\r\n1\r\nquit\r\nget a\r\n")
    await one.under_way(1)
    one.backend.gate.set()
    async with asyncio.timeout(10):
        assert await one.reader.read() == b"END\r\nSTORED\r\n"


async def test_a_stop_waits_for_commands_under_way():
    async with serving() as one:
        one.backend.gate.clear()
        one.send(b"set a 0 0 1\r\n1\r\n")
        await one.under_way(1)
        one.server.request_stop()
        await asyncio.sleep(0.05)
        assert not one.backend.closed
        one.backend.gate.set()
        async with asyncio.timeout(10):
            assert await one.reader.read() == b"STORED\r\n"


async def test_a_failing_backend(one):
    await one.backend.store(b"a", b"1")
    one.backend.failing = True
    error = b"SERVER_ERROR down\r\n"
    await one.ask(b"get a\r\nget a b\r\nset a 0 0 1\r\n2\r\nincr a 1\r\ndelete a\r\n", error * 5)
    await one.ask(b"set a 0 0 1 noreply\r\n2\r\nflush_all\r\nversion\r\n", error + b"VERSION")
    await one.reader.readline()
    one.backend.failing = False
    await one.ask(b"get a\r\n", b"VALUE a 0 1\r\n1\r\nEND\r\n")
    await one.ask(b"stats backend\r\n", b"STAT url memory://\r\nSTAT storage_errors 7\r\n")


async def test_a_backend_with_a_bug(one, caplog):
    async def broken(key):
        raise ZeroDivisionError

    one.backend.get = broken
    await one.ask(b"get a\r\nversion\r\n", b"SERVER_ERROR internal error\r\nVERSION ")
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "ZeroDivisionError" in (record.exc_text or str(record.exc_info))


async def test_a_race_that_is_lost_is_run_again_and_counted_once(one):
    await one.backend.store(b"n", b"5")
    one.backend.after.clear()
    one.send(b"incr n 1\r\n")
    await one.under_way(1)
    await one.backend.store(b"n", b"10")
    one.backend.after.set()
    await one.expect(b"11\r\n")
    counters = one.server.counters
    assert (counters.incr_hits, counters.cmd_set) == (1, 0)
    assert one.backend.calls["get"] == 2


async def test_one_that_always_loses_is_told_so(one, monkeypatch):
    monkeypatch.setattr("memlite.engine.store._PATIENCE", 0.05)
    await one.backend.store(b"n", b"5")
    get = one.backend.get

    async def always_changed(key):
        item = await get(key)
        await one.backend.store(b"n", b"5")
        return item

    one.backend.get = always_changed
    await one.ask(b"incr n 1\r\n", b"SERVER_ERROR too many changes of this key at once\r\n")
    assert one.server.counters.incr_hits == 0


async def test_clients_that_change_one_key_take_turns(one):
    await one.backend.store(b"n", b"0")
    others = [
        await asyncio.open_connection("127.0.0.1", one.server.listeners[0].port) for _ in range(20)
    ]
    for _, writer in others:
        writer.write(b"incr n 1\r\n")
    numbers = sorted([int(await reader.readline()) for reader, _ in others])
    for _, writer in others:
        writer.close()
    assert numbers == list(range(1, 21))
    assert one.backend.calls["put"] == 20
    gc.collect()
    assert not one.server.engine._locks


async def test_gats_shows_the_unique_that_was_written(one):
    await one.backend.store(b"a", b"1")
    one.send(b"gats 0 a\r\ngets a\r\n")
    shown = await one.reader.readuntil(b"END\r\n")
    assert await one.reader.readuntil(b"END\r\n") == shown


async def test_latency_is_measured_until_the_reply_is_there(one, monkeypatch):
    monkeypatch.setattr("memlite.server.instruments.LatencySampler.INTERVAL", 1)
    one.backend.gate.clear()
    one.send(b"set a 0 0 1\r\n1\r\n")
    await one.under_way(1)
    await asyncio.sleep(0.05)
    one.backend.gate.set()
    await one.expect(b"STORED\r\n")
    assert one.server.sampler.histograms["store"].maximum > 40_000_000


async def test_errors_of_the_memory_engine_are_the_same(one):
    reply = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
    await one.ask(b"set a 0 0 1\r\nx\r\nincr a 1\r\n", b"STORED\r\n" + reply)


async def test_a_connection_to_a_backend_is_a_deferred_one(one):
    await one.ask(b"get a\r\n", b"END\r\n")
    assert isinstance(one.connection, DeferredConnection)
    assert StorageError("two\r\nlines").reply == b"SERVER_ERROR two lines\r\n"
    assert Item.like(Item.of(b"k", b"v", 3)).wire == b"VALUE k 3 1\r\nv\r\n"
