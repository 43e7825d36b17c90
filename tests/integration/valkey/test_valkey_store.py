"""The items in the store, and the commands sent to it."""

import asyncio
import contextlib
import time

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends import Record
from memlite.backends.base import ANY
from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import make
from memlite.core.errors import OutOfMemoryError, StorageError, VersionConflict
from tests.support.stores import Store, store
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def server():
    with store() as running:
        yield running


@contextlib.asynccontextmanager
async def opened(server: Store, prefix: str = "p", options: str = ""):
    backend = make(parse_url(f"valkey://127.0.0.1:{server.port}/{prefix}{options}"), Context())
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def commands(server):
    """Return how often the store has carried out each command."""
    rows = server.ask("INFO", "commandstats").decode().splitlines()
    counts = (row.removeprefix("cmdstat_").split(":calls=") for row in rows if ":calls=" in row)
    return {name: int(rest.split(",")[0]) for name, rest in counts}


async def test_a_get_or_set_is_one_command_and_a_get_with_a_change_two(server):
    async with opened(server) as backend:
        record = Record(b"k", b"value")
        await backend.put(record)
        await backend.put(record, await backend.get(b"k"))  # the script is there from now on
        server.ask("CONFIG", "RESETSTAT")
        await backend.put(record)
        assert commands(server).get("set") == 1
        found = await backend.get(b"k")
        assert commands(server).get("get") == 1
        await backend.put(record, found)
        counts = commands(server)
        assert (counts["get"], counts["evalsha"]) == (1, 1)
        await backend.get_many([b"k", b"x", b"y"])
        assert commands(server)["get"] == 4


async def test_the_store_expires_items(server):
    async with opened(server) as backend:
        await backend.put(Record(b"short", b"x", expires=time.time() + 0.3))
        await backend.put(Record(b"long", b"x", expires=time.time() + 1000))
        left = int(server.ask("PTTL", "p:long")[1:])
        assert 900_000 < left <= 1_000_000
        await backend.put(Record(b"long", b"y"), await backend.get(b"long"))
        assert server.ask("PTTL", "p:long") == b":-1\r\n"
        assert await eventually(lambda: server.ask("EXISTS", "p:short") == b":0\r\n")


async def test_a_set_has_the_epoch_of_the_moment_at_which_it_is_sent(server):
    """Otherwise a set that waits during a flush would hide another client's later set."""
    async with opened(server, "late") as backend:
        await backend.put(Record(b"k", b"1"))
        setting = asyncio.ensure_future(backend.put(Record(b"k", b"2")))
        await asyncio.sleep(0)  # the set now waits for the connection
        assert not setting.done()
        assert backend._epoch.now(7) == 7  # as reported by another process of the server
        await setting
        assert server.ask("GET", "late:k").split()[6] == b"7"
        assert (await backend.get(b"k")).expires == 0


async def test_the_script_is_sent_again_to_a_server_that_forgot_it(server):
    async with opened(server) as backend:
        await backend.put(Record(b"k", b"1"))
        assert server.ask("SCRIPT", "FLUSH") == b"+OK\r\n"
        await backend.put(Record(b"k", b"2"), await backend.get(b"k"))
        found = await backend.get(b"k")
        assert found.value == b"2"
        assert server.ask("SCRIPT", "FLUSH") == b"+OK\r\n"
        with pytest.raises(VersionConflict):
            await backend.delete(b"k", found._replace(version=1))


async def test_values_not_written_by_memlite_are_refused(server):
    async with opened(server) as backend:
        server.ask("SET", "p:text", "something else")
        server.ask("LPUSH", "p:list", "x")
        for key in (b"text", b"list"):
            with pytest.raises(StorageError, match=r"not written by memlite|wrong kind of value"):
                await backend.get(key)
        await backend.put(Record(b"fine", b"x"))
        assert b"fine" in [record.key async for record in backend.scan()]
        for key in (b"text", b"list"):
            await backend.put(Record(key, b"mine"))
            assert (await backend.get(key)).value == b"mine"


async def test_prefixes_are_separate(server):
    async with opened(server, "a") as one, opened(server, "a*") as two:
        await one.put(Record(b"k", b"1"))
        await two.put(Record(b"k", b"2"))
        assert [record.value async for record in one.scan()] == [b"1"]
        assert [record.value async for record in two.scan()] == [b"2"]
        await two.flush()
        assert (await one.get(b"k")).expires == 0
        assert 0 < (await two.get(b"k")).expires < time.time()


async def test_a_scan_of_many_pages(server):
    async with opened(server, "many") as backend:
        keys = [b"k%d" % number for number in range(3000)]
        for key in keys:
            await backend.put(Record(key, b"x"))
        assert {record.key async for record in backend.scan()} == set(keys)


async def test_a_full_store(server):
    async with opened(server) as backend:
        await backend.put(Record(b"k", b"1"))
        found = await backend.get(b"k")
        server.ask("CONFIG", "SET", "maxmemory", 1)
        try:
            for replacing in (found, None, ANY):
                with pytest.raises(OutOfMemoryError):
                    await backend.put(Record(b"k", b"2"), replacing)
        finally:
            server.ask("CONFIG", "SET", "maxmemory", 0)
        assert (await backend.get(b"k")).value == b"1"
