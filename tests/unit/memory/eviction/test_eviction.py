"""The choice of evicted items: S3-FIFO and LRU, one line of the algorithm at a time."""

import itertools
import random

import pytest

from memlite.memory.eviction import POLICIES
from memlite.memory.item import FREQUENCY
from tests.unit.memory.caches import Cache
from tests.unit.memory.tables import Store


def filled(places=20, policy="s3fifo"):
    """Return a full cache of items that have not been used since they were stored: 0, 1, 2 …"""
    cache = Cache(places, policy)
    for number in range(places):
        cache.access(number)
    assert not cache.evicted
    return cache


# S3-FIFO


def test_items_fill_the_small_queue_first_and_then_the_main_one():
    assert filled(20).queues == ([0, 1], list(range(2, 20)))


def test_once_full_all_new_items_go_through_the_small_queue():
    cache = filled(20)
    for number in range(20, 25):
        cache.access(number)
    assert cache.evicted == [0, 1, 20, 21, 22]
    assert cache.queues == ([23, 24], list(range(2, 20)))


@pytest.mark.parametrize(("uses", "stays"), [(0, False), (1, False), (2, True), (3, True)])
def test_an_item_used_twice_in_the_small_queue_stays(uses, stays):
    cache = filled(20)
    cache.access(0, times=uses)
    cache.access(20)
    assert (0 in cache) is stays
    assert cache.evicted == ([1] if stays else [0])
    if stays:  # in the main queue, where counting starts again
        assert cache.queues[1] == [*range(2, 20), 0]
        assert cache.items.get(cache.key(0)).state & FREQUENCY == 0


def test_a_main_queue_above_its_share_evicts():
    cache = filled(20)
    cache.access(0, times=2)
    cache.access(20)  # 0 moves to the main queue
    assert cache.queues == ([20], [*range(2, 20), 0])
    cache.access(21)
    assert cache.evicted == [1, 2]


@pytest.mark.parametrize("uses", [0, 1, 2, 3, 9])
def test_an_item_goes_round_the_main_queue_once_for_each_use_up_to_three(uses):
    cache = filled(20)
    cache.policy._main_limit = 0  # so that it always evicts
    cache.access(2, times=uses)
    evictions = 1
    while cache.evict() != 2:
        evictions += 1
        cache.force(100 + evictions)
    assert evictions == 1 + 17 * min(uses, 3)  # in each round, after 17 other items


def test_an_item_that_returns_soon_goes_straight_to_the_main_queue():
    cache = filled(20)
    cache.access(20)
    assert cache.evicted == [0]
    cache.access(0)
    assert cache.queues == ([20], [*range(2, 20), 0])
    # It is no longer in the ghost queue either.
    cache.remove(0)
    cache.policy.walk(100, lambda key, item: None)
    cache.policy.walk(100, lambda key, item: None)
    cache.access(0)
    assert cache.queues == ([20, 0], list(range(2, 20)))


def test_an_item_that_returns_late_was_forgotten():
    cache = filled(1000)
    for number in range(1000, 5100):
        cache.access(number)
    assert cache.evicted[0] == 0
    cache.access(0)
    assert 0 in [*cache.queues[0]]


def test_items_evicted_from_the_main_queue_are_not_remembered():
    cache = filled(20)
    cache.access(0, times=2)
    cache.access(20)
    cache.access(21)
    assert cache.evicted[-1] == 2  # from the main queue
    cache.access(2)
    assert 2 in cache.queues[0]


def test_a_scan_leaves_the_main_queue_alone_and_sweeps_an_lru():
    hits = {}
    for name in POLICIES:
        cache = filled(1000, name)
        for _ in range(2):
            for number in range(100, 1000):
                cache.access(number)
        for number in range(10_000, 15_000):
            cache.access(number)
        hits[name] = sum(number in cache for number in range(100, 1000))
    assert hits == {"s3fifo": 900, "lru": 0}


def test_a_removed_key_that_comes_back_takes_its_place_again():
    cache = filled(40)
    cache.remove(1)
    cache.remove(10)
    assert cache.policy.places_left == 2
    for number in (10, 1):
        cache.access(number)
    assert cache.queues == ([0, 1, 2, 3], list(range(4, 40)))
    assert cache.policy.places_left == 0


def test_places_of_removed_items_are_passed_over():
    cache = filled(20)
    for number in (0, 1, 2, 3):
        cache.remove(number)
    for number in range(20, 26):
        cache.access(number)
    assert cache.evicted == [20, 21]
    assert all(number in cache for number in range(4, 20))
    for number in (0, 1, 2, 3):  # not in the ghost queue: they were not evicted
        assert not cache.policy.ghost.take(cache.key(number))


def test_a_store_passes_over_a_bounded_number_of_used_items():
    cache = filled(100)
    cache.policy._patience = 5
    cache.policy._small_limit = cache.policy._main_limit = 0  # so that the main queue evicts
    for number in range(10, 100):
        cache.access(number)
    cache.access(100)
    assert cache.evicted == [15]  # used, but the sixth in a row
    assert cache.queues[1] == [*range(16, 100), *range(10, 15)]


