"""The near cache: the maximum age of its copies, and states that it never shows."""

import asyncio
import gc
import itertools

import pytest

from memlite.backends import UNKNOWN, Record
from memlite.backends.nearcache import NearCache
from memlite.core.errors import StorageError, VersionConflict
from memlite.engine.store import StoreEngine
from memlite.protocol.commands import Access
from memlite.telemetry.counters import Counters
from tests.unit.backends.slow_backend import START, SlowBackend, settle


@pytest.fixture
async def slow():
    return SlowBackend()


@pytest.fixture
async def near(slow):
    return NearCache(slow, 100_000, ttl=10, clock=slow.clock)


async def value(near, key=b"key"):
    item = await near.get_cached(key)
    return item and item.value


async def test_a_copy_is_shown_until_it_is_too_old(slow, near):
    await slow.store(b"key", b"1")
    assert await value(near) == b"1"
    await slow.store(b"key", b"2")
    slow.seconds = 9.9
    assert near.peek_cached(b"key").value == b"1"
    slow.seconds = 10
    assert near.peek_cached(b"key") is UNKNOWN
    assert await value(near) == b"2"
    assert slow.calls["get"] == 2


async def test_the_age_counts_from_the_request(slow, near):
    await slow.store(b"key", b"1")
    slow.after.clear()
    asking = asyncio.ensure_future(value(near))
    await settle()
    slow.seconds = 8
    slow.after.set()
    assert await asking == b"1"
    slow.seconds = 10
    assert near.peek_cached(b"key") is UNKNOWN


async def test_concurrent_misses_make_one_request(slow, near):
    await slow.store(b"key", b"1")
    assert await asyncio.gather(*(value(near) for _ in range(64))) == [b"1"] * 64
    assert slow.calls["get"] == 1


async def test_a_cancelled_reader_does_not_cancel_the_others(slow, near):
    await slow.store(b"key", b"1")
    slow.gate.clear()
    first, second = (asyncio.ensure_future(value(near)) for _ in range(2))
    await settle()
    first.cancel()
    slow.gate.set()
    assert await second == b"1"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_failures_reach_all_waiting_readers_and_are_not_kept(slow, near):
    slow.failing = True
    outcomes = await asyncio.gather(*(value(near) for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StorageError] * 3
    slow.failing = False
    await slow.store(b"key", b"1")
    assert await value(near) == b"1"


ORDERS = [
    order
    for order in itertools.permutations(["ask", "answer", "write", "ack"])
    if order.index("ask") < order.index("answer") and order.index("write") < order.index("ack")
]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_no_read_after_an_acknowledged_write_shows_the_old_value(slow, near, order):
    """Covers every order in which a fetch and a write can begin, happen and end."""
    await slow.store(b"key", b"old")
    reading = writing = None
    for step in order:
        if step == "ask":
            slow.after.clear()
            reading = asyncio.ensure_future(near.get_cached(b"key"))
        elif step == "write":
            slow.after.clear()
            writing = asyncio.ensure_future(near.put(Record(b"key", b"new")))
        else:
            slow.after.set()
            await (reading if step == "answer" else writing)
        await settle()
    slow.after.set()
    await asyncio.gather(reading, writing)
    assert await value(near) == b"new"


async def test_overlapping_writes_leave_no_copy(slow, near):
    slow.after.clear()
    writes = [
        asyncio.ensure_future(near.put(Record(b"key", b"%d" % number))) for number in range(2)
    ]
    await settle()
    slow.after.set()
    await asyncio.gather(*writes)
    assert near.peek_cached(b"key") is UNKNOWN
    assert await value(near) == await slow.value(b"key")


async def test_written_items_are_cached(slow, near):
    await near.put(Record(b"key", b"1", 7))
    item = near.peek_cached(b"key")
    assert (item.value, item.flags, item.version) == (b"1", 7, 1)
    assert slow.calls["get"] == 0


@pytest.mark.parametrize("failing", [True, False], ids=["failed", "conflicting"])
async def test_a_write_that_did_not_succeed_leaves_no_copy(slow, near, failing):
    await near.put(Record(b"key", b"1"))
    slow.failing = failing
    with pytest.raises((StorageError, VersionConflict)):
        await near.put(Record(b"key", b"2"), None)
    assert near.peek_cached(b"key") is UNKNOWN


async def test_deleting_and_flushing(slow, near):
    for key in (b"a", b"b"):
        await near.put(Record(key, b"1"))
    await near.delete(b"a")
    assert near.peek_cached(b"a") is UNKNOWN
    await near.flush()
    assert near.peek_cached(b"b") is UNKNOWN
    await near.put(Record(b"b", b"2"))
    await near.flush(START + 5)
    assert near.peek_cached(b"b").value == b"2"
    slow.seconds = 5
    assert near.peek_cached(b"b") is UNKNOWN


async def test_a_fetch_that_a_flush_overtakes_is_not_kept(slow, near):
    await slow.store(b"key", b"1")
    slow.after.clear()
    asking = asyncio.ensure_future(value(near))
    await settle()
    near._forget_all()
    slow.after.set()
    await asking
    assert near.peek_cached(b"key") is UNKNOWN


async def test_items_that_changes_depend_on_are_fetched(slow, near):
    await near.put(Record(b"key", b"1"))
    await slow.store(b"key", b"2")
    assert near.peek(b"key") is UNKNOWN
    assert (await near.get(b"key")).value == b"2"


async def test_copies_are_shown_while_the_backend_is_down(slow, near):
    await near.put(Record(b"key", b"1"))
    slow.failing = True
    slow.seconds = 9
    assert await value(near) == b"1"
    slow.seconds = 10
    with pytest.raises(StorageError):
        await value(near)


async def test_the_memory_is_bounded(slow, near):
    for number in range(1000):
        await near.put(Record(b"key%d" % number, b"x" * 500))
    assert near.table.used <= 100_000
    await near.put(Record(b"huge", b"x" * 200_000))
    assert near.peek_cached(b"huge") is UNKNOWN
    assert len((await near.get_cached(b"huge")).value) == 200_000
    assert near.stats()["near_items"] == len(near.table) > 100


async def test_a_shared_fetch_returns_nothing_older_than_the_bound(slow, near):
    await slow.store(b"key", b"1")
    slow.after.clear()
    first = asyncio.ensure_future(value(near))
    await settle()
    await slow.store(b"key", b"2")
    slow.seconds = 10.1
    second = asyncio.ensure_future(value(near))
    await settle()
    slow.after.set()
    assert [await first, await second] == [b"1", b"2"]
    assert not near._fetches


async def test_a_failure_without_waiting_readers_is_not_reported(slow, near):
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, what: complaints.append(what))
    slow.gate.clear()
    asking = asyncio.ensure_future(value(near))
    await settle()
    asking.cancel()
    await settle()
    slow.failing = True
    slow.gate.set()
    await settle()
    gc.collect()
    assert not complaints
    assert not near._fetches


