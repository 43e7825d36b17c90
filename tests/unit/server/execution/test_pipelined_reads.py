"""Gets of a key that must be read from the store: no transaction, and often no task."""

import asyncio
import random

import pytest

from memlite.backends import Record
from memlite.config import Config
from memlite.core.errors import StorageError
from memlite.core.meta_flags import MetaFlags
from memlite.server.connections.listeners import listen_tcp
from memlite.server.server import Server
from tests.unit.backends.slow_backend import START, SlowBackend
from tests.unit.server.execution.test_pipelined import (
    fill,
    gets,
    held_of,
    items,
    random_command,
    serving,
)

HIT = b"VALUE a 5 3\r\none\r\nEND\r\n"


class AskedBackend(SlowBackend):
    """A backend that has to be asked for everything."""

    peeks = False


class BegunBackend(AskedBackend):
    """A backend that begins reads, and leaves further attempts at those that fail to tasks.

    Attributes:
        turns: how many reads may be in progress.
    """

    begins = True
    turns = 40

    def __init__(self, context=None):
        super().__init__(context)
        self._reads = set()

    def begin_get(self, key, reader):
        if self.under_way >= self.turns:
            return False
        self.calls["begin_get"] += 1
        read = asyncio.ensure_future(self._read(key, reader))
        self._reads.add(read)
        read.add_done_callback(self._reads.discard)
        return True

    async def _read(self, key, reader):
        try:
            record = await self.get(key)
        except StorageError:
            reader.unfinished(self.get_cached(key))
        else:
            reader.found(record)


@pytest.fixture(params=[AskedBackend, BegunBackend])
async def one(request):
    async with serving(request.param) as one:
        await one.backend.inner.put(Record(b"a", b"one", flags=5))
        yield one


async def test_a_hit(one):
    await one.ask(b"get a\r\n", HIT)
    assert one.server.counters.hits == 1


async def test_a_miss(one):
    await one.ask(b"get b\r\n", b"END\r\n")
    assert (one.server.counters.hits, one.server.counters.get_misses) == (0, 1)


async def test_an_item_that_has_expired(one):
    await one.backend.inner.put(Record(b"a", b"one", expires=1.0))
    await one.ask(b"get a\r\n", b"END\r\n")
    assert one.server.counters.get_expired == 1


async def test_an_item_that_will_expire(one):
    await one.backend.inner.put(Record(b"a", b"one", flags=5, expires=START + 1000))
    await one.ask(b"get a\r\n", HIT)


async def test_an_item_with_meta_flags(one):
    await one.backend.inner.put(Record(b"a", b"one", flags=5, meta_flags=MetaFlags(stale=True)))
    await one.ask(b"get a\r\n", HIT)
    assert one.server.counters.hits == 1


async def test_a_large_value(one):
    value = b"v" * 300_000
    await one.backend.inner.put(Record(b"a", value))
    await one.ask(b"get a\r\n", b"VALUE a 0 300000\r\n" + value + b"\r\nEND\r\n")


async def test_a_store_that_fails(one):
    one.backend.failing = True
    await one.ask(b"get a\r\n", b"SERVER_ERROR down\r\n")
    assert one.server.counters.storage_errors == 1
    one.backend.failing = False
    await one.ask(b"get a\r\n", HIT)


async def test_a_store_with_a_bug(one, caplog):
    async def broken(key):
        raise ZeroDivisionError

    one.backend.get = broken
    one.backend.begins = False
    await one.ask(b"get a\r\n", b"SERVER_ERROR internal error\r\n")
    assert "get failed" in caplog.text


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"get  a\r\n", HIT),
        (b"get a \r\n", HIT),
        (b"get a\n", HIT),
        (b"get a a\r\n", 2 * HIT[: -len(b"END\r\n")] + b"END\r\n"),
        (b"get \r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"get\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"get " + b"k" * 250 + b"\r\n", b"END\r\n"),
        (b"get " + b"k" * 251 + b"\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"get a\r\nget a\r\n", 2 * HIT),
        (b"get a\nget a\r\n", 2 * HIT),
    ],
)
async def test_other_lines_are_parsed(one, line, reply):
    await one.ask(b"get a\r\n", HIT)  # the next read may take the fast path
    await one.ask(line, reply)


async def test_later_commands_wait_for_a_get(one):
    await one.ask(b"get a\r\n", HIT)
    one.backend.gate.clear()
    one.send(b"get a\r\n")
    await one.under_way(1)
    one.send(b"set a 0 0 3\r\ntwo\r\nget a\r\n")
    one.send(b"get b\r\nquit\r\n")
    await one.under_way(2)  # the read of the other key does not wait
    one.backend.gate.set()
    async with asyncio.timeout(60):
        expected = HIT + b"STORED\r\nVALUE a 0 3\r\ntwo\r\nEND\r\nEND\r\n"
        assert await one.reader.read() == expected


