"""Near caches of several servers on one store, which notifies them of each other's changes."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from memlite.backends import Record
from memlite.backends.nearcache import NearCache
from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import make
from memlite.core.clock import Clock
from memlite.core.errors import StorageError
from tests.support.stores import Store, cluster, move_slot, store
from tests.support.waiting import eventually

# Longer than a test may take, so that no copy is fetched again because it is old.
TTL = 3600.0


@contextlib.asynccontextmanager
async def near(one: Store, options: str = "") -> AsyncIterator[NearCache]:
    context = Context(clock=Clock())
    inner = make(parse_url(f"valkey://127.0.0.1:{one.port}/p?{options}"), context)
    backend = NearCache(inner, 1 << 20, ttl=TTL, clock=context.clock)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


async def tracked(*backends: NearCache, masters: int = 1) -> None:
    for one in backends:
        assert await eventually(lambda one=one: one.stats()["servers_tracked"] == masters)


async def shown(backend: NearCache, key: bytes) -> bytes | None:
    """Return the value that clients get, from a copy if there is one."""
    record = await backend.get_cached(key)
    return None if record is None or 0 < record.expires < 2 else record.value


async def shows(backend: NearCache, key: bytes, value: bytes | None) -> bool:
    for _ in range(3000):
        if await shown(backend, key) == value:
            return True
        await eventually(lambda: False, 0.01)
    return False


async def test_changes_by_other_servers_are_shown_long_before_a_copy_expires() -> None:
    with store() as one:
        async with near(one) as first, near(one) as second:
            await tracked(first, second)
            for key in (b"k", b"other"):
                await first.put(Record(key, b"1"))
                assert await shows(second, key, b"1")
            # From now on, a copy answers.
            assert await eventually(lambda: second.stats()["near_items"] == 2)
            commands = second.stats()["commands"]
            assert await shown(second, b"k") == b"1"
            assert second.stats()["commands"] == commands
            await first.put(Record(b"k", b"2"))
            assert await shows(second, b"k", b"2")
            await first.put(Record(b"k", b"3"), await first.get(b"k"))
            assert await shows(second, b"k", b"3")
            await first.delete(b"k")
            assert await shows(second, b"k", None)
            # Only changed items are forgotten.
            assert await shown(second, b"other") == b"1"
            assert second.stats()["near_items"] == 1


async def test_a_flush_by_another_server_is_shown() -> None:
    with store() as one:
        async with near(one) as first, near(one) as second:
            await tracked(first, second)
            await first.put(Record(b"k", b"1"))
            assert await shows(second, b"k", b"1")
            await first.flush()
            assert await shows(second, b"k", None)


async def test_a_delayed_flush_by_another_server_is_shown_when_it_is_due() -> None:
    with store() as one:
        async with near(one) as first, near(one) as second:
            await tracked(first, second)
            await first.put(Record(b"k", b"1"))
            assert await shows(second, b"k", b"1")
            await first.flush(time.time() + 1)
            # A server calls `tick` once a second.
            while await shown(second, b"k"):
                second.tick()
                await eventually(lambda: False, 0.05)


async def test_a_flush_that_no_replica_confirms_is_shown() -> None:
    """The flush was made, although the client gets an error."""
    with store() as one:
        async with near(one) as first, near(one, "wait=1&wait_timeout=0.2") as second:
            await tracked(first, second)
            await first.put(Record(b"k", b"1"))
            assert await shows(second, b"k", b"1")
            flushing = asyncio.ensure_future(second.flush())
            while not flushing.done():
                await shown(second, b"k")
                await asyncio.sleep(0)
            with pytest.raises(StorageError, match="the change was made"):
                await flushing
            assert await shows(second, b"k", None)


async def test_items_that_expire_are_forgotten() -> None:
    with store() as one:
        async with near(one) as first, near(one) as second:
            await tracked(first, second)
            await first.put(Record(b"k", b"1"))
            assert await shows(second, b"k", b"1")
            assert one.ask("PEXPIRE", "p:k", 50) == b":1\r\n"
            assert await shows(second, b"k", None)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "cut", "pause"])
async def test_nothing_is_missed_while_a_connection_is_lost(how: str) -> None:
    with store() as one:
        async with near(one, "timeout=0.5&deadline=20") as first:
            await tracked(first)
            await first.put(Record(b"k", b"1"))
            assert await shows(first, b"k", b"1")
            if how == "kill":
                one.kill()
            elif how == "pause":
                one.pause()
            else:
                # While the connection is lost, no server reports changes.
                one.ask("CLIENT", "KILL", "TYPE", "normal")
            assert await eventually(lambda: first.stats()["near_items"] == 0)
            if how == "kill":
                one.restart()
            elif how == "pause":
                one.resume()
            await tracked(first)
            async with near(one) as second:
                await second.put(Record(b"k", b"2"))
            assert await shows(first, b"k", b"2")


@pytest.mark.slow
async def test_all_masters_of_a_cluster_report_changes() -> None:
    with cluster() as stores:
        keys = [b"key%d" % number for number in range(20)]
        async with near(stores[0]) as first, near(stores[1]) as second:
            await tracked(first, second, masters=3)
            for value in (b"1", b"2"):
                for key in keys:
                    await first.put(Record(key, value))
                for key in keys:
                    assert await shows(second, key, value)
            for slot in range(16384 // 3):
                if stores[0].ask("CLUSTER", "COUNTKEYSINSLOT", slot) != b":0\r\n":
                    move_slot(stores, slot, stores[0], stores[2])
            for key in keys:
                await first.put(Record(key, b"3"))
            for key in keys:
                assert await shows(second, key, b"3")


async def test_a_user_without_permission_to_track(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The near cache works as with a store that reports no changes."""
    monkeypatch.setenv("MEMLITE_VALKEY_PASSWORD", "s3cret")
    rights = ["me", "on", ">s3cret", "~p:*", "~p/*", "+@all", "-client|tracking"]
    with store("--user", *rights) as one, caplog.at_level(logging.WARNING):
        context = Context(clock=Clock())
        inner = make(parse_url(f"valkey://me@127.0.0.1:{one.port}/p"), context)
        backend = NearCache(inner, 1 << 20, ttl=TTL, clock=context.clock)
        await backend.open()
        assert await eventually(lambda: "does not report changes" in caplog.text)
        await backend.put(Record(b"k", b"1"))
        assert await shown(backend, b"k") == b"1"
        assert backend.stats()["servers_tracked"] == 0
        # No copy was dropped because of that.
        assert backend.stats()["near_invalidations"] == 0
        await backend.close()


async def test_tracking_can_be_off() -> None:
    with store() as one:
        async with near(one, "tracking=0") as first:
            assert "servers_tracked" not in first.stats()
