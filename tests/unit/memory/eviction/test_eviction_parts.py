"""The parts of S3-FIFO: a queue that can be walked through, and a ghost queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlite.core.build import running_build
from memlite.memory.eviction.ghost import Ghost
from memlite.memory.eviction.key_queue import Fifo
from memlite.memory.eviction.policy import weigh
from memlite.memory.eviction.s3fifo import S3Fifo
from memlite.memory.index import FEW, Index
from memlite.memory.item import Item, line_of, shared, wire_form

# The queue

steps = st.one_of(
    st.tuples(st.just("push"), st.none()),
    st.tuples(st.just("pop"), st.none()),
    st.tuples(st.just("walk"), st.tuples(st.integers(0, 6), st.integers(1, 5))),
)


@given(st.lists(steps, max_size=80))
def test_a_queue_keeps_its_order_whatever_is_done(done):
    queue, model, pushed = Fifo(), [], 0
    for what, how in done:
        if what == "push":
            key = b"%d" % pushed
            pushed += 1
            queue.push(key)
            model.append(key)
        elif what == "pop":
            assert queue.pop() == (model.pop(0) if model else None)
        else:
            at_most, dropped = how
            seen = []

            def keep(key, seen=seen, dropped=dropped):
                seen.append(key)
                return key if int(key) % dropped != 1 else None

            passed = queue.walk(at_most, keep)
            assert passed == len(seen) <= at_most
            assert set(seen) <= set(model)
            assert seen == [key for key in model if key in seen]  # in order
            model = [key for key in model if key not in seen or int(key) % dropped != 1]
        assert queue.list() == model
        assert len(queue) == len(model)


@given(st.integers(0, 30), st.integers(1, 9))
def test_a_walk_through_a_queue_passes_each_key_once_and_begins_again(size, at_most):
    queue = Fifo()
    keys = [b"%d" % number for number in range(size)]
    for key in keys:
        queue.push(key)
    for _ in range(3):
        seen = []
        while queue.walk(at_most, lambda key, seen=seen: seen.append(key) or key) == at_most:
            pass
        assert seen == queue.list() == keys


def test_a_walk_through_a_queue_may_exchange_keys_for_equal_ones():
    queue = Fifo()
    for number in range(10):
        queue.push(b"key %d" % number)
    before = queue.list()
    others = {key: bytes(bytearray(key)) for key in before}
    assert queue.walk(100, others.__getitem__) == 10
    assert queue.list() == before
    assert all(key is others[key] for key in queue.list())


# The ghost queue


def key(number):
    return b"key %d" % number


def remembered(ghost, numbers):
    return sum(ghost.take(key(number)) for number in numbers)


def test_a_ghost_remembers_a_key_until_it_is_taken():
    ghost = Ghost(1000)
    ghost.add(b"a")
    assert ghost.take(b"a")
    assert not ghost.take(b"a")
    assert not ghost.take(b"never")


def test_a_ghost_without_capacity_remembers_nothing():
    ghost = Ghost()
    ghost.add(b"a")
    assert not ghost.take(b"a")


@pytest.mark.parametrize("capacity", [1000, 1024, 1025, 5000, 30_000])
def test_a_ghost_remembers_about_as_many_keys_as_its_capacity(capacity):
    ghost = Ghost(capacity)
    for number in range(3 * capacity):
        ghost.add(key(number))
    newest = remembered(ghost, range(2 * capacity, 3 * capacity))
    assert newest >= 0.8 * capacity
    ghost = Ghost(capacity)
    for number in range(3 * capacity):
        ghost.add(key(number))
    held = remembered(ghost, range(3 * capacity))
    # A bucket holds a whole number of keys, so each may hold one too many.
    buckets = ghost.memory // 65
    assert 0.8 * capacity <= held <= capacity + buckets


@pytest.mark.parametrize("capacity", [1000, 30_000])
def test_a_ghost_forgets_the_oldest_first(capacity):
    ghost = Ghost(capacity)
    for number in range(3 * capacity):
        ghost.add(key(number))
    shares = [
        remembered(ghost, range(first, first + capacity // 2)) / (capacity / 2)
        for first in range(0, 3 * capacity, capacity // 2)
    ]
    rounded = [round(share, 1) for share in shares]
    assert rounded == sorted(rounded)
    assert shares[-1] > 0.98
    assert shares[0] < 0.01


def test_a_ghost_takes_4_to_8_bytes_a_key():
    ghost = Ghost()
    for capacity in range(1000, 200_000, 777):
        ghost.resize(capacity)
        assert capacity * 4 <= ghost.memory <= max(capacity * 8.5 + 65, 64 * 65)


def test_a_ghost_that_grows_still_knows_half():
    ghost = Ghost(1000)
    for number in range(1000):
        ghost.add(key(number))
    ghost.resize(5000)
    assert remembered(ghost, range(1000)) >= 500
    for number in range(10_000):
        ghost.add(key(number))
    assert remembered(ghost, range(7500, 10_000)) >= 0.95 * 2500


def test_a_ghost_may_remember_the_same_key_twice_and_forgets_once():
    ghost = Ghost(1000)
    ghost.add(b"a")
    ghost.add(b"a")
    assert [ghost.take(b"a") for _ in range(3)] == [True, True, False]


def test_a_ghost_hardly_ever_takes_one_key_for_another():
    ghost = Ghost(50_000)
    for number in range(100_000):
        ghost.add(key(number))
    assert remembered(ghost, range(1_000_000, 1_200_000)) <= 1


# Both

_SIZE = 3000  # bytes of a value: allocations of that size are not pooled


@pytest.mark.skipif(
    running_build() == "compiled", reason="code compiled by mypyc aborts when memory runs out"
)
def test_items_keep_their_places_if_memory_runs_out_while_some_are_chosen():
    testcapi = pytest.importorskip("_testcapi")
    whole = interrupted = 0  # items chosen if nothing fails
    for allocation in (2**30, *range(1, 120)):
        items = Index(FEW)
        policy = S3Fifo(items)
        policy.adapt(120 * _SIZE)
        policy.evict(1, 1)  # the cache has been full
        policy.adapt(120 * _SIZE)
        for number in range(100):
            key = b"key%d" % number
            line, item = line_of(key), Item(wire_form(key, 0, b"v" * _SIZE), shared(number % 4))
            policy.admit(line, item, weigh(line, item))
            items.put(line, item)
        for number in range(0, 30, 3):
            line = line_of(b"key%d" % number)
            gone = items.get(line)
            items.pop(line)
            policy.remove(line, gone, weigh(line, gone))
        chosen = []
        testcapi.set_nomemory(allocation, allocation + 1)
        try:
            chosen = policy.evict(20 * _SIZE, 100)
        except MemoryError:
            pass
        finally:
            testcapi.remove_mem_hooks()
        whole = max(whole, len(chosen))
        interrupted += len(chosen) < whole
        items.remove(chosen)
        lines = [line_of(b"key%d" % number) for number in range(100)]
        there = {line: item for line in lines if (item := items.get(line)) is not None}
        assert sorted(policy.lines()) == sorted([*there, *policy._left])
        sizes = sum(weigh(line, item) for line, item in there.items())
        assert policy._small_bytes + policy._main_bytes == sizes
    assert interrupted > 2  # on Python 3.14 there are few allocations: it keeps freed ints