def test_items_evicted_together_share_the_bound_on_items_passed_over():
    cache = filled(100)
    cache.policy._patience = 5
    cache.policy._small_limit = cache.policy._main_limit = 0
    for number in range(10, 100):
        cache.access(number)
    gone = [int(line) for line, _, _ in cache.policy.evict(10**9, 8)]
    assert gone == [*range(15, 23)]
    assert cache.queues[1] == [*range(23, 100), *range(10, 15)]


def test_a_store_promotes_a_bounded_number_of_items():
    cache = filled(100)
    cache.policy._patience = 5
    for number in range(10):
        cache.access(number, times=2)
    cache.access(100)
    assert cache.evicted == [10]  # from the main queue
    assert cache.queues == ([5, 6, 7, 8, 9, 100], [*range(11, 100), 0, 1, 2, 3, 4])


def test_shares_are_of_bytes_not_of_items():
    rng = random.Random(1)
    store = Store(300_000)
    for number in range(5000):
        key = b"%03d" % min(int(rng.expovariate(0.005)), 999)
        if store.get(key) is not None:
            store.use(key)
        else:
            store.store(key, bytes(rng.randrange(3000)))
        if number > 4000:  # it is full, and has measured its dict
            policy = store._policy
            assert policy._main_bytes <= policy._main_limit * 1.05
            assert policy._small_bytes <= (store.limit - policy._main_limit) * 1.05
    assert policy._main_limit * 0.9 <= policy._main_bytes
    assert 0.88 < policy._main_limit / (store.limit - store.overhead) < 0.92
    store.check()


# LRU


def test_lru_evicts_the_least_recently_used_item():
    cache = filled(5, "lru")
    cache.access(0)
    cache.access(2)
    for number in (5, 6, 7):
        cache.access(number)
    assert cache.evicted == [1, 3, 4]
    cache.remove(0)
    cache.access(8)
    cache.access(9)
    assert cache.evicted == [1, 3, 4, 2]


# Walking


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at_most", [1, 2, 7, 1000])
def test_a_walk_shows_each_item_once_and_begins_again(policy, at_most):
    cache = filled(50, policy)
    for _ in range(3):
        shown = []
        while cache.policy.walk(at_most, lambda key, _, to=shown: to.append(int(key))) == at_most:
            assert len(shown) <= 50
        assert sorted(shown) == list(range(50))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(10))
def test_a_walk_misses_no_item_present_from_start_to_end(policy, seed):
    """While items come, go and move; only items that moved may be shown twice."""
    rng = random.Random(seed)
    cache = filled(200, policy)
    for _ in range(5):
        there = {int(key) for key in cache.items.lines()}
        shown: dict[int, int] = {}
        at_most = rng.randrange(1, 40)
        steps = 0

        def look(key, item, shown=shown):
            assert cache.items.get(key) is item
            shown[int(key)] = shown.get(int(key), 0) + 1

        while cache.policy.walk(at_most, look) == at_most:
            steps += 1
            for _ in range(rng.randrange(at_most // 2 + 1)):
                number = rng.randrange(400)
                if rng.random() < 0.2:
                    cache.remove(number)
                    there.discard(number)
                else:
                    cache.access(number)
            there -= set(cache.evicted)
            cache.evicted.clear()
            assert steps < 2000
        assert there <= set(shown)
        if policy == "lru":
            assert max(shown.values()) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_walk_may_remove_items_it_is_shown(policy):
    cache = filled(100, policy)

    def look(key, item):
        if int(key) % 3:
            cache.remove(int(key))

    while cache.policy.walk(7, look) == 7:
        pass
    assert sorted(map(int, cache.items.lines())) == list(range(0, 100, 3))
    if policy == "s3fifo":
        assert cache.policy.places_left == 0
        assert sorted(itertools.chain(*cache.queues)) == list(range(0, 100, 3))
    assert len(cache.policy) == 34


def test_a_walk_gives_up_places_that_items_left():
    cache = filled(100)
    cache.policy._left_limit = 10**6  # so that removals alone give up no places
    for number in range(0, 100, 2):
        cache.remove(number)
    assert (cache.policy.places_left, len(cache.policy)) == (50, 100)
    while cache.policy.walk(7, lambda key, item: None) == 7:
        pass
    assert (cache.policy.places_left, len(cache.policy)) == (0, 50)
    assert sorted(itertools.chain(*cache.queues)) == list(range(1, 100, 2))


def test_storing_and_deleting_without_end_leaves_few_places_and_room_for_more():
    store = Store(100_000)
    for number in range(20_000):
        store.store(b"%0250d" % number)
        store.delete(b"%0250d" % number)
    assert store._policy._left_bytes <= 0.06 * store.limit
    store.check()
    store = Store(1_000_000)
    for number in range(1000):
        store.store(b"kept %d" % number)
    for number in range(20_000):
        store.store(b"%d" % number)
        store.delete(b"%d" % number)
    assert store._policy._left_bytes <= 0.06 * store.limit
    assert not store.evicted
    store.check()
