"""The garbage collector as the server has it."""

import gc
import sys

import pytest

from memlite.backends import Item
from memlite.backends.item import wire_form
from memlite.config import Config
from memlite.server.collector import collect_young, drop_free_lists, tune_collector
from memlite.server.server import Server

SIZES, EACH = range(5, 15), 1000  # of tuples; Python keeps 2,000 of each size


@pytest.fixture
def tuned(request):
    before = gc.get_threshold()
    tune_collector(leaves_rings=request.param)
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def dropped():
    """Return how many of many tuples that were freed are free only once the lists are dropped."""
    tuples = [(None,) * size for size in SIZES for _ in range(EACH)]
    del tuples
    before = sys.getallocatedblocks()
    drop_free_lists()
    return before - sys.getallocatedblocks()


@pytest.mark.parametrize("tuned", [False], indirect=True)
def test_what_python_keeps_for_the_next_time_is_freed(tuned):
    assert dropped() > len(SIZES) * EACH // 2


@pytest.mark.parametrize("tuned", [True], indirect=True)
def test_where_old_rings_are_collected_nothing_is_frozen(tuned):
    before = gc.get_freeze_count()
    dropped()
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize("tuned", [False], indirect=True)
def test_young_rings_are_collected_before(tuned):
    drop_free_lists()
    before = gc.get_freeze_count()
    for _ in range(500):
        ring = []
        ring.append(ring)
    del ring
    drop_free_lists()
    assert gc.get_freeze_count() - before < 250


@pytest.fixture
def collections():
    """Return the generations that are collected from now on; of itself Python collects none."""
    found = []

    def note(phase, info):
        if phase == "start":
            found.append(info["generation"])

    gc.disable()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.enable()


def test_the_young_are_collected_and_now_and_then_the_middle_generation(collections):
    for _ in range(100):
        collect_young()
    assert len(collections) == 100
    assert collections.count(1) in (33, 34)
    assert collections.count(2) == 0


def test_a_server_collects_the_young_after_so_many_new_items(collections):
    """In a full cache, too, where as many go as come, and Python would not."""
    server = Server(Config(memory_limit=1), [])
    server._watch_memory()
    server.footprint = None  # what the process takes is no part of it
    for number in range(10_000):
        key = b"%d" % number
        server.table.put(key, Item(wire_form(key, 0, b"x" * 100), 0))
    assert server.counters.evictions > 1000
    assert len(collections) >= 10
