"""Write-back: which changes are held, for how long, and that they are stored in the end."""

import asyncio

import pytest

from memlite.backends import UNKNOWN, Record
from memlite.backends.writeback import WriteBack
from memlite.core.errors import StorageError, UnconfirmedError, VersionConflict
from tests.unit.backends.slow_backend import START, SlowBackend, settle


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


async def fail(*arguments):
    raise StorageError("down")


async def put(backend, value, key=b"key"):
    await backend.put(Record(key, value))


async def test_only_the_last_of_many_sets_is_stored(slow, held):
    for number in range(100):
        await put(held, b"%d" % number)
        assert held.peek_cached(b"key").value == b"%d" % number
    assert slow.calls["put"] == 0
    slow.seconds = 1
    await until(lambda: not held._held and not held._stores)
    assert await slow.value(b"key") == b"99"
    assert slow.calls["put"] == 1
    assert held.peek_cached(b"key") is UNKNOWN
    assert held.stats()["write_back_coalesced"] == 99
    assert held.stats()["write_back_bytes"] == 0


async def test_a_key_that_is_set_all_the_time_is_stored_regardless(slow, held):
    for number in range(30):
        await put(held, b"%d" % number)
        slow.seconds += 0.1
        await asyncio.sleep(0.14)
    assert 2 <= slow.calls["put"] <= 4


@pytest.mark.parametrize("change", ["put", "delete", "get"])
async def test_held_items_are_stored_before_operations_that_depend_on_them(slow, held, change):
    await put(held, b"1")
    assert held.peek(b"key") is UNKNOWN
    item = await held.get(b"key")
    assert item.value == await slow.value(b"key") == b"1"
    await put(held, b"2")
    if change == "put":
        with pytest.raises(VersionConflict):
            await held.put(Record(b"key", b"3"), item)
    elif change == "delete":
        with pytest.raises(VersionConflict):
            await held.delete(b"key", item)
    assert (await held.get(b"key")).value == await slow.value(b"key") == b"2"


async def test_an_unconditional_delete_drops_held_items(slow, held):
    await put(held, b"1")
    await held.delete(b"key")
    assert await held.get_cached(b"key") is None
    assert slow.calls["put"] == 0


async def test_items_being_stored_are_shown_and_followed_in_order(slow, held):
    await put(held, b"1")
    slow.gate.clear()
    reading = asyncio.ensure_future(held.get(b"key"))
    await settle()
    assert held.peek_cached(b"key").value == b"1"
    await put(held, b"2")
    assert held.peek_cached(b"key").value == b"2"
    slow.gate.set()
    assert (await reading).value == b"1"  # no need to wait for later sets
    assert (await held.get(b"key")).value == b"2"
    assert await slow.value(b"key") == b"2"


async def test_sets_beyond_the_bound_are_not_held(slow, held):
    await put(held, b"x" * 8_000, b"large")
    await put(held, b"x" * 2_000, b"other")
    assert await slow.value(b"large") is None
    assert await slow.value(b"other") == b"x" * 2_000


async def test_failures_are_retried_and_reach_clients_when_they_persist(slow, held, caplog):
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
    await let_it_write(slow, held)
    await put(held, b"4")
    assert (await held.get(b"key")).value == b"4"
    assert sum("cannot store pending items" in message for message in caplog.messages) == 1


async def test_closing_stores_everything(slow, held):
    for number in range(50):
        await put(held, b"%d" % number, b"key%d" % number)
    await held.close()
    assert slow.closed
    assert [await slow.value(b"key%d" % number) for number in range(50)] == [
        b"%d" % number for number in range(50)
    ]


async def test_flushing_drops_held_items(slow, held):
    await put(held, b"1")
    await held.flush()
    assert await held.get_cached(b"key") is None
    await put(held, b"2")
    await held.flush(START + 5)
    assert held.peek_cached(b"key").value == b"2"
    slow.seconds = 5
    assert await held.get(b"key") is None
    assert slow.calls["put"] == 0


async def test_a_store_that_fails_before_a_flush_is_not_retried(slow, held):
    await put(held, b"1")
    slow.gate.clear()
    slow.seconds = 1
    await until(lambda: slow.under_way)
    slow.inner.put, put_there = fail, slow.inner.put
    flushing = asyncio.ensure_future(held.flush())
    await settle()
    slow.gate.set()
    await flushing
    slow.inner.put = put_there
    assert await held.get_cached(b"key") is None
    assert held.stats()["write_back_bytes"] == 0


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the writer looks by itself, now and then
            await asyncio.sleep(0.01)


async def let_it_write(slow, held):
    """Advance the clock until held changes are due, and let the writer store them."""
    slow.seconds += 2
    await until(lambda: not held._held and not held._stores)


