"""The engine over the memory backend, with a clock that the tests move."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from memlite.core.clock import Clock
from memlite.core.errors import OutOfMemoryError
from memlite.engine import MemoryEngine, Outcome
from memlite.engine.prefixes import PrefixStats
from memlite.engine.sizes import EvictionCounts
from memlite.memory import FullItem, Item
from memlite.memory.eviction import Lru, S3Fifo, cost
from memlite.memory.index import FEW
from memlite.memory.item import line_of, wire_form
from memlite.memory.table import ItemTable
from memlite.protocol.replies import error_line
from memlite.telemetry.counters import Counters

START = 1_800_000_000.0
DAY = 86400


class Fixture:
    """An engine and its clock, started at `START`."""

    def __init__(self, limit=2**20, *, evict=True, policy=Lru, **options):
        self.monotonic = 0.0
        self.clock = Clock(lambda: self.monotonic, lambda: START)
        self.counters = Counters()
        # The limit is the items', without what an empty table takes.
        empty = ItemTable(0, policy=policy).overhead
        table = ItemTable(limit + empty, evict=evict, policy=policy)
        self.engine = MemoryEngine(table, self.clock, self.counters, **options)

    def wait(self, seconds):
        """Move the clock, and tick as the server does."""
        self.monotonic += seconds
        self.clock.tick()
        self.engine.tick()

    def set(self, key, value=b"value", flags=0, exptime=0):
        self.engine.set(key, flags, exptime, value)

    def value(self, key):
        """Return a key's value without counting anything, None when it is absent."""
        item = self.engine.peek(key)
        return None if item is None else item.value

    def counted(self, *names):
        return tuple(getattr(self.counters, name) for name in names)


@pytest.fixture
def one():
    return Fixture()


def size_of(key, value, flags=0, expires=0.0):
    """Return what the backend accounts for an item."""
    wire = wire_form(key, flags, value)
    return cost(key, FullItem(wire, 0, expires) if expires else Item(wire, 0))


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


# Hits in one piece, and many at once


def state(one):
    """Return all that reading may change."""
    counters = [getattr(one.counters, name) for name in Counters.NAMES]
    items = [(key, item.wire, item.state) for key, item in one.engine.table.scan()]
    prefixes = one.engine.prefixes
    return counters, items, one.engine.table.used, prefixes and prefixes.dump()


def test_hit(one):
    one.set(b"a", b"1", flags=5)
    assert one.engine.hit(b"get a\r\n") == b"VALUE a 5 1\r\n1\r\nEND\r\n"
    assert one.engine.peek(b"a").fetched
    assert one.counted("get_hits", "get_misses") == (1, 0)


def test_hit_copies_no_value(one):
    for size in (0, 1024, 500_000):
        one.set(b"a", b"x" * size)
        reply = one.engine.hit(b"get a\r\n")
        assert reply == b"VALUE a 0 %d\r\n%b\r\nEND\r\n" % (size, b"x" * size)
        assert reply is one.engine.peek(b"a").wire


@pytest.mark.parametrize(
    "line",
    [
        *map(line_of, (b"absent", b"expired", b"flushed", b"", b" a", b"a ", b"a a", b"a" * 251)),
        b"get a\r\nget a\r\n", b"get a\n", b"get a\r", b"get a", b"gets a\r\n", b"Get a\r\n",
        b" get a\r\n", b"a\r\n", b"a", b"",
    ],
)  # fmt: skip
def test_hit_does_nothing_where_it_returns_none(one, line):
    one.set(b"flushed")
    one.engine.flush_all(0)
    one.set(b"a")
    one.set(b"expired", exptime=10)
    one.wait(10)
    before = state(one)
    assert one.engine.hit(line) is None
    assert state(one) == before


