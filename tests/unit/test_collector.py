"""The garbage collector as the server has it."""

import gc
import sys

import pytest

from memlite.server.collector import drop_free_lists, tune_collector

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
