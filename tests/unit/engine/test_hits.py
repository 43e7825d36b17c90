"""The fast paths of the engine: a hit in one piece, and many keys at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.engine.prefixes import PrefixStats
from memlite.memory.eviction import S3Fifo
from memlite.memory.index import FEW
from memlite.memory.item import line_of
from memlite.telemetry.counters import Counters
from tests.unit.engine.fixture import DAY, START, Fixture


def state(one):
    """Return everything that a read may change."""
    counters = [getattr(one.counters, name) for name in Counters.NAMES]
    items = [(key, item.wire, item.state) for key, item in one.engine.table.scan()]
    prefixes = one.engine.prefixes
    return counters, items, one.engine.table.used, prefixes and prefixes.dump()


def test_hit(one):
    one.set(b"a", b"1", flags=5)
    assert one.engine.try_get(b"get a\r\n") == b"VALUE a 5 1\r\n1\r\nEND\r\n"
    assert one.engine.peek(b"a").fetched
    assert one.counted("get_hits", "get_misses") == (1, 0)


def test_hit_copies_no_value(one):
    for size in (0, 1024, 500_000):
        one.set(b"a", b"x" * size)
        reply = one.engine.try_get(b"get a\r\n")
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
def test_hit_changes_nothing_when_it_returns_none(one, line):
    one.set(b"flushed")
    one.engine.flush_all(0)
    one.set(b"a")
    one.set(b"expired", exptime=10)
    one.wait(10)
    before = state(one)
    assert one.engine.try_get(line) is None
    assert state(one) == before


def test_hit_returns_none_while_prefixes_are_counted(one):
    one.set(b"user:1")
    one.engine.observe(PrefixStats(), None)
    assert one.engine.try_get(b"get user:1\r\n") is None
    assert one.engine.prefixes.dump() == b"END\r\n"
    assert one.counters.get_hits == 0
    out = []
    one.engine.collect([b"user:1", b"user:2"], out)
    assert b"".join(out) == b"VALUE user:1 0 5\r\nvalue\r\n"
    assert one.engine.prefixes.dump() == b"PREFIX user get 2 hit 1 set 0 del 0\r\nEND\r\n"
    assert one.counted("get_hits", "get_misses") == (1, 1)
    one.engine.observe(None, None)
    assert one.engine.try_get(b"get user:1\r\n") == b"VALUE user:1 0 5\r\nvalue\r\nEND\r\n"


@pytest.mark.parametrize("exptime", [1, 10, 30 * DAY, int(START) + 5])
def test_hit_and_collect_end_when_the_item_expires(one, exptime):
    lives = exptime - START if exptime > START else exptime
    one.set(b"a", exptime=exptime)
    one.wait(lives - 0.01)
    out = []
    one.engine.collect([b"a"], out)
    assert one.engine.try_get(b"get a\r\n") == b"".join(out) + b"END\r\n"
    out.clear()
    one.wait(0.02)
    assert one.engine.try_get(b"get a\r\n") is None
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
        one.monotonic += wait  # no tick, which would free flushed items
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
        reply = hitting.engine.try_get(line_of(key))
        if item is None or prefixes:
            assert reply is None
            assert state(hitting) == before
            hitting.engine.collect([key], [])
        else:
            assert reply == wire + b"END\r\n"
    assert state(fetching) == state(collecting) == state(hitting)


@pytest.mark.parametrize("few", [0, FEW])
def test_an_expired_item_is_counted_once_however_often_one_get_names_it(few):
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
