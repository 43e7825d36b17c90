"""The engine for shared items, in one process."""

from memlite.core.clock import Clock
from memlite.engine import Outcome
from memlite.engine.shared import SharedEngine, SharedItems
from memlite.memory.shared import Mapping
from memlite.telemetry.counters import Counters

MEGABYTE = 1024 * 1024


def test_adding_makes_room_in_the_index() -> None:
    mapping = Mapping(2 * MEGABYTE, 64 * 1024, 2)
    engine = SharedEngine(SharedItems(mapping, 2 * MEGABYTE), Clock(), Counters())
    for number in range(20_000):
        assert engine.add(b"k%d" % number, 0, 0, b"x") is Outcome.STORED
    engine.count_evicted()
    assert engine.counters.evictions > 0