@pytest.mark.parametrize("change", ["put", "delete"])
async def test_acknowledged_items_stay_when_overwriting_them_fails(slow, held, change):
    await slow.store(b"key", b"old")
    await put(held, b"acknowledged")
    slow.failing = True
    with pytest.raises(StorageError):
        if change == "put":
            await put(held, b"x" * 20_000)
        else:
            await held.delete(b"key")
    assert held.peek_cached(b"key").value == b"acknowledged"
    slow.failing = False
    await let_it_write(slow, held)
    assert await slow.value(b"key") == b"acknowledged"
    assert held.stats()["write_back_bytes"] == 0


async def test_acknowledged_items_are_shown_while_they_are_overwritten(slow, held):
    await slow.store(b"key", b"old")
    await put(held, b"acknowledged")
    slow.gate.clear()
    large = b"x" * 20_000
    writing = asyncio.ensure_future(held.put(Record(b"key", large)))
    await settle()
    assert held.peek_cached(b"key").value == b"acknowledged"
    slow.gate.set()
    await writing
    assert await slow.value(b"key") == large
    assert (slow.calls["put"], held.stats()["write_back_bytes"]) == (1, 0)


async def test_a_held_item_may_be_set_again_at_the_bound(slow, held):
    await put(held, b"x" * 8_000, b"large")
    for number in range(100):
        await put(held, b"%d" % number * 4_000, b"large")
    assert slow.calls["put"] == 0 or held.stats()["write_back_bytes"] <= 10_000
    await put(held, b"y" * 8_000, b"large")
    assert held.peek_cached(b"large").value == b"y" * 8_000


async def test_the_bound_counts_the_cost_of_items(slow, held):
    for number in range(1_000):
        await put(held, b"", b"key%d" % number)
    assert held.stats()["write_back_items"] < 60
    assert slow.calls["put"] > 940


async def test_reads_of_a_key_that_is_set_all_the_time_get_through(slow, held):
    """Otherwise a client that sets a key in a loop would keep other clients from deleting it."""
    stop = False

    async def set_it():
        number = 0
        while not stop:
            number += 1
            await put(held, b"%d" % number)
            await asyncio.sleep(0)

    setting = asyncio.ensure_future(set_it())
    await settle()
    async with asyncio.timeout(60):
        assert (await held.get(b"key")).value
    stop = True
    await setting
    assert slow.calls["put"] <= 2


async def test_lasting_failures_of_one_key_do_not_affect_others(slow, held):
    inner_put = slow.inner.put

    async def refuse_one(record, replacing):
        if record.key == b"bad":
            raise StorageError("not this one")
        return await inner_put(record, replacing)

    slow.inner.put = refuse_one
    await put(held, b"1", b"bad")
    for number in range(8):
        slow.seconds += 1
        await put(held, b"%d" % number, b"good")
        await asyncio.sleep(0.15)
    with pytest.raises(StorageError):
        await put(held, b"2", b"bad")
    assert held.peek_cached(b"bad").value == b"1"
    before = slow.calls["put"]
    await put(held, b"last", b"good")
    assert slow.calls["put"] == before  # still held
    slow.inner.put = inner_put
    await let_it_write(slow, held)
    await put(held, b"3", b"bad")
    assert held.peek_cached(b"bad").value == b"3"


async def test_sets_are_held_again_once_the_backend_has_recovered(slow, held):
    slow.failing = True
    await put(held, b"1")
    with pytest.raises(StorageError):
        await held.get(b"key")
    slow.seconds = 6
    with pytest.raises(StorageError):
        await put(held, b"2", b"other")
    with pytest.raises(StorageError):
        await put(held, b"2")
    slow.failing = False
    await held.flush()  # discards the changes whose success would show the recovery
    await put(held, b"3", b"other")
    before = slow.calls["put"]
    await put(held, b"4", b"other")
    assert slow.calls["put"] == before


async def test_items_not_stored_because_of_a_bug_are_kept_and_the_bug_logged(slow, held, caplog):
    inner_put = slow.inner.put

    async def broken(*arguments):
        raise ZeroDivisionError

    slow.inner.put = broken
    await put(held, b"1")
    with pytest.raises(StorageError, match="internal error"):
        await held.get(b"key")
    assert "ZeroDivisionError" in caplog.text
    assert held.peek_cached(b"key").value == b"1"
    slow.inner.put = inner_put
    await let_it_write(slow, held)
    assert await slow.value(b"key") == b"1"
    assert held.stats()["write_back_bytes"] == 0


async def test_unanswered_stores_are_repeated(slow, held):
    slow.losing = True
    await put(held, b"1")
    slow.seconds += 2
    await until(lambda: slow.calls["put"])
    assert held.peek_cached(b"key").value == b"1"
    await put(held, b"2")
    slow.losing = False
    await let_it_write(slow, held)
    assert await slow.value(b"key") == b"2"
    assert held.peek_cached(b"key") is UNKNOWN


async def test_a_flush_that_fails_leaves_held_items(slow, held):
    await slow.store(b"key", b"old")
    await put(held, b"1")
    slow.failing = True
    for at in (0.0, START + 5):
        with pytest.raises(StorageError):
            await held.flush(at)
    slow.seconds = 6
    assert held.peek_cached(b"key").value == b"1"
    slow.failing = False
    await let_it_write(slow, held)
    assert await slow.value(b"key") == b"1"


