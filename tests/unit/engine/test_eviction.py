"""Evictions by the engine, and refused stores if eviction is disabled."""

import pytest

from memlite.core.errors import OutOfMemoryError
from memlite.engine.sizes import EvictionCounts
from memlite.protocol.replies import error_line
from tests.unit.engine.fixture import START, Fixture, size_of

ROOM_FOR_THREE = 3 * size_of(b"a", b"value")
NUMBER = size_of(b"a", b"", expires=1.0) - size_of(b"a", b"")  # the size of an expiry or a version


@pytest.fixture
def full():
    """An engine that is full with a, b and c, stored in this order."""
    one = Fixture(ROOM_FOR_THREE + NUMBER)
    for key in (b"a", b"b", b"c"):
        one.set(key)
    return one


@pytest.mark.parametrize(
    ("use", "evicted"),
    [
        (lambda engine: None, b"a"),
        (lambda engine: engine.fetch(b"a"), b"b"),
        (lambda engine: engine.try_get(b"get a\r\n"), b"b"),
        (lambda engine: engine.collect([b"a"], []), b"b"),
        (lambda engine: engine.fetch_and_touch(b"a", 0), b"b"),
        (lambda engine: engine.touch(b"a", 0), b"b"),
        (lambda engine: engine.set(b"a", 0, 0, b"other"), b"b"),
        (lambda engine: engine.replace(b"a", 0, 0, b"other"), b"b"),
        (lambda engine: engine.append(b"a", 0, 0, b""), b"b"),
        (lambda engine: engine.cas(b"a", 0, 0, b"other", engine.unique(engine.peek(b"a"))), b"b"),
        (lambda engine: engine.peek(b"a"), b"a"),
        (lambda engine: engine.cas(b"a", 0, 0, b"other", 999), b"a"),
        (lambda engine: engine.add(b"a", 0, 0, b"other"), b"b"),
    ],
    ids=["nothing", "get", "hit", "many", "gat", "touch", "set", "replace", "append", "cas",
         "peek", "failed-cas", "failed-add"],
)  # fmt: skip
def test_the_oldest_that_was_not_used_is_evicted(full, use, evicted):
    use(full.engine)
    full.set(b"d")
    assert [key for key in (b"a", b"b", b"c", b"d") if full.value(key) is None] == [evicted]
    assert full.counters.evictions == 1


def held(one):
    return [key for key, _ in one.engine.table.scan()]


def test_evictions_are_counted_by_how_the_items_were_used(full):
    full.engine.fetch(b"c")
    full.engine.touch(b"b", 100)
    full.wait(7)
    gone = []
    for key in (b"d", b"e", b"f"):
        before = held(full)
        full.set(key)
        gone += set(before) - set(held(full))
    assert gone == [b"a", b"c", b"b"]
    assert full.counted("evictions", "evicted_unfetched", "reclaimed") == (3, 1, 0)
    sizes = full.engine.sizes
    assert sizes.evictions[1] == EvictionCounts(
        evicted=3, evicted_unfetched=1, evicted_nonzero=1, evicted_time=7
    )
    assert not any(sizes.evictions[2:])


def test_evicting_an_expired_item_counts_as_reclaiming():
    one = Fixture(3 * size_of(b"a", b"value", expires=START))
    for key in (b"a", b"b", b"c"):
        one.set(key, exptime=10)
    one.engine.fetch(b"a")
    one.wait(10)
    one.set(b"d")
    assert one.counted("evictions", "reclaimed", "expired_unfetched") == (0, 1, 1)
    assert one.engine.sizes.evictions[1] == EvictionCounts(reclaimed=1)
    one.set(b"e")
    one.set(b"f")
    assert one.counted("evictions", "reclaimed", "expired_unfetched") == (0, 3, 2)


@pytest.fixture
def full_for_good():
    one = Fixture(ROOM_FOR_THREE, evict=False)
    for key in (b"a", b"b", b"c"):
        one.set(key, b"12345")
    return one


def test_without_eviction_a_set_is_refused_and_its_old_item_removed(full_for_good):
    one = full_for_good
    with pytest.raises(OutOfMemoryError) as refused:
        one.set(b"a", b"so much longer than before")
    assert error_line(refused.value) == b"SERVER_ERROR out of memory storing object\r\n"
    assert one.value(b"a") is None  # it must not be served as if it were current
    one.set(b"d")
    with pytest.raises(OutOfMemoryError):
        one.set(b"e")
    assert one.counted("store_no_memory", "evictions") == (2, 0)
    assert (one.value(b"b"), one.value(b"c"), one.value(b"d")) == (b"12345", b"12345", b"value")


@pytest.mark.parametrize("command", ["add", "replace", "append", "prepend", "cas"])
def test_without_eviction_other_stores_leave_the_old_item(full_for_good, command):
    one = full_for_good
    key = b"d" if command == "add" else b"a"
    more = (one.engine.unique(one.engine.peek(b"a")),) if command == "cas" else ()
    total_items = one.counters.total_items
    with pytest.raises(OutOfMemoryError):
        getattr(one.engine, command)(key, 0, 0, 4 * b"much longer than before", *more)
    assert [one.value(k) for k in (b"a", b"b", b"c")] == [b"12345"] * 3
    assert one.counted("store_no_memory", "total_items") == (1, total_items)


def test_without_eviction_a_counter_that_grows_is_refused(full_for_good):
    one = full_for_good
    with pytest.raises(OutOfMemoryError) as refused:
        one.engine.incr(b"a", 2**64 - 10**6)
    assert error_line(refused.value) == b"SERVER_ERROR out of memory\r\n"
    assert one.value(b"a") == b"12345"
    assert one.engine.incr(b"a", 1) == 12346


def test_an_expired_item_makes_no_room_for_a_set_that_fails():
    one = Fixture(2 * size_of(b"a", b"value") + size_of(b"a", b"value", expires=1.0), evict=False)
    one.set(b"a", exptime=10)
    one.set(b"b")
    one.set(b"c")
    one.wait(10)
    one.set(b"a")  # takes the place of the expired one
    assert one.counters.reclaimed == 1
