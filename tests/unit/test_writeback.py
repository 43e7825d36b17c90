"""Write-back: what is held, for how long, and that it is stored in the end."""

import asyncio

import pytest

from memlite.backends import UNKNOWN, Item
from memlite.backends.writeback import WriteBack
from memlite.errors import StorageError, VersionConflict
from tests.unit.slow_backend import START, SlowBackend, settle


@pytest.fixture
async def slow():
    return SlowBackend()


@pytest.fixture
async def held(slow):
    backend = WriteBack(slow, limit=10_000, clock=slow.clock, delay=1)
    await backend.open()
    yield backend
    slow.failing = False
    if not slow.closed:
        await backend.close()


async def put(backend, value, key=b"key"):
    await backend.put(key, Item.of(key, value))


async def test_of_many_sets_the_last_is_stored(slow, held):
    for number in range(100):
        await put(held, b"%d" % number)
        assert held.peek_cached(b"key").value == b"%d" % number
    assert slow.calls["put"] == 0
    slow.seconds = 1
    await asyncio.sleep(0.3)
    assert await slow.value(b"key") == b"99"
    assert slow.calls["put"] == 1
    assert held.peek_cached(b"key") is UNKNOWN
    assert held.stats()["write_back_coalesced"] == 99
    assert held.stats()["write_back_bytes"] == 0


async def test_one_that_is_set_all_the_time_is_stored_all_the_same(slow, held):
    for number in range(30):
        await put(held, b"%d" % number)
        slow.seconds += 0.1
        await asyncio.sleep(0.14)
    assert 2 <= slow.calls["put"] <= 4


@pytest.mark.parametrize("change", ["put", "delete", "get"])
async def test_what_depends_on_what_is_held_has_it_stored_first(slow, held, change):
    await put(held, b"1")
    assert held.peek(b"key") is UNKNOWN
    item = await held.get(b"key")
    assert item.value == await slow.value(b"key") == b"1"
    await put(held, b"2")
    if change == "put":
        with pytest.raises(VersionConflict):
            await held.put(b"key", Item.of(b"key", b"3"), item)
    elif change == "delete":
        with pytest.raises(VersionConflict):
            await held.delete(b"key", item)
    assert (await held.get(b"key")).value == await slow.value(b"key") == b"2"


async def test_deleting_whatever_is_there_drops_what_is_held(slow, held):
    await put(held, b"1")
    await held.delete(b"key")
    assert await held.get_cached(b"key") is None
    assert slow.calls["put"] == 0


async def test_what_is_being_stored_is_shown_and_followed_in_order(slow, held):
    await put(held, b"1")
    slow.gate.clear()
    reading = asyncio.ensure_future(held.get(b"key"))
    await settle()
    assert held.peek_cached(b"key").value == b"1"
    await put(held, b"2")
    assert held.peek_cached(b"key").value == b"2"
    slow.gate.set()
    assert (await reading).value == b"2"
    assert await slow.value(b"key") == b"2"


async def test_beyond_the_bound_sets_go_through(slow, held):
    await put(held, b"x" * 9_000, b"large")
    await put(held, b"x" * 2_000, b"other")
    assert await slow.value(b"large") is None
    assert await slow.value(b"other") == b"x" * 2_000


async def test_failures_are_tried_again_and_reach_clients_when_they_last(slow, held, caplog):
    slow.failing = True
    await put(held, b"1")
    with pytest.raises(StorageError):
        await held.get(b"key")
    await put(held, b"2")  # still held
    slow.seconds = 6
    with pytest.raises(StorageError):
        await put(held, b"3")
    assert held.peek_cached(b"key") in (UNKNOWN, None) or held.peek_cached(b"key").value != b"3"
    slow.failing = False
    slow.seconds = 20
    await asyncio.sleep(0.3)
    await put(held, b"4")
    assert (await held.get(b"key")).value == b"4"
    assert sum("cannot be stored" in message for message in caplog.messages) == 1


async def test_the_end_stores_everything(slow, held):
    for number in range(50):
        await put(held, b"%d" % number, b"key%d" % number)
    await held.close()
    assert slow.closed
    assert [await slow.value(b"key%d" % number) for number in range(50)] == [
        b"%d" % number for number in range(50)
    ]


async def test_what_cannot_be_stored_in_the_end_is_reported(slow, held, caplog):
    await put(held, b"1")
    slow.failing = True

    async def let_time_pass():
        while True:
            slow.seconds += 5
            await asyncio.sleep(0.1)

    passing = asyncio.ensure_future(let_time_pass())
    await held.close()
    passing.cancel()
    assert slow.closed
    assert any("1 items are lost" in message for message in caplog.messages)


async def test_flushing_drops_what_is_held(slow, held):
    await put(held, b"1")
    await held.flush()
    assert await held.get_cached(b"key") is None
    await put(held, b"2")
    await held.flush(START + 5)
    assert held.peek_cached(b"key").value == b"2"
    slow.seconds = 5
    assert await held.get(b"key") is None
    assert slow.calls["put"] == 0


async def test_a_store_that_fails_behind_a_flush_does_not_come_back(slow, held):
    await put(held, b"1")
    slow.gate.clear()
    slow.seconds = 1
    await asyncio.sleep(0.3)
    flushing = asyncio.ensure_future(held.flush())
    await settle()
    slow.failing = True
    slow.gate.set()
    with pytest.raises(StorageError):
        await flushing
    slow.failing = False
    assert await held.get_cached(b"key") is None
