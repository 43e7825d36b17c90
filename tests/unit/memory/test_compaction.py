"""Compaction: items are copied so that the remaining ones are adjacent in memory."""

import pytest

from memlite.core.build import running_build
from memlite.core.meta_flags import MetaFlags
from memlite.memory import FullItem
from memlite.memory.eviction import POLICIES, S3Fifo
from tests.unit.memory.tables import Store


def compact(store, at_most=7):
    while store.compact(at_most):
        pass


def content(store):
    return {
        key: (item.value, item.state, item.expires, item.version, item.meta_flags)
        for key, item in store.scan()
    }


def with_all_kinds():
    store = Store()
    for number in range(100):
        store.store(b"plain-%d" % number, b"v" * number * 10)
        store.store(b"expires-%d" % number, b"v", expires=1e9 + number)
        store.store(
            b"marked-%d" % number, b"v", meta_flags=MetaFlags(won=True, unique=1000 + number)
        )
        key = b"numbered-%d" % number
        store.set_version(store.store(key, b"v"), 1000 + number)
    store.use(*(b"plain-%d" % number for number in range(50)), times=2)
    return store


def test_compaction_does_not_change_the_content():
    store = with_all_kinds()
    before, used = content(store), store.used
    assert len(before) == 400
    compact(store)
    assert content(store) == before
    assert store.used == used
    store.check()


def by_line(store):
    return [one for part in store._items._dicts for one in part.items()]


@pytest.mark.parametrize("at_most", [1, 3, 1000])
def test_all_small_objects_are_replaced(at_most):
    store = with_all_kinds()
    held = [(line, item, item.wire) for line, item in by_line(store)]
    before = {id(one) for group in held for one in group}
    compact(store, at_most)
    for line, item in by_line(store):
        assert id(line) not in before
        assert id(item) not in before
        assert (id(item.wire) in before) is (len(item.wire) >= 512)
        assert type(item) is FullItem or item.state & 16 == 0


def test_the_queues_keep_their_order_and_find_items_by_the_new_lines():
    store = Store()
    for number in range(50):
        store.store(b"%d" % number)
    before = store.queues
    compact(store)
    assert store.queues == before
    lines = {id(line) for line in store._items.lines()}
    policy = store._policy
    assert {id(line) for line in [*policy._small.list(), *policy._main.list()]} == lines


def test_a_pass_that_is_under_way_lets_items_come_change_and_go():
    store = Store(60_000)
    for number in range(2000):
        store.store(b"%d" % number, b"v" * 50)
        store.compact(3)
        if number % 3 == 0:
            store.delete(b"%d" % (number - 20))
        if number % 7 == 0:
            store.store(b"%d" % (number - 5), b"w" * (number % 90))
        store.check()
    assert store.evicted
    assert store.used + store.overhead <= store.limit


def test_places_without_an_item_are_given_up():
    store = Store()
    for number in range(100):
        store.store(b"%d" % number)
    for number in range(0, 100, 2):
        store.delete(b"%d" % number)
    assert store._policy.places_left == 50
    compact(store)
    assert store._policy.places_left == 0
    store.check()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_dict_that_is_too_large_for_its_items_is_rebuilt(policy):
    store = Store(100_000_000, policy=POLICIES[policy])
    for number in range(60_000):
        store.store(b"%d" % number)
    for number in range(59_000):
        store.delete(b"%d" % number)
    assert store._items.memory > 2_000_000
    compact(store, 100)
    for _ in range(8):
        store.measure()  # as the server does once a second; this works in steps
    assert store._items.memory < 200_000
    assert store.overhead < 500_000
    assert len(store) == 1000
    assert store.find(b"59999") is not None
    store.check()


def test_full_dicts_grow_little_while_their_items_are_copied():
    store = Store(100_000_000)
    for number in range(60_000):
        store.store(b"%d" % number)
    before = store._items.memory
    compact(store, 100)
    assert store._items.memory <= 1.3 * before


@pytest.mark.skipif(running_build() == "compiled", reason="a compiled state is no object")
def test_states_of_equal_value_become_one_object():
    store = Store()
    for number in range(100):
        # Larger than the integers Python caches, so that each is an object of its own.
        store.store(b"%d" % number).state = 5_000_000 + number % 2
    compact(store)
    # While all of them exist: the address of a freed object would be reused by the next.
    states = [item.state for _, item in store.scan()]
    assert len({id(state) for state in states}) == len(set(states)) == 2


# Memory beyond the limit


@pytest.fixture(params=POLICIES)
def full(request):
    store = Store(100_000, policy=POLICIES[request.param])
    for number in range(1000):
        store.store(b"%d" % number, b"v" * 50)
    assert store.evicted
    return store


def test_items_make_room_for_excess_memory(full):
    full.excess = lambda: 40_000
    full.measure()
    full.reclaim(10_000)
    assert full.used + full.overhead <= 60_000
    full.store(b"another", b"v" * 50)
    assert full.used + full.overhead <= 60_000
    full.check()


def test_items_regain_room_when_the_excess_is_gone(full):
    full.excess = lambda: 40_000
    full.measure()
    full.reclaim(10_000)
    full.excess = lambda: 0
    for number in range(1000, 2000):
        full.store(b"%d" % number, b"v" * 50)
        full.measure()
    assert 90_000 < full.used + full.overhead <= 100_000


def test_the_excess_is_queried_occasionally():
    asked = []
    store = Store(10_000_000, policy=S3Fifo)
    store.excess = lambda: asked.append(len(store)) or 0
    for number in range(1000):
        store.store(b"%d" % number, b"v" * 5000)
    assert 15 <= len(asked) <= 25  # every 256 KiB