def test_hit_leaves_gets_to_count_to_prefixes(one):
    one.set(b"user:1")
    one.engine.observe(PrefixStats(), None)
    assert one.engine.hit(b"get user:1\r\n") is None
    assert one.engine.prefixes.dump() == b"END\r\n"
    assert one.counters.get_hits == 0
    out = []
    one.engine.collect([b"user:1", b"user:2"], out)
    assert b"".join(out) == b"VALUE user:1 0 5\r\nvalue\r\n"
    assert one.engine.prefixes.dump() == b"PREFIX user get 2 hit 1 set 0 del 0\r\nEND\r\n"
    assert one.counted("get_hits", "get_misses") == (1, 1)
    one.engine.observe(None, None)
    assert one.engine.hit(b"get user:1\r\n") == b"VALUE user:1 0 5\r\nvalue\r\nEND\r\n"


@pytest.mark.parametrize("exptime", [1, 10, 30 * DAY, int(START) + 5])
def test_hit_and_collect_end_when_the_item_expires(one, exptime):
    lives = exptime - START if exptime > START else exptime
    one.set(b"a", exptime=exptime)
    one.wait(lives - 0.01)
    out = []
    one.engine.collect([b"a"], out)
    assert one.engine.hit(b"get a\r\n") == b"".join(out) + b"END\r\n"
    out.clear()
    one.wait(0.02)
    assert one.engine.hit(b"get a\r\n") is None
    one.engine.collect([b"a"], out)
    assert out == []
    assert one.counted("get_hits", "get_misses", "get_expired", "expired_unfetched") == (2, 1, 1, 0)
    assert len(one.engine.table) == 0


def test_collect_appends_in_order_and_counts_each_key(one):
    one.set(b"a", b"1")
    one.set(b"b", b"x" * 5000)
    out = [b"earlier"]
    one.engine.collect([b"b", b"absent", b"a", b"a"], out)
    assert out[0] == b"earlier"
    wire = b"VALUE a 0 1\r\n1\r\n"
    assert b"".join(out[1:]) == b"VALUE b 0 5000\r\n" + b"x" * 5000 + b"\r\n" + wire + wire
    assert one.counted("get_hits", "get_misses") == (3, 1)


@given(
    stored=st.dictionaries(
        st.sampled_from([b"a", b"b:1", b"b:2", b"c"]),
        st.tuples(
            st.sampled_from([b"", b"1", b"x" * 1024, b"x" * 1025]),
            st.sampled_from([0, 5, 10]),
            st.sampled_from(["stays", "flushed", "fetched"]),
        ),
    ),
    asked=st.lists(st.sampled_from([b"a", b"b:1", b"b:2", b"c", b" a"]), min_size=1, max_size=6),
    wait=st.sampled_from([0, 4.99, 5, 20]),
    prefixes=st.booleans(),
)
def test_hit_and_collect_agree_with_fetch(stored, asked, wait, prefixes):
    def prepared():
        one = Fixture()
        for key, (value, exptime, fate) in stored.items():
            if fate == "flushed":
                one.set(key, value, 7, exptime)
        one.engine.flush_all(0)
        for key, (value, exptime, fate) in stored.items():
            if fate != "flushed":
                one.set(key, value, 7, exptime)
            if fate == "fetched":
                one.engine.fetch(key)
        one.monotonic += wait  # no tick, which would free what was flushed
        if prefixes:
            one.engine.observe(PrefixStats(), None)
        return one

    fetching, collecting, hitting = prepared(), prepared(), prepared()
    found = [fetching.engine.fetch(key) for key in asked]
    out = []
    collecting.engine.collect(asked, out)
    wires = [item and item.wire.removesuffix(b"END\r\n") for item in found]
    assert b"".join(out) == b"".join(filter(None, wires))
    for key, item, wire in zip(asked, found, wires, strict=True):
        before = state(hitting)
        reply = hitting.engine.hit(line_of(key))
        if item is None or prefixes:
            assert reply is None
            assert state(hitting) == before
            hitting.engine.collect([key], [])
        else:
            assert reply == wire + b"END\r\n"
    assert state(fetching) == state(collecting) == state(hitting)


@pytest.mark.parametrize("few", [0, FEW])
def test_what_has_expired_is_counted_once_however_often_one_get_asks_for_it(few):
    one = Fixture(policy=S3Fifo)
    one.engine.table._few = few  # with more, the index has many dicts
    one.engine.table.flush()
    one.set(b"a", exptime=5)
    one.set(b"b")
    one.engine.table.measure()
    assert one.engine.table._items.single == (few > 0)
    one.wait(5)
    out = []
    one.engine.collect([b"a", b"b", b"a", b"a"], out)
    assert b"".join(out) == b"VALUE b 0 5\r\nvalue\r\n"
    counters = one.counters
    assert (counters.get_hits, counters.get_misses) == (1, 3)
    assert (counters.get_expired, counters.expired_unfetched) == (1, 1)


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


