"""The server's tuning of the garbage collector."""

import gc
import sys

import pytest

from memlite.config import Config
from memlite.memory import Item
from memlite.memory.item import wire_form
from memlite.server.server import Server
from memlite.server.upkeep.collector import collect_young, drop_free_lists, tune_collector

SIZES, EACH = range(5, 15), 1000  # of tuples; Python keeps 2,000 of each size


@pytest.fixture
def tuned(request):
    before = gc.get_threshold()
    tune_collector(leaves_rings=request.param)
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as before the test: see tests/conftest.py
    gc.set_threshold(*before)


def dropped():
    """Return how many freed tuples are released only when the free lists are cleared."""
    tuples = [(None,) * size for size in SIZES for _ in range(EACH)]
    del tuples
    before = sys.getallocatedblocks()
    drop_free_lists()
    return before - sys.getallocatedblocks()


@pytest.mark.parametrize("tuned", [False], indirect=True)
def test_free_lists_are_cleared(tuned):
    assert dropped() > len(SIZES) * EACH // 2


@pytest.mark.parametrize("tuned", [True], indirect=True)
def test_nothing_is_frozen_if_old_cycles_are_collected(tuned):
    before = gc.get_freeze_count()
    dropped()
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize("tuned", [False], indirect=True)
def test_young_cycles_are_collected_before_freezing(tuned):
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
    """Return the generations that are collected from now on. Python itself collects none."""
    found = []

    def note(phase, info):
        if phase == "start":
            found.append(info["generation"])

    gc.disable()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.enable()


def test_the_young_and_sometimes_the_middle_generation_are_collected(collections):
    for _ in range(100):
        collect_young()
    assert len(collections) == 100
    assert collections.count(1) in (33, 34)
    assert collections.count(2) == 0


def test_a_server_collects_the_young_generation_after_some_new_items(collections):
    """A full cache is included. Python would not collect there: evictions balance new items."""
    server = Server(Config(memory_limit=1), [])
    server.upkeep.watch_memory()
    server.upkeep.footprint._resident = lambda: 0  # objects of the process itself do not count
    for number in range(10_000):
        key = b"%d" % number
        server.table.put(key, Item(wire_form(key, 0, b"x" * 100), 0))
    assert server.counters.evictions > 1000
    assert len(collections) >= 10