@pytest.mark.parametrize("change", ["put", "delete"])
async def test_a_change_whose_answer_is_lost_leaves_no_copy(slow, near, change):
    await near.put(Record(b"key", b"1"))
    slow.losing = True
    with pytest.raises(StorageError):
        await (near.put(Record(b"key", b"2")) if change == "put" else near.delete(b"key"))
    slow.losing = False
    assert await value(near) == (b"2" if change == "put" else None)


async def test_a_cancelled_change_leaves_no_copy_and_no_state(slow, near):
    await near.put(Record(b"key", b"1"))
    slow.gate.clear()
    writing = asyncio.ensure_future(near.put(Record(b"key", b"2")))
    await settle()
    writing.cancel()
    await asyncio.wait([writing])
    assert near.peek_cached(b"key") is UNKNOWN
    assert not near._writes and not near._overlapped


async def test_a_delayed_flush_invalidates_concurrent_fetches(slow, near):
    await slow.store(b"key", b"1")
    await near.flush(START + 5)
    slow.seconds = 4.9
    slow.after.clear()
    asking = asyncio.ensure_future(value(near))
    await settle()
    slow.seconds = 5.1
    slow.after.set()
    assert await asking == b"1"  # requested before the flush
    assert near.peek_cached(b"key") is UNKNOWN
    assert await value(near) is None


async def test_an_item_expires_although_its_copy_would_not(slow, near):
    engine = StoreEngine(near, slow.clock, Counters())
    await near.put(Record(b"key", b"1", 0, START + 5))
    assert engine.try_get(b"get key\r\n") is not None
    slow.seconds = 5
    assert engine.try_get(b"get key\r\n") is None
    replies = []
    attempt = engine.attempt(Access.CACHED, [b"key"], lambda: engine.collect([b"key"], replies))
    assert attempt is not None
    assert list(attempt.writes) == []
    assert replies == []


async def test_absent_items_are_fetched_each_time(slow, near):
    assert await value(near) is None
    await slow.store(b"key", b"1")
    assert await value(near) == b"1"


async def test_closing_waits_for_requests_under_way(slow, near):
    slow.gate.clear()
    asking = asyncio.ensure_future(value(near))
    await settle()
    closing = asyncio.ensure_future(near.close())
    await settle()
    assert not slow.closed
    slow.gate.set()
    await closing
    assert slow.closed
    assert await asking is None


async def test_64_readers_that_miss_many_keys_fetch_each_once(slow, near):
    keys = [b"key%d" % number for number in range(20)]
    for key in keys:
        await slow.store(key, key)
    found = await asyncio.gather(*(near.get_many(keys) for _ in range(64)))
    assert all([item.value for item in items] == keys for items in found)
    assert slow.calls["get"] == 20
