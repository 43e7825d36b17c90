"""Commands of the engine: storing, reading, cas uniques and counters."""

import pytest

from memlite.engine import Outcome
from memlite.engine.semantics import Mode
from memlite.telemetry.counters import Counters
from tests.unit.engine.fixture import START, Fixture

# Storing and reading


def test_set_and_fetch(one):
    one.set(b"a", b"1", flags=5)
    item = one.engine.fetch(b"a")
    assert (item.wire, item.value, item.flags) == (b"VALUE a 5 1\r\n1\r\nEND\r\n", b"1", 5)
    assert one.engine.fetch(b"b") is None
    assert one.counted("cmd_set", "total_items", "get_hits", "get_misses") == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("command", "absent", "present", "value"),
    [
        ("add", Outcome.STORED, Outcome.NOT_STORED, b"old"),
        ("replace", Outcome.NOT_STORED, Outcome.STORED, b"new"),
        ("append", Outcome.NOT_STORED, Outcome.STORED, b"oldnew"),
        ("prepend", Outcome.NOT_STORED, Outcome.STORED, b"newold"),
    ],
)
def test_conditional_stores(one, command, absent, present, value):
    store = getattr(one.engine, command)
    assert store(b"absent", 1, 0, b"new") is absent
    assert one.value(b"absent") == (b"new" if absent is Outcome.STORED else None)
    one.set(b"present", b"old")
    assert store(b"present", 1, 0, b"new") is present
    assert one.value(b"present") == value
    assert one.counters.cmd_set == 3
    stored = [absent, present].count(Outcome.STORED)
    assert one.counters.total_items == 1 + stored


@pytest.mark.parametrize("command", ["append", "prepend"])
def test_joining_keeps_flags_and_expiry_but_not_the_unique(one, command):
    one.set(b"a", b"old", flags=5, exptime=100)
    item = one.engine.peek(b"a")
    expires, version = item.expires, one.engine.unique(item)
    getattr(one.engine, command)(b"a", 9, 500, b"new")
    item = one.engine.peek(b"a")
    assert (item.flags, item.expires) == (5, expires)
    assert one.engine.unique(item) != version


@pytest.mark.parametrize("command", ["append", "prepend"])
def test_joining_over_the_item_size_is_not_stored(command):
    one = Fixture(item_size=1000)
    one.set(b"a", b"x" * 900)
    store = getattr(one.engine, command)
    room = 1000 - 900 - 48 - 8 - len(b"a") - 1 - 2  # header, cas unique, key and NUL, "\r\n"
    assert store(b"a", 0, 0, b"y" * (room + 1)) is Outcome.NOT_STORED
    assert one.value(b"a") == b"x" * 900
    assert store(b"a", 0, 0, b"y" * room) is Outcome.STORED
    assert len(one.value(b"a")) == 900 + room


def test_refuse_large_removes_only_for_set(one):
    one.set(b"a")
    one.engine.refuse_large(b"a", removes=False)
    assert one.value(b"a") == b"value"
    one.engine.refuse_large(b"a", removes=True)
    one.engine.refuse_large(b"absent", removes=True)
    assert one.value(b"a") is None
    assert one.counters.store_too_large == 3


def test_delete(one):
    one.set(b"a")
    assert one.engine.delete(b"a") is True
    assert one.engine.delete(b"a") is False
    assert one.value(b"a") is None
    assert one.counted("delete_hits", "delete_misses") == (1, 1)


def test_peek_counts_nothing(one):
    one.set(b"a")
    before = [getattr(one.counters, name) for name in Counters.NAMES]
    assert one.engine.peek(b"a") is not None
    assert one.engine.peek(b"b") is None
    assert [getattr(one.counters, name) for name in Counters.NAMES] == before
    assert not one.engine.peek(b"a").fetched


# Cas


def test_cas(one):
    assert one.engine.cas(b"a", 0, 0, b"x", 1) is Outcome.NOT_FOUND
    one.set(b"a", b"old")
    unique = one.engine.unique(one.engine.fetch(b"a"))
    assert one.engine.cas(b"a", 0, 0, b"x", unique + 1) is Outcome.EXISTS
    assert one.value(b"a") == b"old"
    assert one.engine.cas(b"a", 0, 0, b"new", unique) is Outcome.STORED
    assert one.engine.cas(b"a", 0, 0, b"again", unique) is Outcome.EXISTS
    assert one.value(b"a") == b"new"
    assert one.counted("cas_misses", "cas_badval", "cas_hits") == (1, 2, 1)