async def test_a_client_that_vanishes(one, caplog):
    await one.ask(b"get a\r\n", HIT)
    one.backend.gate.clear()
    one.send(b"get a\r\n")
    await one.under_way(1)
    one.vanish()
    await one.until(lambda: not one.server.register.connections)
    one.backend.gate.set()
    await one.until(lambda: not one.server.scheduler._tasks)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_the_latency_of_a_get_is_sampled(one):
    one.server.counters.until_slow_sample = 10_000
    await one.ask(b"get a\r\n", HIT)
    one.server.counters.until_slow_sample = 1
    await one.ask(b"get a\r\n", HIT)
    assert one.server.sampler.histograms["get"].count == 1


async def test_watchers_see_the_get(one):
    reader, writer = await asyncio.open_connection(*one.writer.get_extra_info("peername"))
    writer.write(b"watch fetchers\r\n")
    assert await reader.readline() == b"OK\r\n"
    await one.ask(b"get a\r\n", HIT)
    async with asyncio.timeout(60):
        assert b"key=a status=found" in await reader.readline()
    writer.close()


@pytest.fixture
async def begun():
    async with serving(BegunBackend) as one:
        yield one


async def test_reads_of_a_pipeline_are_begun_and_answered_in_order(begun):
    values = [b"%d" % number for number in range(30)]
    await fill(begun, values)
    order = [number * 7 % 30 for number in range(200)]
    await begun.ask(gets(order), items(order, values))
    counters = begun.server.counters
    assert (counters.cmd_get, counters.get_hits) == (200, 200)
    # A read of a key that is being read waits for that read, in a task.
    assert 0 < begun.backend.calls["begin_get"] <= 200
    assert not begun.connection.executor.pending


async def test_reads_beyond_the_limit_of_the_backend_wait(begun):
    begun.backend.turns = 3
    values = [b"%d" % number for number in range(30)]
    await fill(begun, values)
    await begun.ask(gets(range(30)), items(range(30), values))
    assert begun.backend.most > 3


async def test_the_first_attempt_fails(begun):
    values = [b"%d" % number for number in range(30)]
    await fill(begun, values)
    begun.backend.failing = True
    begun.backend.gate.clear()
    begun.send(gets(range(30)))
    await begun.under_way(30)
    begun.backend.gate.set()
    await begun.until(lambda: begun.backend.calls["get"] > 30)
    begun.backend.failing = False
    replies = b""
    async with asyncio.timeout(60):
        for number in range(30):
            reply = await begun.reader.readline()
            if reply != b"SERVER_ERROR down\r\n":
                assert reply == b"VALUE k%d 0 %d\r\n" % (number, len(values[number]))
                assert await begun.reader.readline() == values[number] + b"\r\n"
                assert await begun.reader.readline() == b"END\r\n"
            replies += reply
    assert begun.server.counters.storage_errors == replies.count(b"SERVER_ERROR")


async def test_all_attempts_fail(begun):
    begun.backend.failing = True
    await begun.ask(gets(range(30)), b"SERVER_ERROR down\r\n" * 30)
    assert begun.server.counters.storage_errors == 30
    assert not begun.connection.executor.pending


async def test_large_replies_that_a_client_does_not_read_are_limited(begun):
    values = [b"%c" % (97 + number) * 1_000_000 for number in range(20)]
    await fill(begun, values)
    order = [number % 20 for number in range(60)]
    begun.writer.transport.pause_reading()
    begun.send(gets(order))
    connection, most = begun.connection, 0
    await begun.until(lambda: begun.backend.calls["get"] >= 15)
    for _ in range(200):  # iterations in which further replies could arrive
        await asyncio.sleep(0.001)
        most = max(most, held_of(connection))
    assert most < 12_000_000
    begun.writer.transport.resume_reading()
    await begun.expect(items(order, values))
    assert (begun.server.counters.cmd_get, begun.server.counters.get_hits) == (60, 60)
    assert not connection.executor.pending


async def test_a_client_that_vanishes_before_the_first_attempt_fails(begun):
    """The rest is not read, because the client has gone."""
    begun.backend.failing = True
    begun.backend.gate.clear()
    begun.send(gets(range(10)))
    await begun.under_way(10)
    executor = begun.connection.executor
    begun.vanish()
    await begun.until(lambda: not begun.server.register.connections)
    begun.backend.gate.set()
    await begun.until(lambda: not executor.pending)
    assert begun.backend.calls["get"] == 10
    assert not begun.server.scheduler._tasks


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))]
)
async def test_replies_are_those_of_the_memory_engine(seed):
    rng = random.Random(seed)
    commands = b"".join(random_command(rng.choice) for _ in range(200)) + b"version\r\n"
    answers = []
    for make in (BegunBackend, None):
        listeners = listen_tcp(["127.0.0.1"], 0, 100)
        server = Server(Config(), listeners, backend=make)
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
