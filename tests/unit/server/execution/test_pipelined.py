"""Commands on a backend that must be awaited: concurrent, answered in order, limited."""

import asyncio
import contextlib
import gc
import inspect
import random
import socket
import struct
import sys
import weakref

import pytest

from memlite.backends import ANY
from memlite.config import Config, ExtendedOptions
from memlite.core.errors import StorageError, VersionConflict
from memlite.core.version import SERVER_VERSION
from memlite.protocol.replies import error_line
from memlite.server import lifecycle
from memlite.server.connections.connection import Connection
from memlite.server.connections.listeners import listen_tcp
from memlite.server.execution.pipelined import StoreExecutor
from memlite.server.server import Server
from tests.unit.backends.slow_backend import SlowBackend, settle


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
        async with asyncio.timeout(60):
            assert await self.reader.readexactly(len(reply)) == reply

    async def ask(self, data, reply):
        self.send(data)
        await self.expect(reply)

    def vanish(self):
        """Reset the connection; after a mere half-close the server would still send replies."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until(self, condition):
        """Wait until `condition` holds."""
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - the server does not signal it
                await asyncio.sleep(0.001)

    async def under_way(self, count):
        await self.until(lambda: self.backend.under_way == count)

    @property
    def connection(self):
        (connection,) = self.server.register.connections
        return connection


def innermost(backend):
    """Return the backend underneath the near cache and write-back."""
    while hasattr(backend, "inner") and not isinstance(backend, SlowBackend):
        backend = backend.inner
    return backend


@contextlib.asynccontextmanager
async def serving(make=SlowBackend, **options):
    listeners = listen_tcp(["127.0.0.1"], 0, 100)
    server = Server(Config(**options), listeners, backend=make)
    ready = asyncio.Event()
    task = asyncio.ensure_future(server.run(ready.set))
    await ready.wait()
    port = listeners[0].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    one = Fixture(server, innermost(server.backend), reader, writer)
    try:
        yield one
    finally:
        one.backend.gate.set()
        one.backend.after.set()
        writer.close()
        server.request_stop()
        async with asyncio.timeout(60):
            await task
        assert one.backend.closed


@pytest.fixture
async def one():
    async with serving() as one:
        yield one


async def test_reads_are_concurrent_and_replies_in_order(one):
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


async def test_a_get_reads_each_key_once(one):
    await one.backend.store(b"a", b"1")
    await one.ask(b"get a a a\r\n", b"VALUE a 0 1\r\n1\r\n" * 3 + b"END\r\n")
    assert one.backend.calls["get"] == 1


class RandomlySlow(SlowBackend):
    """A backend with random delays."""

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


@pytest.mark.parametrize(
    "options",
    [{}, {"near_cache": 2**20}, {"write_back": True}, {"near_cache": 2**20, "write_back": True}],
    ids=["plain", "near", "write-back", "both"],
)
@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))]
)
async def test_replies_are_those_of_the_memory_engine(seed, options):
    rng = random.Random(seed)
    commands = b"".join(random_command(rng.choice) for _ in range(200)) + b"version\r\n"
    answers = []
    for make in (RandomlySlow, None):
        listeners = listen_tcp(["127.0.0.1"], 0, 100)
        server = Server(Config(**options if make else {}), listeners, backend=make)
        ready = asyncio.Event()
        task = asyncio.ensure_future(server.run(ready.set))
        await ready.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", listeners[0].port)
        writer.write(commands)
        async with asyncio.timeout(60):
            answers.append(await reader.readuntil(b"VERSION"))
        writer.close()
        server.request_stop()
        await task
    assert answers[0] == answers[1]


async def test_commands_in_progress_are_limited(one):
    one.backend.gate.clear()
    one.send(b"".join(b"get key%d\r\n" % number for number in range(5_000)))
    await one.until(lambda: one.backend.most >= 64)
    await asyncio.sleep(0.3)
    assert one.backend.most < 64 + 20
    one.backend.gate.set()
    await one.expect(b"END\r\n" * 5_000)
    assert one.backend.most < 64 + 20


async def fill(one, values):
    for number, value in enumerate(values):
        await one.backend.store(b"k%d" % number, value)


def gets(order):
    return b"".join(b"get k%d\r\n" % number for number in order)


def items(order, values):
    return b"".join(
        b"VALUE k%d 0 %d\r\n%b\r\nEND\r\n" % (number, len(values[number]), values[number])
        for number in order
    )


def held_of(connection):
    return connection.executor._room.waiting + connection.unread


async def test_replies_that_a_client_does_not_read_are_limited(one):
    """Items that do not fit are read again when the client reads; replies stay in order."""
    values = [b"%c" % (97 + number) * 1_000_000 for number in range(20)]
    await fill(one, values)
    order = [number % 20 for number in range(60)]
    one.writer.transport.pause_reading()
    one.send(gets(order))
    connection, most = one.connection, 0
    await one.until(lambda: one.backend.calls["get"] >= 15)
    for _ in range(200):  # iterations in which further replies could arrive
        await asyncio.sleep(0.001)
        most = max(most, held_of(connection))
    assert most < 12_000_000
    one.writer.transport.resume_reading()
    await one.expect(items(order, values))
    assert not connection.executor.pending
    # However often a read was repeated, it counts once.
    assert one.backend.calls["get"] > len(order)
    assert (one.server.counters.cmd_get, one.server.counters.get_hits) == (60, 60)


async def test_the_first_reply_is_sent_when_later_ones_have_used_all_room(one):
    values = [b"x" * 900_000 for _ in range(30)]
    await fill(one, values)
    one.backend.gate.clear()
    one.send(b"get slow\r\n")
    await one.under_way(1)
    one.send(gets(range(30)))
    await one.under_way(31)
    slow, one.backend.gate = one.backend.gate, asyncio.Event()
    one.backend.gate.set()
    slow.set()
    await one.expect(b"END\r\n" + items(range(30), values))


async def test_a_client_that_leaves_replies_unread_and_goes(one):
    values = [b"x" * 1_000_000 for _ in range(30)]
    await fill(one, values)
    one.writer.transport.pause_reading()
    one.send(gets(range(30)))
    executor = one.connection.executor
    await one.until(lambda: executor._room.short)
    one.vanish()
    await one.until(lambda: not executor.pending)


async def test_replies_waiting_for_a_slow_one_are_limited(one):
    await one.backend.store(b"large", b"x" * 1_000_000)
    one.backend.gate.clear()
    one.send(b"get first\r\n")
    await one.under_way(1)
    await settle()  # now waiting at the gate
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
    async with asyncio.timeout(60):
        assert await one.reader.read() == b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n"


async def test_commands_of_a_client_that_vanishes_are_carried_out(one):
    one.backend.gate.clear()
    one.send(b"set a 0 0 1\r\n1\r\nincr a 5\r\n")
    await one.under_way(1)
    one.vanish()
    await one.until(lambda: not one.server.register.connections)
    one.backend.gate.set()
    await one.until(lambda: not one.server.scheduler._tasks)
    assert await one.backend.value(b"a") == b"6"
    gc.collect()
    assert not [thing for thing in gc.get_objects() if type(thing) is Connection]


async def test_waiting_gets_are_not_begun_once_their_client_has_gone(one):
    one.backend.gate.clear()
    one.send(b"get a\r\n" * 3)
    await one.under_way(1)
    one.vanish()
    await one.until(lambda: not one.server.register.connections)
    one.backend.gate.set()
    await one.until(lambda: not one.server.scheduler._tasks)
    assert one.backend.calls["get"] == 1


async def test_a_reply_is_not_kept_once_it_is_sent(one):
    await one.backend.store(b"a", b"x" * 10_000)
    one.send(b"get a\r\n")
    await one.reader.readuntil(b"END\r\n")
    (connection,) = one.server.register.connections
    assert connection.executor._commands.out == []
    assert connection.out == []


async def test_quit_waits_for_earlier_commands(one):
    one.backend.gate.clear()
    one.send(b"get a\r\nset a 0 0 1\r\n1\r\nquit\r\nget a\r\n")
    await one.under_way(1)
    one.backend.gate.set()
    async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
            assert await one.reader.read() == b"STORED\r\n"


async def test_a_stop_does_not_wait_for_ever_for_a_store_that_does_not_answer(monkeypatch, caplog):
    monkeypatch.setattr(lifecycle, "_DRAIN_SECONDS", 0.01)
    monkeypatch.setattr(lifecycle, "_SETTLE_SECONDS", 0.01)
    async with serving() as one:
        one.backend.gate.clear()
        one.send(b"get a\r\nset a 0 0 1\r\n1\r\nincr a 1\r\nflush_all\r\nget a\r\n")
        await one.under_way(1)
        one.server.request_stop()
        await one.until(lambda: one.backend.closed)
        assert one.backend.calls.keys() == {"get"}
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_second_request_to_stop_gives_up_on_a_store_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(lifecycle, "_SETTLE_SECONDS", 3600)
    for drain in (0.01, 3600):  # the second comes while the first waits for the store, or earlier
        monkeypatch.setattr(lifecycle, "_DRAIN_SECONDS", drain)
        async with serving() as one:
            one.backend.gate.clear()
            one.send(b"get a\r\n")
            await one.under_way(1)
            one.server.request_stop()
            if drain < 1:
                await one.until(lambda: not one.server.register.connections)
            assert not one.backend.closed
            one.server.request_stop()
            await one.until(lambda: one.backend.closed)


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


async def test_a_command_that_loses_a_race_is_retried_and_counted_once(one):
    await one.backend.store(b"n", b"5")
    one.backend.after.clear()
    one.send(b"incr n 1\r\n")
    await one.under_way(1)
    await settle()  # it has read
    await one.backend.store(b"n", b"10")
    one.backend.after.set()
    await one.expect(b"11\r\n")
    counters = one.server.counters
    assert (counters.incr_hits, counters.cmd_set) == (1, 0)
    assert one.backend.calls["get"] == 2


async def test_a_command_that_always_loses_fails(one, monkeypatch):
    monkeypatch.setattr("memlite.engine.store._PATIENCE", 0.05)
    await one.backend.store(b"n", b"5")
    get = one.backend.get

    async def always_changed(key):
        item = await get(key)
        await one.backend.store(b"n", b"5")
        return item

    one.backend.get = always_changed
    await one.ask(b"incr n 1\r\n", b"SERVER_ERROR too many concurrent changes to this key\r\n")
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


async def test_latency_is_measured_until_the_reply_is_ready(one):
    one.server.counters.until_slow_sample = 1
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


async def test_connections_to_a_backend_use_the_pipelined_executor(one):
    await one.ask(b"get a\r\n", b"END\r\n")
    assert isinstance(one.connection.executor, StoreExecutor)
    assert error_line(StorageError("two\r\nlines")) == b"SERVER_ERROR two lines\r\n"


# Order


class Peekable(SlowBackend):
    """A backend whose items can be peeked at but may change at any time."""

    def peek(self, key):
        return self.inner.peek(key)


async def test_conflicts_of_peeked_items_are_counted_once():
    async with serving(Peekable) as one, asyncio.timeout(60):
        await one.backend.store(b"n", b"0")
        others = [
            await asyncio.open_connection("127.0.0.1", one.server.listeners[0].port)
            for _ in range(10)
        ]
        for _, writer in others:
            writer.write(b"incr n 1\r\n" * 10)
        numbers = []
        for reader, _ in others:
            numbers += [int(await reader.readline()) for _ in range(10)]
        for _, writer in others:
            writer.close()
        assert sorted(numbers) == list(range(1, 101))
        assert one.backend.calls["put"] > 100  # some failed and were retried
        counters = one.server.counters
        assert (counters.incr_hits, counters.incr_misses) == (100, 0)


async def test_sets_wait_for_a_change_under_way_on_their_key(one):
    """Otherwise sets that are answered early would make the change lose repeatedly."""
    await one.backend.store(b"n", b"5")
    one.backend.after.clear()
    one.send(b"incr n 1\r\n")
    await one.under_way(1)
    reader, writer = await asyncio.open_connection("127.0.0.1", one.server.listeners[0].port)
    writer.write(b"set n 0 0 1\r\n1\r\nset other 0 0 1\r\n1\r\n")
    await one.under_way(2)  # the other key's
    assert one.backend.calls["put"] == 1
    one.backend.after.set()
    await one.expect(b"6\r\n")
    assert await reader.readexactly(16) == b"STORED\r\n" * 2
    assert await one.backend.value(b"n") == b"1"
    writer.close()
    assert not one.server.engine._locks


@pytest.mark.parametrize("write_back", [False, True])
async def test_a_key_that_is_set_all_the_time_can_be_deleted(write_back):
    async with serving(write_back=write_back) as one:
        stop = False

        async def set_it():
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", one.server.listeners[0].port
            )
            while not stop:
                writer.write(b"set k 0 0 1\r\n1\r\n")
                assert await reader.readline() == b"STORED\r\n"
            writer.close()

        setting = [asyncio.ensure_future(set_it()) for _ in range(5)]
        await asyncio.sleep(0.05)
        for _ in range(5):
            async with asyncio.timeout(60):
                one.send(b"delete k\r\nincr k 1\r\ngets k\r\n")
                assert await one.reader.readline() in (b"DELETED\r\n", b"NOT_FOUND\r\n")
                assert (await one.reader.readline())[:1].isalnum()
                await one.reader.readuntil(b"END\r\n")
        stop = True
        await asyncio.gather(*setting)


async def test_gats_of_one_key_twice_shows_its_unique_twice(one):
    await one.backend.store(b"a", b"1")
    one.send(b"gats 0 a a\r\ngets a a\r\n")
    shown = await one.reader.readuntil(b"END\r\n")
    assert await one.reader.readuntil(b"END\r\n") == shown
    assert one.backend.calls["put"] == 1


async def test_commands_after_a_second_flush_wait_for_it(one):
    one.backend.gate.clear()
    one.send(b"set a 0 0 1\r\n1\r\nflush_all\r\nset a 0 0 1\r\n2\r\nflush_all\r\nget a\r\n")
    await one.under_way(1)
    one.send(b"set a 0 0 1\r\n3\r\nget a\r\n")
    one.backend.gate.set()
    await one.expect(
        b"STORED\r\nOK\r\nSTORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\n3\r\nEND\r\n"
    )


# The end of a connection


async def test_a_client_that_stops_sending_gets_the_replies_that_are_ready_at_once(one):
    one.send(b"version\r\nget a\r\n" * 50)
    one.writer.write_eof()
    async with asyncio.timeout(60):
        received = await one.reader.read()
    assert received.count(b"VERSION") == received.count(b"END\r\n") == 50


async def test_commands_after_quit_are_not_carried_out(one):
    one.backend.gate.clear()
    one.send(b"get a\r\nquit\r\n")
    await one.under_way(1)
    one.send(b"set a 0 0 1\r\n1\r\n")
    await asyncio.sleep(0.05)
    one.backend.gate.set()
    async with asyncio.timeout(60):
        assert await one.reader.read() == b"END\r\n"
    assert one.backend.calls["put"] == 0


async def test_commands_before_a_violation_are_answered(one):
    one.backend.gate.clear()
    one.send(b"get a\r\n" + b"x" * 5_000)
    await one.under_way(1)
    one.send(b"\r\nset a 0 0 1\r\n1\r\n")
    one.backend.gate.set()
    async with asyncio.timeout(60):
        assert await one.reader.read() == b"END\r\n"
    assert one.backend.calls["put"] == 0


async def test_connections_are_freed_without_the_garbage_collector(one):
    await one.ask(b"get a\r\nset a 0 0 1\r\n1\r\nversion\r\n", b"END\r\nSTORED\r\nVERSION ")
    gc.collect()
    gc.disable()
    try:
        commands = weakref.ref(one.connection.executor)
        one.writer.close()
        await one.until(lambda: not one.server.register.connections)
        await one.until(lambda: commands() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "command",
    [
        b"get a", b"stats", b"stats conns", b"flush_all", b"quit", b"gat 0 a b", b"watch",
        b"lru_crawler metadump all", b"shutdown",
    ],
)  # fmt: skip
async def test_a_client_may_vanish_after_any_command(one, command, caplog):
    one.backend.gate.clear()
    one.send(b"get slow\r\nset b 0 0 1\r\n1\r\n" + command + b"\r\nget a\r\n")
    await one.until(lambda: one.backend.under_way >= 2)
    one.vanish()
    await one.until(lambda: not one.server.register.connections)
    one.backend.gate.set()
    await one.until(lambda: not one.server.scheduler._tasks)
    assert one.backend.under_way == 0
    assert not len(one.server.administration.watchers)
    assert not one.server.administration.dumps.running
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_waiting_for_the_backend_is_not_idle():
    async with serving(extended=ExtendedOptions({"idle_timeout": 1})) as one:
        one.backend.gate.clear()
        one.send(b"get a\r\n")
        await one.under_way(1)
        await asyncio.sleep(3.2)
        assert one.server.counters.idle_kicks == 0
        one.backend.gate.set()
        await one.expect(b"END\r\n")
        async with asyncio.timeout(60):
            assert await one.reader.read() == b""
        assert one.server.counters.idle_kicks == 1


# Bounds


async def test_keys_of_one_command_are_read_in_batches(one):
    line = b" ".join(b"key%d" % number for number in range(3_000))
    for command in (b"get ", b"gets "):
        await one.ask(command + line + b"\r\n", b"END\r\n")
    assert one.backend.most <= 256
    assert one.backend.calls["get"] == 6_000


async def test_commands_with_many_keys_count_as_many(one):
    one.backend.gate.clear()
    line = b"get " + b" ".join(b"key%d" % number for number in range(100)) + b"\r\n"
    one.send(line * 200)
    await one.until(lambda: one.backend.most)
    await asyncio.sleep(0.3)
    assert one.backend.most <= 100 * 20  # one turn of the parser
    one.backend.gate.set()
    await one.expect(b"END\r\n" * 200)
    assert one.server.engine.counters.get_misses == 20_000


async def test_nothing_is_read_for_a_peer_that_has_stopped_reading(one):
    await one.backend.store(b"large", b"x" * 1_000_000)
    one.writer.transport.pause_reading()
    one.send(b"get large\r\n" * 1_000)
    await one.until(lambda: one.connection._unsent)
    await asyncio.sleep(0.7)
    held = sum(map(len, one.connection._unsent))
    assert one.backend.calls["get"] < 120
    assert held < 90 * 1_000_100
    one.writer.transport.resume_reading()
    for _ in range(1_000):
        await one.expect(b"VALUE large 0 1000000\r\n" + b"x" * 1_000_000 + b"\r\nEND\r\n")


async def test_10_000_quiet_sets_are_limited_as_well(one):
    one.backend.gate.clear()
    one.send(b"".join(b"set k%d 0 0 1 noreply\r\nx\r\n" % n for n in range(10_000)))
    await asyncio.sleep(0.3)
    assert one.backend.most < 64 + 20
    one.backend.gate.set()
    await one.ask(b"get k9999\r\n", b"VALUE k9999 0 1\r\nx\r\nEND\r\n")
    assert one.backend.calls["put"] == 10_000
    executor = one.connection.executor
    assert not executor._last
    assert executor._keys == executor._room.waiting == 0


async def test_administrative_commands_take_a_turn_each(one):
    """A connection gets one turn at a time, however many of its commands are waiting."""
    one.send(b"version\r\n" * 500)
    at_once = 0
    for _ in range(600):
        before = one.server.counters.bytes_written
        await asyncio.sleep(0)
        at_once = max(at_once, one.server.counters.bytes_written - before)
    reply = b"VERSION " + SERVER_VERSION.encode() + b"\r\n"
    await one.expect(reply * 500)
    assert at_once <= 2 * len(reply)
    assert one.server.counters.conn_yields == 499


async def test_too_many_connections_are_rejected():
    async with serving(conn_limit=1) as one:
        await one.ask(b"get a\r\n", b"END\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", one.server.listeners[0].port)
        assert (await reader.read()).startswith(b"ERROR Too many open connections")
        writer.close()
        await writer.wait_closed()


# Backends with bugs


def broken(*arguments):
    raise ZeroDivisionError


async def broken_later(*arguments):
    raise ZeroDivisionError


async def cancelled(*arguments):
    raise asyncio.CancelledError


def cancelled_future(*arguments):
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    return future


async def conflicting(*arguments):
    raise VersionConflict


BUGS = [
    ("peek", broken, b"incr a 1"),
    ("peek_cached", broken, b"get a"),
    ("peek_cached", broken, b"get a b"),
    ("get", broken, b"gets a"),
    ("get", cancelled, b"get a"),
    ("get", broken_later, b"gets a b"),
    ("put", broken, b"set a 0 0 1\r\nx"),
    ("put", broken_later, b"set a 0 0 1\r\nx"),
    ("put", cancelled, b"set a 0 0 1\r\nx"),
    ("put", cancelled_future, b"set a 0 0 1\r\nx"),
    ("put", conflicting, b"set a 0 0 1\r\nx"),
    ("put", broken, b"touch there 0"),
    ("put", broken, b"gat 0 there there2"),
    ("delete", broken, b"delete there"),
    ("flush", broken, b"flush_all"),
    ("flush", broken_later, b"flush_all"),
    ("stats", broken, b"stats backend"),
]


@pytest.mark.parametrize(("method", "bug", "command"), BUGS)
@pytest.mark.parametrize("queued", [False, True], ids=["alone", "after another"])
async def test_whatever_the_backend_raises_is_answered(one, caplog, method, bug, command, queued):
    for key in (b"there", b"there2"):
        await one.backend.store(key, b"1")
    if method == "peek" and queued:
        pytest.skip("then it is asked")
    if queued:
        one.backend.gate.clear()
        one.send(b"get slow\r\n")
        await one.under_way(1)
    setattr(one.backend, method, bug)
    one.send(command + b"\r\nversion\r\n")
    await asyncio.sleep(0.02)
    one.backend.gate.set()
    before = b"END\r\n" if queued else b""
    await one.expect(before + b"SERVER_ERROR internal error\r\nVERSION ")
    failed = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(failed) == 1
    assert failed[0].exc_info
    assert not one.server.scheduler._tasks


@pytest.mark.parametrize("bug", [broken, broken_later, cancelled])
async def test_a_bug_in_a_quiet_command_is_logged_and_not_answered(one, bug, caplog):
    one.backend.put = bug
    await one.ask(b"set a 0 0 1 noreply\r\nx\r\nget a\r\n", b"END\r\n")
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_a_tick_that_fails_does_not_stop_the_clock(one, caplog):
    one.backend.tick = broken
    one.server.engine.tick()
    assert "ZeroDivisionError" in caplog.text


async def test_one_failed_write_of_several_does_not_stop_the_rest(one, recwarn):
    for key in (b"a", b"b", b"c"):
        await one.backend.store(key, b"1")
    put = one.backend.put

    def refuse_b(record, replacing=ANY):
        if record.key == b"b":
            raise StorageError("not b")
        return put(record, replacing)

    one.backend.put = refuse_b
    await one.ask(b"gat 100 a b c\r\n", b"SERVER_ERROR not b\r\n")
    assert one.backend.calls["put"] == 2
    gc.collect()
    assert not recwarn.list


# Statistics


async def test_reads_are_sampled(one):
    for _ in range(1280):
        await one.ask(b"set a 0 0 1\r\n1\r\n", b"STORED\r\n")
    assert 4 <= one.server.sampler.histograms["store"].count <= 50  # random, 20 on average


async def test_commands_and_replies_are_traced_each_once(caplog):
    caplog.set_level("DEBUG", "memlite.trace")
    async with serving() as one:
        await one.ask(
            b"set a 0 0 1\r\n1\r\nget a\r\nnonsense\r\n", b"STORED\r\nVALUE a 0 1\r\n1\r\n"
        )
        await one.expect(b"END\r\nERROR\r\n")
        number = one.connection.number
        lines = [record.getMessage() for record in caplog.records if record.name.endswith("trace")]
    assert [line for line in lines if line.startswith(f"<{number} ")] == [
        f"<{number} set a 0 0 1", f"<{number} get a", f"<{number} nonsense"
    ]  # fmt: skip
    assert [line for line in lines if line.startswith(f">{number} ")] == [
        f">{number} STORED", f">{number} sending key a", f">{number} END", f">{number} ERROR"
    ]  # fmt: skip


# asyncio's event loop

SIMPLE = {
    name: test
    for name, test in list(globals().items())
    if name.startswith("test_") and [*inspect.signature(test).parameters] == ["one"]
}


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run there")
@pytest.mark.parametrize("name", SIMPLE)
def test_the_same_holds_on_uvloop(name):
    import uvloop

    async def run():
        async with serving() as one:
            await SIMPLE[name](one)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