def test_counting_what_is_no_number_is_neither_hit_nor_miss(one):
    one.set(b"a", b"x")
    assert one.engine.incr(b"a", 1) is Outcome.NON_NUMERIC
    assert one.engine.decr(b"a", 1) is Outcome.NON_NUMERIC
    assert one.counted("incr_hits", "incr_misses", "decr_hits", "decr_misses") == (0, 0, 0, 0)
    assert one.value(b"a") == b"x"


@pytest.mark.parametrize("value", [b"10", b"99"])
def test_counting_in_place_leaves_it_known_whether_it_was_read(one, value):
    one.set(b"n", value)
    one.engine.incr(b"n", 0)
    assert not one.engine.peek(b"n").fetched
    one.engine.fetch(b"n")
    one.engine.incr(b"n", 1)
    assert one.engine.peek(b"n").fetched == (value == b"10")  # a longer one is a new item


def test_counting_in_place_stores_no_new_item(one):
    one.set(b"a", b"10")
    one.engine.incr(b"a", 1)
    # memcached changes the number in place where it fits, and links no new item.
    assert one.counters.total_items == 1


# Time


@pytest.mark.parametrize("exptime", [1, 10, 30 * DAY, int(START) + 5])
def test_an_item_lives_until_it_expires(one, exptime):
    lives = exptime - START if exptime > START else exptime
    one.set(b"a", exptime=exptime)
    one.wait(lives - 0.01)
    assert one.engine.fetch(b"a") is not None
    one.wait(0.02)
    assert one.engine.fetch(b"a") is None


@pytest.mark.parametrize("exptime", [-1, 30 * DAY + 1, int(START) - 1])
def test_an_item_that_has_expired_already_is_absent(one, exptime):
    one.set(b"a", exptime=exptime)
    assert one.engine.fetch(b"a") is None
    assert one.counted("cmd_set", "total_items", "get_expired") == (1, 1, 1)


def test_an_item_without_exptime_stays(one):
    one.set(b"a")
    one.wait(100 * 365 * DAY)
    assert one.engine.fetch(b"a") is not None


@pytest.mark.parametrize(
    ("command", "result"),
    [
        (lambda engine: engine.delete(b"a"), False),
        (lambda engine: engine.touch(b"a", 0), False),
        (lambda engine: engine.fetch_and_touch(b"a", 0), None),
        (lambda engine: engine.incr(b"a", 1), Outcome.NOT_FOUND),
        (lambda engine: engine.decr(b"a", 1), Outcome.NOT_FOUND),
        (lambda engine: engine.add(b"a", 0, 0, b"new"), Outcome.STORED),
        (lambda engine: engine.replace(b"a", 0, 0, b"new"), Outcome.NOT_STORED),
        (lambda engine: engine.append(b"a", 0, 0, b"new"), Outcome.NOT_STORED),
        (lambda engine: engine.prepend(b"a", 0, 0, b"new"), Outcome.NOT_STORED),
        (lambda engine: engine.cas(b"a", 0, 0, b"new", 1), Outcome.NOT_FOUND),
    ],
    ids=["delete", "touch", "gat", "incr", "decr", "add", "replace", "append", "prepend", "cas"],
)
@pytest.mark.parametrize("gone", ["expired", "flushed"])
def test_commands_find_nothing_of_what_is_gone(one, command, result, gone):
    one.set(b"a", b"1", exptime=10)
    if gone == "expired":
        one.wait(10)
    else:
        one.engine.flush_all(0)
    assert command(one.engine) is result
    assert one.value(b"a") == (b"new" if result is Outcome.STORED else None)


