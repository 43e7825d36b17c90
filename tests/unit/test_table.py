"""The table of items: what it accounts for, evicts, flushes and frees."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memlite.backends import Item, ItemTable
from memlite.backends.table import _CHANCES_AT_ONCE, ITEM_OVERHEAD
from memlite.errors import OutOfMemoryError


def make_item(key, value, version=1):
    return Item.of(key, value, version=version)


def cost(key, item):
    return len(key) + len(item.wire) + ITEM_OVERHEAD


class Store(ItemTable):
    """A backend that writes down what it evicts, and stores values without ceremony."""

    def __init__(self, limit=10_000, *, evict=True):
        self.evicted = []
        super().__init__(
            limit, evict=evict, on_evict=lambda key, item: self.evicted.append((key, item))
        )

    def store(self, key, value=b""):
        """Store as the engine does: a new item, or the present one changed in place."""
        item = make_item(key, value)
        old = self.get(key)
        if old is None:
            self.put(key, item)
            return item
        self.renew(key, old, item.wire)
        old.size = item.size
        return old

    def use(self, *keys):
        """Note that keys were read, as the engine does."""
        for key in keys:
            self.get(key).uses = USED

    @property
    def gone(self):
        return [key for key, _ in self.evicted]

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


def test_scan_goes_from_oldest_to_newest():
    store = Store()
    for key in (b"a", b"b", b"c"):
        store.store(key)
    store.use(b"a")  # which moves nothing
    store.store(b"b")  # which changes it where it stands
    assert store.keys == [b"a", b"b", b"c"]
    assert [key for key, _ in store.scan_recent()] == [b"c", b"b", b"a"]


def test_looking_up_alone_moves_and_marks_nothing():
    store = Store()
    item = store.store(b"a")
    store.store(b"b")
    store.get(b"a")
    assert store.keys == [b"a", b"b"]
    assert (item.uses, item.fetched) == (UNUSED, False)


def test_fetched_is_whether_it_was_ever_used():
    item = make_item(b"a", b"")
    assert not item.fetched
    for uses in (USED, SPENT):
        item.uses = uses
        assert item.fetched


# Eviction


def full_of(*keys):
    """Return a store full with keys of one byte."""
    store = Store(limit=len(keys) * UNIT)
    for key in keys:
        store.store(key)
    return store


def test_unused_items_go_in_the_order_they_came():
    store = full_of(b"a", b"b", b"c")
    items = dict(store.scan())
    for key in (b"d", b"e", b"f"):
        store.store(key)
    assert store.evicted == [(key, items[key]) for key in (b"a", b"b", b"c")]
    assert store.keys == [b"d", b"e", b"f"]


def test_a_used_item_survives_a_round_once_and_an_unused_one_goes_first():
    store = full_of(b"a", b"b", b"c")
    items = dict(store.scan())
    store.use(b"a")
    store.store(b"d")
    assert store.evicted == [(b"b", items[b"b"])]
    assert store.keys == [b"c", b"a", b"d"]
    assert items[b"a"].uses == SPENT
    store.store(b"e")
    assert store.gone == [b"b", b"c"]
    store.store(b"f")
    assert store.gone == [b"b", b"c", b"a"]
    assert store.keys == [b"d", b"e", b"f"]
    assert items[b"a"].fetched


def test_an_item_used_again_after_its_chance_has_another():
    store = full_of(b"a", b"b", b"c")
    store.use(b"a")
    store.store(b"d")
    store.use(b"a")
    store.store(b"e")
    store.store(b"f")
    assert store.gone == [b"b", b"c", b"d"]
    assert store.keys == [b"e", b"a", b"f"]
    assert store.get(b"a").uses == SPENT


def test_an_overwritten_item_counts_as_new():
    store = full_of(b"a", b"b", b"c")
    store.use(b"a")
    store.store(b"a")
    assert store.get(b"a").uses == RENEWED
    assert not store.get(b"a").fetched
    for key in (b"d", b"e"):
        store.store(key)
    assert store.gone == [b"b", b"c"]
    assert store.keys == [b"a", b"d", b"e"]
    assert store.get(b"a").uses == UNUSED
    store.store(b"f")
    assert store.gone == [b"b", b"c", b"a"]


def test_where_all_are_used_the_oldest_goes_after_one_round():
    store = full_of(b"a", b"b", b"c")
    store.use(b"a", b"b", b"c")
    store.store(b"d")
    assert store.gone == [b"a"]
    assert store.keys == [b"b", b"c", b"d"]
    assert [item.uses for _, item in store.scan()] == [SPENT, SPENT, UNUSED]


def test_a_burst_of_used_items_is_passed_over_a_bounded_number_of_times():
    names = [b"%c" % number for number in range(_CHANCES_AT_ONCE + 20)]
    store = full_of(*names)
    store.use(*names)
    store.store(b"\xff")
    # So many had their chance; the next goes although it was used.
    assert store.gone == [names[_CHANCES_AT_ONCE]]
    assert store.keys == names[_CHANCES_AT_ONCE + 1 :] + names[:_CHANCES_AT_ONCE] + [b"\xff"]
    uses = [store.get(name).uses for name in names if name != names[_CHANCES_AT_ONCE]]
    assert uses == [SPENT] * _CHANCES_AT_ONCE + [USED] * 19
    store.store(
        b"\xfe"
    )  # passes over the 19 that are left, and takes the first that had its chance
    assert store.gone[1:] == [names[0]]
    assert store.used == store.limit


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_up_to_the_bound_the_unused_one_behind_is_found(more):
    names = [b"%c" % number for number in range(_CHANCES_AT_ONCE + 5)]
    store = full_of(*names)
    store.use(*names[: _CHANCES_AT_ONCE + more])
    store.store(b"\xff")
    assert store.gone == [names[_CHANCES_AT_ONCE + min(more, 0)]]


def test_every_eviction_of_one_store_has_its_own_chances():
    store = full_of(b"a", b"b", b"c", b"d", b"e")
    store.use(b"a", b"c")
    store.store(b"f", b"x" * UNIT)
    assert store.gone[:2] == [b"b", b"d"]
    assert store.used == sum(cost(key, item) for key, item in store.scan()) <= store.limit


def test_shrink_gives_used_items_their_chance():
    store = full_of(b"a", b"b", b"c")
    store.use(b"a")
    store.shrink(2 * UNIT)
    assert (store.gone, store.keys) == ([b"b"], [b"c", b"a"])
    store.shrink(UNIT)
    assert (store.gone, store.keys) == ([b"b", b"c"], [b"a"])
    store.shrink(0)
    assert (store.keys, store.used) == ([], 0)


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


# The item itself takes no part in the round that makes room for it.
@pytest.mark.parametrize("used", [b"bc", b"abc"], ids=["the-others", "all"])
def test_growing_an_item_spares_it_where_others_are_used(used):
    store = full_of(b"a", b"b", b"c")
    store.use(*(b"%c" % byte for byte in used))
    item = store.store(b"a", b"xy")
    assert store.gone == [b"b"]
    assert store.get(b"a") is item
    assert store.keys == [b"c", b"a"]
    assert store.used == sum(cost(key, item) for key, item in store.scan()) <= store.limit


# Nor where the bound on chances is what ends the round.
def test_growing_an_item_spares_it_where_chances_run_out():
    names = [b"%c" % number for number in range(_CHANCES_AT_ONCE + 1)]
    store = full_of(*names)
    store.use(*names)
    item = store.store(names[0], b"xy")
    assert store.get(names[0]) is item
    assert names[0] not in store.gone
    assert store.used == sum(cost(key, item) for key, item in store.scan()) <= store.limit


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


def test_get_follows_a_flush():
    store = Store()
    store.store(b"a")
    store.flush()
    assert store.get(b"a") is None
    item = store.store(b"a")
    store.store(b"b")
    assert store.get(b"a") is item
    assert store.keys == [b"a", b"b"]


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


class TableMachine(RuleBasedStateMachine):
    """Any sequence of operations against an ordered dict that has no limit of its own.

    The model holds each key's item and whether it has a chance left, which it notes for itself.
    """

    @initialize(limit=st.integers(0, 5000), evict=st.booleans())
    def start(self, limit, evict):
        self.store = Store(limit, evict=evict)
        self.model = {}
        self.may_be_over = False

    def take_out_evicted(self):
        for key, item in self.store.evicted:
            for _ in range(_CHANCES_AT_ONCE):
                oldest, (held, uses) = next(iter(self.model.items()))
                if uses not in (RENEWED, USED):
                    break
                del self.model[oldest]
                self.model[oldest] = (held, SPENT if uses == USED else UNUSED)
            assert next(iter(self.model)) == key
            assert self.model.pop(key)[0] is item
        self.store.evicted.clear()

    @rule(key=keys, value=values)
    def put(self, key, value):
        before = self.store.used
        wanted = cost(key, make_item(key, value))
        replaced = cost(key, self.model[key][0]) if key in self.model else 0
        try:
            item = self.store.store(key, value)
        except OutOfMemoryError:
            assert not self.store.evicted
            assert self.store.used == before
            assert wanted + before - replaced > self.store.limit
            return
        if not replaced:
            self.take_out_evicted()
            self.model[key] = (item, UNUSED)
        elif self.store.evicted:
            del self.model[key]
            self.take_out_evicted()
            self.model[key] = (item, RENEWED)
        else:
            self.model[key] = (item, RENEWED)  # where it stood

    @rule(key=keys)
    def delete(self, key):
        assert self.store.delete(key) is self.model.pop(key, (None, None))[0]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def use(self, data):
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.store.use(key)
        self.model[key] = (self.model[key][0], USED)

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
        held = [(key, (item, item.uses)) for key, item in self.store.scan()]
        assert held == list(self.model.items())
        assert len(self.store) == len(self.model)

    @invariant()
    def used_is_the_sum_over_live_items(self):
        assert self.store.used == sum(cost(key, item) for key, (item, _) in self.model.items())

    @invariant()
    def the_limit_is_kept(self):
        assert self.may_be_over or self.store.used <= self.store.limit


TestAnySequence = TableMachine.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_an_empty_table_is_not_taken_for_none():
    """As in ``backend.table or …``: stats and cache_memlimit looked at another one."""
    table = ItemTable(1000)
    assert len(table) == 0
    assert table


def test_keys_are_listed_oldest_first_whatever_has_happened():
    table = Store(limit=60 * cost(b"00", make_item(b"00", b"")))
    rng = random.Random(1)
    for _ in range(3000):
        key = b"%02d" % rng.randrange(99)
        match rng.randrange(8):
            case 0:
                table.delete(key)
            case 1 if table.get(key) is not None:
                table.use(key)
            case 2:
                table.restore(key, make_item(key, b""))
            case 3 if rng.random() < 0.01:
                table.flush()
            case _:
                table.store(key, b"x" * rng.randrange(99))
        assert table.list_keys() == [listed for listed, _ in table.scan()]
    assert table.evicted