def test_every_store_gives_a_new_unique(one):
    seen = set()
    one.set(b"a", b"1")
    for change in (
        lambda: one.set(b"a", b"1"),
        lambda: one.engine.replace(b"a", 0, 0, b"1"),
        lambda: one.engine.append(b"a", 0, 0, b""),
        lambda: one.engine.incr(b"a", 0),
        lambda: one.engine.delete(b"a") and one.set(b"a", b"1"),
    ):
        seen.add(one.engine.unique(one.engine.peek(b"a")))
        change()
    seen.add(one.engine.unique(one.engine.peek(b"a")))
    assert len(seen) == 6
    assert min(seen) > 0


def test_reading_and_touching_keep_the_unique(one):
    one.set(b"a")
    unique = one.engine.unique(one.engine.peek(b"a"))
    one.engine.fetch(b"a")
    one.engine.touch(b"a", 100)
    one.engine.fetch_and_touch(b"a", 100)
    one.engine.add(b"a", 0, 0, b"x")
    assert one.engine.unique(one.engine.peek(b"a")) == unique


def test_without_cas_uniques_are_zero_and_never_match():
    one = Fixture(cas=False)
    assert one.engine.cas(b"a", 0, 0, b"x", 0) is Outcome.NOT_FOUND
    one.set(b"a", b"old")
    item = one.engine.fetch(b"a")
    assert one.engine.unique(item) == 0
    for unique in (0, one.engine.unique(item)):
        assert one.engine.cas(b"a", 0, 0, b"x", unique) is Outcome.EXISTS
    assert one.value(b"a") == b"old"


# Counting


def test_incr_and_decr(one):
    assert one.engine.incr(b"a", 1) is Outcome.NOT_FOUND
    assert one.engine.decr(b"a", 1) is Outcome.NOT_FOUND
    one.set(b"a", b"10", flags=5, exptime=100)
    assert one.engine.decr(b"a", 1) == 9
    assert one.value(b"a") == b"9 "
    assert one.engine.incr(b"a", 2**64 - 1) == 8
    assert one.engine.decr(b"a", 100) == 0
    item = one.engine.peek(b"a")
    assert (item.flags, item.expires) == (5, START + 100)
    assert one.counted("incr_hits", "incr_misses", "decr_hits", "decr_misses") == (1, 1, 2, 1)
    assert one.counters.cmd_set == 1


def test_counting_a_non_number_is_neither_hit_nor_miss(one):
    one.set(b"a", b"x")
    assert one.engine.incr(b"a", 1) is Outcome.NON_NUMERIC
    assert one.engine.decr(b"a", 1) is Outcome.NON_NUMERIC
    assert one.counted("incr_hits", "incr_misses", "decr_hits", "decr_misses") == (0, 0, 0, 0)
    assert one.value(b"a") == b"x"


@pytest.mark.parametrize("value", [b"10", b"99"])
def test_counting_in_place_preserves_whether_the_item_was_read(one, value):
    one.set(b"n", value)
    one.engine.incr(b"n", 0)
    assert not one.engine.peek(b"n").fetched
    one.engine.fetch(b"n")
    one.engine.incr(b"n", 1)
    assert one.engine.peek(b"n").fetched == (value == b"10")  # a longer number makes a new item


def test_counting_in_place_stores_no_new_item(one):
    one.set(b"a", b"10")
    one.engine.incr(b"a", 1)
    # memcached changes the number in place where it fits, and links no new item.
    assert one.counters.total_items == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda engine, unique: engine.cas(b"a", 0, 0, b"2", unique),
        lambda engine, unique: engine.store(Mode.SET, b"a", 0, 0, b"2", compare=unique)[0],
        lambda engine, unique: engine.remove(b"a", compare=unique),
        lambda engine, unique: engine.count(b"a", 1, compare=unique).outcome,
    ],
    ids=["cas", "ms", "md", "ma"],
)
def test_a_unique_that_was_never_shown_matches_no_item(one, change):
    """Clients may guess one, or remember it from before a restart."""
    for key in (b"b", b"a"):
        one.set(key, b"1")
    last = one.engine.unique(one.engine.peek(b"b"))
    assert change(one.engine, last + 1) is Outcome.EXISTS
    assert one.value(b"a") == b"1"
    assert change(one.engine, one.engine.unique(one.engine.peek(b"a"))) is not Outcome.EXISTS