def test_an_expired_miss_is_counted_once_as_expired(one):
    one.set(b"a", exptime=10)
    one.set(b"b", exptime=10)
    one.engine.fetch(b"b")
    one.wait(10)
    for _ in range(2):
        assert one.engine.fetch(b"a") is None
        assert one.engine.fetch(b"b") is None
    assert one.counted("get_hits", "get_misses", "get_expired") == (1, 4, 2)
    assert one.counters.expired_unfetched == 1
    assert len(one.engine.table) == 0


def test_touch(one):
    one.set(b"a", exptime=10)
    assert one.engine.touch(b"a", 100) is True
    assert one.engine.touch(b"b", 100) is False
    one.wait(99)
    assert one.value(b"a") == b"value"
    one.wait(1)
    assert one.value(b"a") is None
    assert one.counted("cmd_touch", "touch_hits", "touch_misses") == (2, 1, 1)
    assert one.counted("cmd_get", "cmd_set") == (0, 1)


def test_touch_with_zero_keeps_for_ever_and_negative_ends_at_once(one):
    one.set(b"a", exptime=10)
    one.engine.touch(b"a", 0)
    one.wait(1000)
    assert one.value(b"a") == b"value"
    one.engine.touch(b"a", -1)
    assert one.value(b"a") is None


def test_fetch_and_touch(one):
    one.set(b"a", exptime=10)
    assert one.engine.fetch_and_touch(b"a", 100).value == b"value"
    assert one.engine.fetch_and_touch(b"b", 100) is None
    one.wait(99)
    assert one.value(b"a") == b"value"
    # As memcached does, gat counts as touch, not as get.
    assert one.counted("cmd_touch", "touch_hits", "touch_misses", "cmd_get") == (2, 1, 1, 0)


# Flushing


def test_flush_now(one):
    one.set(b"a")
    one.engine.flush_all(0)
    assert one.engine.fetch(b"a") is None
    assert one.engine.fetch(b"a") is None
    assert len(one.engine.table) == 0
    assert one.counted("get_misses", "get_flushed") == (2, 1)


@pytest.mark.parametrize("exptime", [0, -1])
def test_an_item_set_right_after_a_flush_is_visible(one, exptime):
    one.set(b"a", b"old")
    one.engine.flush_all(exptime)
    one.set(b"a", b"new")
    one.set(b"b", b"new")
    assert (one.value(b"a"), one.value(b"b")) == (b"new", b"new")
    one.wait(5)
    assert (one.value(b"a"), one.value(b"b")) == (b"new", b"new")


def test_delayed_flush(one):
    one.set(b"a")
    one.engine.flush_all(10)
    assert one.engine.flush_pending == START + 10
    one.wait(9)
    one.set(b"b")
    assert one.value(b"a") == b"value"
    one.wait(1)
    assert (one.value(b"a"), one.value(b"b")) == (None, None)
    assert one.engine.flush_pending == 0
    one.set(b"a")
    one.wait(100)
    assert one.value(b"a") == b"value"


def test_delayed_flush_at_a_unix_time(one):
    one.set(b"a")
    one.engine.flush_all(int(START) + 100)
    one.wait(99)
    assert one.value(b"a") == b"value"
    one.wait(1)
    assert one.value(b"a") is None


def test_delayed_flush_at_a_time_gone_by_is_now(one):
    one.set(b"a")
    one.engine.flush_all(int(START) - 100)
    assert one.value(b"a") is None
    assert one.engine.flush_pending == 0


@pytest.mark.parametrize(("second", "flushed_after"), [(20, 20), (5, 5)])
def test_a_later_delayed_flush_replaces_the_one_that_waits(one, second, flushed_after):
    one.set(b"a")
    one.engine.flush_all(10)
    one.engine.flush_all(second)
    one.wait(flushed_after - 1)
    assert one.value(b"a") == b"value"
    one.wait(1)
    assert one.value(b"a") is None
    one.set(b"a")
    one.wait(30)
    assert one.value(b"a") == b"value"


def test_a_flush_now_cancels_the_one_that_waits(one):
    one.engine.flush_all(10)
    one.engine.flush_all(0)
    one.set(b"a")
    one.wait(20)
    assert one.value(b"a") == b"value"


