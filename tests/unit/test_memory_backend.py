"""The memory backend: what it accounts for, evicts, flushes and frees."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memlite.backends import Item, MemoryBackend
from memlite.backends.memory import ITEM_OVERHEAD
from memlite.errors import OutOfMemoryError
from memlite.protocol import replies


def make_item(key, value, version=1):
    return Item(replies.value_block(key, 0, value), len(value), 0, 0, version, 0)


def cost(key, item):
    return len(key) + len(item.wire) + ITEM_OVERHEAD


class Store(MemoryBackend):
    """A backend that writes down what it evicts, and stores values without ceremony."""

    def __init__(self, limit=10_000, *, evict=True):
        self.evicted = []
        super().__init__(
            limit, evict=evict, on_evict=lambda key, item: self.evicted.append((key, item))
        )

    def store(self, key, value=b""):
        item = make_item(key, value)
        self.put(key, item)
        return item

    @property
    def keys(self):
        return [key for key, _ in self.scan()]


UNIT = cost(b"a", make_item(b"a", b""))
"""What an item with a key of one byte and no value costs."""


def test_item_value_is_the_end_of_its_wire_form():
    for value in (b"", b"x", b"\r\n", b"VALUE a 0 1\r\n"):
        item = make_item(b"key", value)
        assert item.value == value
        assert item.wire == b"VALUE key 0 %d\r\n%b\r\n" % (len(value), value)


def test_put_get_delete():
    store = Store()
    item = store.store(b"a", b"1")
    assert store.get(b"a") is item
    assert len(store) == 1
    assert store.used == cost(b"a", item)
    assert store.delete(b"a") is item
    assert store.delete(b"a") is None
    assert store.get(b"a") is None
    assert (len(store), store.used) == (0, 0)


def test_replacing_accounts_for_the_difference():
    store = Store()
    store.store(b"a", b"x" * 100)
    item = store.store(b"a", b"x" * 7)
    assert store.used == cost(b"a", item)
    assert store.evicted == []


def test_scan_goes_from_least_to_most_recently_used():
    store = Store()
    for key in (b"a", b"b", b"c"):
        store.store(key)
    store.promote(b"a")
    store.store(b"b")  # replacing is using
    assert store.keys == [b"c", b"a", b"b"]
    assert [key for key, _ in store.scan_recent()] == [b"b", b"a", b"c"]


def test_reading_alone_promotes_nothing():
    store = Store()
    store.store(b"a")
    store.store(b"b")
    store.get(b"a")
    assert store.keys == [b"a", b"b"]


# Eviction


def test_the_least_recently_used_goes_first():
    store = Store(limit=3 * UNIT)
    items = {key: store.store(key) for key in (b"a", b"b", b"c")}
    store.promote(b"a")
    store.store(b"d")
    assert store.evicted == [(b"b", items[b"b"])]
    assert store.keys == [b"c", b"a", b"d"]


def test_nothing_is_evicted_up_to_the_limit_to_the_byte():
    store = Store(limit=2 * UNIT + 1)
    store.store(b"a")
    store.store(b"b", b"x")
    assert (store.used, store.evicted) == (store.limit, [])
    store.store(b"a", b"x")
    assert [key for key, _ in store.evicted] == [b"b"]


def test_growing_an_item_spares_it():
    store = Store(limit=3 * UNIT)
    for key in (b"a", b"b", b"c"):
        store.store(key)
    store.store(b"a", b"xy")
    assert [key for key, _ in store.evicted] == [b"b"]
    assert store.keys == [b"c", b"a"]


def test_an_item_as_large_as_the_limit_evicts_all_others():
    store = Store(limit=3 * UNIT)
    for key in (b"a", b"b", b"c"):
        store.store(key)
    size = 2 * UNIT + len(b"0") - len(b"9999")
    item = store.store(b"a", b"x" * size)
    assert store.used == cost(b"a", item) <= store.limit
    assert store.keys == [b"a"]
    assert [key for key, _ in store.evicted] == [b"b", b"c"]


@pytest.mark.parametrize("evict", [True, False])
def test_an_item_over_the_limit_is_refused_and_nothing_else_harmed(evict):
    store = Store(limit=3 * UNIT, evict=evict)
    old = store.store(b"a")
    store.store(b"b")
    with pytest.raises(OutOfMemoryError):
        store.store(b"a", b"x" * 3 * UNIT)
    with pytest.raises(OutOfMemoryError):
        store.store(b"new", b"x" * 3 * UNIT)
    assert store.get(b"a") is old
    assert (store.keys, store.evicted, store.used) == ([b"a", b"b"], [], 2 * UNIT)


def test_without_eviction_a_full_store_refuses_new_items_and_longer_ones():
    store = Store(limit=2 * UNIT, evict=False)
    store.store(b"a")
    store.store(b"b")
    for key, value in ((b"c", b""), (b"a", b"x")):
        with pytest.raises(OutOfMemoryError):
            store.store(key, value)
    store.store(b"a")  # as long as before
    store.delete(b"b")
    store.store(b"c")
    assert (store.keys, store.evicted) == ([b"a", b"c"], [])


def test_shrink_evicts_down_to_the_limit():
    store = Store()
    for key in (b"a", b"b", b"c", b"d"):
        store.store(key)
    store.shrink(2 * UNIT + 1)
    assert store.limit == 2 * UNIT + 1
    assert [key for key, _ in store.evicted] == [b"a", b"b"]
    assert store.used == 2 * UNIT
    store.shrink(0)
    assert (store.keys, store.used) == ([], 0)


def test_shrink_without_eviction_keeps_items_and_refuses_more():
    store = Store(evict=False)
    store.store(b"a")
    store.store(b"b")
    store.shrink(UNIT)
    assert store.keys == [b"a", b"b"]
    with pytest.raises(OutOfMemoryError):
        store.store(b"c")


def test_growing_the_limit_makes_room():
    store = Store(limit=UNIT)
    store.store(b"a")
    store.shrink(2 * UNIT)
    store.store(b"b")
    assert store.evicted == []


# Flushing


def test_flush_makes_all_absent_at_once_and_reclaim_frees_them():
    store = Store()
    for number in range(10):
        store.store(b"%d" % number)
    store.flush()
    assert (len(store), store.used, store.keys) == (0, 0, [])
    assert store.get(b"0") is None
    assert store.reclaim(4) == 4
    assert store.reclaim(100) == 6
    assert store.reclaim(100) == 0


def test_get_and_promote_follow_a_flush():
    store = Store()
    store.store(b"a")
    store.flush()
    item = store.store(b"a")
    store.store(b"b")
    assert store.get(b"a") is item
    store.promote(b"a")
    assert store.keys == [b"b", b"a"]


def test_pop_flushed_gives_each_item_once():
    store = Store()
    item = store.store(b"a")
    assert store.pop_flushed(b"a") is None
    store.flush()
    assert store.pop_flushed(b"a") is item
    assert store.pop_flushed(b"a") is None


def test_new_items_free_flushed_ones_twice_as_fast():
    store = Store(limit=1_000_000)
    for number in range(10):
        store.store(b"old%d" % number)
    store.flush()
    for number in range(5):
        store.store(b"new%d" % number)
    assert store.reclaim(100) == 0
    assert len(store) == 5


def test_a_second_flush_forgets_what_the_first_left():
    store = Store()
    store.store(b"a")
    store.flush()
    store.store(b"b")
    store.flush()
    assert store.pop_flushed(b"a") is None
    assert store.reclaim(100) == 1


# Any sequence

keys = st.binary(min_size=1, max_size=3) | st.sampled_from([b"a", b"b", b"c", b"k" * 250])
values = st.binary(max_size=10) | st.integers(0, 3000).map(bytes)


class MemoryBackendMachine(RuleBasedStateMachine):
    """Any sequence of operations against an ordered dict that has no limit of its own."""

    @initialize(limit=st.integers(0, 5000), evict=st.booleans())
    def start(self, limit, evict):
        self.store = Store(limit, evict=evict)
        self.model = {}
        self.may_be_over = False

    def take_out_evicted(self):
        for key, item in self.store.evicted:
            assert next(iter(self.model)) == key  # the least recently used
            assert self.model.pop(key) is item
        self.store.evicted.clear()

    @rule(key=keys, value=values)
    def put(self, key, value):
        before = self.store.used
        item = make_item(key, value)
        try:
            self.store.put(key, item)
        except OutOfMemoryError:
            assert not self.store.evicted
            assert self.store.used == before
            replaced = cost(key, self.model[key]) if key in self.model else 0
            assert cost(key, item) + before - replaced > self.store.limit
            return
        self.model.pop(key, None)
        self.take_out_evicted()
        self.model[key] = item

    @rule(key=keys)
    def delete(self, key):
        assert self.store.delete(key) is self.model.pop(key, None)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def promote(self, data):
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.store.promote(key)
        self.model[key] = self.model.pop(key)

    @rule()
    def flush(self):
        self.store.flush()
        self.model.clear()

    @rule(at_most=st.integers(0, 5))
    def reclaim(self, at_most):
        assert self.store.reclaim(at_most) <= at_most

    @rule(key=keys)
    def pop_flushed(self, key):
        self.store.pop_flushed(key)

    @rule(limit=st.integers(0, 5000))
    def shrink(self, limit):
        self.store.shrink(limit)
        self.take_out_evicted()
        self.may_be_over = self.store.used > limit  # only without eviction

    @invariant()
    def holds_what_the_model_holds_in_the_same_order(self):
        assert list(self.store.scan()) == list(self.model.items())
        assert len(self.store) == len(self.model)

    @invariant()
    def used_is_the_sum_over_live_items(self):
        assert self.store.used == sum(cost(key, item) for key, item in self.model.items())

    @invariant()
    def the_limit_is_kept(self):
        assert self.may_be_over or self.store.used <= self.store.limit


TestAnySequence = MemoryBackendMachine.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
