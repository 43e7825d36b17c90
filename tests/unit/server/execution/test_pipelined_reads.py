"""A lone get of a key that must be read from the store: it takes no parser and no transaction."""

import asyncio

import pytest

from memlite.backends import Record
from memlite.core.meta_flags import MetaFlags
from tests.unit.backends.slow_backend import START, SlowBackend
from tests.unit.server.execution.test_pipelined import serving

HIT = b"VALUE a 5 3\r\none\r\nEND\r\n"


class AskedBackend(SlowBackend):
    """A backend that has to be asked for everything."""

    peeks = False


@pytest.fixture
async def one():
    async with serving(AskedBackend) as one:
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


async def test_later_commands_wait_for_it(one):
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


async def test_its_latency_is_sampled(one):
    await one.ask(b"get a\r\n", HIT)
    one.server.counters.until_slow_sample = 1
    await one.ask(b"get a\r\n", HIT)
    assert one.server.sampler.histograms["get"].count == 1


async def test_watchers_see_it(one):
    reader, writer = await asyncio.open_connection(*one.writer.get_extra_info("peername"))
    writer.write(b"watch fetchers\r\n")
    assert await reader.readline() == b"OK\r\n"
    await one.ask(b"get a\r\n", HIT)
    async with asyncio.timeout(60):
        assert b"key=a status=found" in await reader.readline()
    writer.close()