def test_flushed_items_are_freed_by_sweeping_a_few_at_a_time(one):
    for number in range(5):
        one.set(b"%d" % number)
    one.engine.flush_all(0)
    assert one.engine.sweep(3)
    assert one.engine.sweep(3)
    assert not one.engine.sweep(3)
    assert one.engine.table.reclaim(1) == 0


# Reclaiming


def test_storing_over_an_expired_item_reclaims(one):
    one.set(b"unfetched", exptime=10)
    one.set(b"fetched", exptime=10)
    one.engine.fetch(b"fetched")
    one.wait(10)
    one.set(b"unfetched")
    assert one.counted("reclaimed", "expired_unfetched") == (1, 1)
    one.engine.add(b"fetched", 0, 0, b"x")
    assert one.counted("reclaimed", "expired_unfetched") == (2, 1)
    assert one.engine.sizes.evictions[1].reclaimed == 2
    one.set(b"fetched")
    assert one.counters.reclaimed == 2


def test_storing_over_a_flushed_item_reclaims(one):
    for key in (b"a", b"b", b"c"):
        one.set(key)
    one.engine.flush_all(0)
    one.set(b"a")
    assert one.counters.reclaimed == 1
    one.set(b"a")
    assert one.counters.reclaimed == 1


def sweep(one):
    while one.engine.sweep(3):
        pass


def test_crawl_removes_what_has_expired(one):
    one.set(b"keeps")
    one.set(b"later", exptime=100)
    one.set(b"unfetched", exptime=10)
    one.set(b"fetched", exptime=10)
    one.engine.fetch(b"fetched")
    one.wait(10)
    one.engine.crawl()
    sweep(one)
    assert [key for key, _ in one.engine.table.scan()] == [b"keeps", b"later"]
    assert one.counted(
        "lru_crawler_starts", "crawler_items_checked", "crawler_reclaimed", "expired_unfetched"
    ) == (1, 4, 2, 1)
    one.engine.crawl()
    sweep(one)
    assert one.counted("lru_crawler_starts", "crawler_items_checked", "crawler_reclaimed") == (
        2, 6, 2,
    )  # fmt: skip


def test_crawling_takes_small_steps(one):
    for number in range(10):
        one.set(b"%d" % number, exptime=5)
    one.wait(5)
    one.engine.crawl()
    assert one.engine.sweep(4)
    assert one.counters.crawler_items_checked == 4
    assert len(one.engine.table) == 6
    assert one.engine.crawling
    one.engine.crawl()  # which goes on, and does not begin again
    sweep(one)
    assert one.counted("lru_crawler_starts", "crawler_items_checked") == (1, 10)
    assert not one.engine.crawling


def test_expired_items_are_looked_for_by_itself_less_often_where_there_are_none(one):
    starts = []
    one.set(b"a", exptime=100)
    for second in range(1, 2000):
        one.wait(1)
        if one.engine.crawling:
            starts.append(second)
        sweep(one)
    # One found something, the fourth none.
    assert starts == [60, 180, 240, 360, 600, 1080, 1980]
    assert one.counters.crawler_reclaimed == 1
    one.engine.crawls = False
    for _ in range(2000):
        one.wait(1)
    assert not one.engine.crawling


# Memory

ROOM_FOR_THREE = 3 * size_of(b"a", b"value")
NUMBER = size_of(b"a", b"", expires=1.0) - size_of(b"a", b"")  # what a time or a version takes


@pytest.fixture
def full():
    """Give an engine full with a, b and c, in the order they were stored."""
    one = Fixture(ROOM_FOR_THREE + NUMBER)
    for key in (b"a", b"b", b"c"):
        one.set(key)
    return one