async def test_nothing_is_stored_while_a_flush_is_under_way(slow, held):
    await put(held, b"1")
    slow.gate.clear()
    flushing = asyncio.ensure_future(held.flush())
    await settle()
    assert held.peek_cached(b"key").value == b"1"
    reading = asyncio.ensure_future(held.get(b"key"))
    await put(held, b"2", b"new")
    slow.seconds += 2
    await asyncio.sleep(0.3)
    assert (slow.calls["put"], slow.calls["get"]) == (0, 0)
    slow.gate.set()
    await flushing
    assert await reading is None
    await let_it_write(slow, held)
    assert await slow.value(b"new") == b"2"
    assert await slow.value(b"key") is None
    assert held.stats()["write_back_bytes"] == 0


async def test_a_delayed_flush_removes_items_being_stored(slow, held):
    await put(held, b"1")
    await held.flush(START + 1.5)
    slow.gate.clear()
    slow.seconds = 1
    await until(lambda: slow.calls["put"] == 1)
    slow.seconds = 2
    item = held.peek_cached(b"key")
    assert item is UNKNOWN or 0 < item.expires < START
    slow.gate.set()
    await until(lambda: not held._stores)
    assert await held.get(b"key") is None
    assert held.stats()["write_back_bytes"] == 0


async def test_the_number_of_concurrent_stores_is_bounded(slow):
    held = WriteBack(slow, limit=10_000_000, clock=slow.clock, delay=1)
    await held.open()
    for number in range(1_000):
        await put(held, b"1", b"key%d" % number)
    slow.seconds = 1
    await asyncio.sleep(0.3)
    for number in range(1_000):
        await put(held, b"2", b"key%d" % number)
    await held.close()
    assert slow.most <= 64
    assert {await slow.value(b"key%d" % number) for number in range(1_000)} == {b"2"}


@pytest.mark.parametrize("how", ["failing", "hanging"])
async def test_closing_ends_although_the_clock_stands_still(slow, held, caplog, monkeypatch, how):
    monkeypatch.setattr("memlite.backends.writeback._CLOSE_SECONDS", 0.3)
    monkeypatch.setattr("memlite.backends.writeback._RETRY_SECONDS", 0.05)
    for number in range(3):
        await put(held, b"1", b"key%d" % number)
    if how == "failing":
        slow.failing = True
    else:
        slow.gate.clear()
    async with asyncio.timeout(60):
        await held.close()
    assert slow.closed
    assert slow.under_way == 0
    assert any("lost 3 items" in message for message in caplog.messages)


async def test_held_items_survive_an_outage(slow, held):
    acknowledged = {}
    slow.failing = True
    for number in range(60):
        slow.seconds += 0.25
        key = b"key%d" % (number % 7)
        try:
            await put(held, b"%d" % number, key)
        except StorageError:
            continue
        acknowledged[key] = b"%d" % number
        await asyncio.sleep(0.02)
    assert acknowledged
    slow.failing = False
    await let_it_write(slow, held)
    assert {key: await slow.value(key) for key in acknowledged} == acknowledged


@pytest.fixture
def unconfirmed(slow):
    """Make the backend carry out all changes and report that no replica has confirmed them."""
    inner = slow.inner

    def carried_out(change):
        async def carry_out(*arguments):
            await change(*arguments)
            raise UnconfirmedError("the change was made, but 0 of 1 replicas have confirmed it")

        return carry_out

    for name in ("put", "delete", "flush"):
        setattr(inner, name, carried_out(getattr(inner, name)))
    return inner


async def test_unconfirmed_items_are_not_stored_again(slow, held, unconfirmed, caplog):
    for value in (b"1", b"2"):
        await put(held, value)
        await let_it_write(slow, held)
        with pytest.raises(UnconfirmedError):
            await slow.store(b"key", b"of another server")
        slow.seconds += 2
    assert slow.calls["put"] == 2
    assert await slow.value(b"key") == b"of another server"
    assert held.stats()["write_back_bytes"] == held.stats()["write_back_failures"] == 0
    assert sum("may be lost: the change was made" in one for one in caplog.messages) == 1


async def test_commands_do_not_report_errors_of_earlier_held_items(slow, held, unconfirmed):
    await put(held, b"1")
    found = await held.get(b"key")
    assert found.value == b"1"
    await put(held, b"2")
    with pytest.raises(VersionConflict):
        await held.put(Record(b"key", b"3"), found)
    assert await slow.value(b"key") == b"2"


@pytest.mark.parametrize("change", ["delete", "flush"])
async def test_items_removed_by_an_unconfirmed_change_stay_removed(slow, held, unconfirmed, change):
    await put(held, b"1")
    with pytest.raises(UnconfirmedError):
        await (held.delete(b"key") if change == "delete" else held.flush())
    await let_it_write(slow, held)
    assert await slow.value(b"key") is None
    assert held.stats()["write_back_bytes"] == 0