@pytest.mark.parametrize(
    ("use", "evicted"),
    [
        (lambda engine: None, b"a"),
        (lambda engine: engine.fetch(b"a"), b"b"),
        (lambda engine: engine.hit(b"get a\r\n"), b"b"),
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


def test_evictions_are_counted_by_how_they_were_used(full):
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


def test_evicting_an_expired_item_is_reclaiming():
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


# Prefixes


def test_prefixes():
    one = Fixture()
    engine = one.engine
    one.set(b"user:0")  # not collected yet
    engine.observe(PrefixStats(), None)
    one.set(b"user:1")
    engine.add(b"user:1", 0, 0, b"x")
    engine.append(b"item:", 0, 0, b"x")
    one.set(b"none")
    engine.fetch(b"user:1")
    engine.fetch(b"user:2")
    engine.fetch_and_touch(b"user:1", 0)
    engine.fetch(b"none")
    engine.delete(b"user:1")
    engine.delete(b"user:1")
    engine.incr(b"user:1", 1)
    engine.touch(b"user:1", 1)
    assert engine.prefixes.dump() == (
        b"PREFIX user get 3 hit 2 set 2 del 2\r\nPREFIX item get 0 hit 0 set 1 del 0\r\nEND\r\n"
    )
    engine.prefixes.clear()
    assert engine.prefixes.dump() == b"END\r\n"


def test_prefixes_end_at_the_first_delimiter():
    prefixes = PrefixStats(b"/")
    prefixes.record_get(b"a/b/c", True)
    prefixes.record_get(b"a:b", True)
    prefixes.record_set(b"/x")
    assert prefixes.dump() == (
        b"PREFIX a get 1 hit 1 set 0 del 0\r\nPREFIX  get 0 hit 0 set 1 del 0\r\nEND\r\n"
    )


def test_prefixes_are_bounded():
    prefixes = PrefixStats(at_most=2)
    for key in (b"a:", b"b:", b"c:", b"a:"):
        prefixes.record_delete(key)
    assert prefixes.dump() == (
        b"PREFIX a get 0 hit 0 set 0 del 2\r\nPREFIX b get 0 hit 0 set 0 del 1\r\nEND\r\n"
    )


# Any sequence

keys = st.sampled_from([b"a", b"b", b"c"])
values = st.sampled_from([b"", b"1", b"10", b"18446744073709551615", b" 7", b"text"])
exptimes = st.sampled_from([0, 0, 0, 1, 3, 10, -1, 30 * DAY, int(START) + 5, 30 * DAY + 1])
flag_words = st.integers(0, 2**32 - 1)


class Entry:
    def __init__(self, value, flags, expires):
        self.value, self.flags, self.expires = value, flags, expires
        self.unique = None


class EngineMachine(RuleBasedStateMachine):
    """Any sequence of commands and waits against a plain dict that forgets nothing by itself."""

    @initialize(cas=st.booleans())
    def start(self, cas):
        self.one = Fixture(cas=cas)
        self.engine = self.one.engine
        self.cas_enabled = cas
        self.now = START
        self.flush_at = None
        self.model = {}
        self.uniques = {}  # of every item ever seen, and the entry it belongs to
        self.gets = self.sets = 0

    def expires(self, exptime):
        if exptime == 0:
            return float("inf")
        if exptime < 0:
            return 0
        return exptime if exptime > 30 * DAY else self.now + exptime

    def entry(self, key):
        entry = self.model.get(key)
        return entry if entry is not None and entry.expires > self.now else None

    def store(self, key, value, flags, expires):
        self.model[key] = Entry(value, flags, expires)

    @rule(key=keys)
    def fetch(self, key):
        self.gets += 1
        self.compare(self.engine.fetch(key), self.entry(key))

    @rule(key=keys, exptime=exptimes)
    def fetch_and_touch(self, key, exptime):
        entry = self.entry(key)
        self.compare(self.engine.fetch_and_touch(key, exptime), entry)
        if entry is not None:
            entry.expires = self.expires(exptime)

    def compare(self, item, entry):
        assert (item is None) == (entry is None)
        if entry is None:
            return
        assert (item.value, item.flags) == (entry.value, entry.flags)
        unique = self.engine.unique(item)
        if not self.cas_enabled:
            assert unique == 0
            return
        assert entry.unique in (None, unique)
        entry.unique = unique
        assert self.uniques.setdefault(unique, entry) is entry

    @rule(key=keys, value=values, flags=flag_words, exptime=exptimes)
    def set(self, key, value, flags, exptime):
        self.sets += 1
        self.engine.set(key, flags, exptime, value)
        self.store(key, value, flags, self.expires(exptime))

    @rule(
        name=st.sampled_from(["add", "replace", "append", "prepend"]),
        key=keys, value=values, flags=flag_words, exptime=exptimes,
    )  # fmt: skip
    def store_if(self, name, key, value, flags, exptime):
        self.sets += 1
        outcome = getattr(self.engine, name)(key, flags, exptime, value)
        entry = self.entry(key)
        if (entry is None) != (name == "add"):
            assert outcome is Outcome.NOT_STORED
            return
        assert outcome is Outcome.STORED
        if name == "append":
            self.store(key, entry.value + value, entry.flags, entry.expires)
        elif name == "prepend":
            self.store(key, value + entry.value, entry.flags, entry.expires)
        else:
            self.store(key, value, flags, self.expires(exptime))

    @rule(key=keys, value=values, exptime=exptimes, data=st.data())
    def cas(self, key, value, exptime, data):
        self.sets += 1
        unique = data.draw(st.sampled_from([0, 2**64 - 1, *self.uniques]))
        entry = self.entry(key)
        # The machine knows an entry's unique only once it was read; reading changes nothing here.
        if entry is not None:
            self.compare(self.engine.peek(key), entry)
        outcome = self.engine.cas(key, 0, exptime, value, unique)
        if entry is None:
            assert outcome is Outcome.NOT_FOUND
        elif not self.cas_enabled or entry.unique != unique:
            assert outcome is Outcome.EXISTS
        else:
            assert outcome is Outcome.STORED
            self.store(key, value, 0, self.expires(exptime))

    @rule(key=keys)
    def delete(self, key):
        entry = self.entry(key)
        assert self.engine.delete(key) is (entry is not None)
        self.model.pop(key, None)

    @rule(key=keys, delta=st.sampled_from([0, 1, 9, 2**63, 2**64 - 1]), up=st.booleans())
    def count(self, key, delta, up):
        result = (self.engine.incr if up else self.engine.decr)(key, delta)
        entry = self.entry(key)
        if entry is None:
            assert result is Outcome.NOT_FOUND
            return
        digits = entry.value.split()[:1]
        if not digits or not digits[0].isdigit() or int(digits[0]) >= 2**64:
            assert result is Outcome.NON_NUMERIC
            return
        old = int(digits[0])
        number = (old + delta) % 2**64 if up else max(0, old - delta)
        assert result == number
        stored = str(number).encode()
        stored += b" " * (len(entry.value) - len(stored))
        self.store(key, stored, entry.flags, entry.expires)

    @rule(key=keys, exptime=exptimes)
    def touch(self, key, exptime):
        entry = self.entry(key)
        assert self.engine.touch(key, exptime) is (entry is not None)
        if entry is not None:
            entry.expires = self.expires(exptime)

    @rule(seconds=st.sampled_from([0.5, 1, 2, 10, 31 * DAY]))
    def wait(self, seconds):
        self.now += seconds
        if self.flush_at is not None and self.flush_at <= self.now:
            self.model.clear()
            self.flush_at = None
        self.one.wait(seconds)

    @rule(exptime=st.sampled_from([0, -1, 1, 5]))
    def flush_all(self, exptime):
        self.engine.flush_all(exptime)
        if exptime <= 0:
            self.model.clear()
            self.flush_at = None
        else:
            self.flush_at = self.now + exptime

    @rule()
    def crawl(self):
        self.engine.crawl()
        while self.engine.sweep(2):
            pass
        self.model = {key: entry for key, entry in self.model.items() if self.entry(key)}
        assert {key for key, _ in self.engine.table.scan()} == set(self.model)

    @invariant()
    def every_key_is_what_the_model_says(self):
        for key in (b"a", b"b", b"c"):
            self.compare(self.engine.peek(key), self.entry(key))

    @invariant()
    def counters_add_up(self):
        counters = self.one.counters
        assert counters.cmd_get == self.gets
        assert counters.cmd_set == self.sets
        misses = counters.get_misses + counters.delete_misses + counters.touch_misses
        misses += counters.incr_misses + counters.decr_misses
        assert counters.get_expired + counters.get_flushed <= misses
        assert counters.evictions == 0


TestAnySequence = EngineMachine.TestCase
TestAnySequence.settings = settings(max_examples=80, stateful_step_count=40)
