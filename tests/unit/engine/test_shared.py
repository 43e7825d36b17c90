"""The engine for shared items, in one process."""

import random

import pytest

from memlite.core.clock import Clock
from memlite.engine import Outcome
from memlite.engine.shared import SharedEngine, SharedItems
from memlite.engine.shared_plain import PlainSharedEngine
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


@pytest.mark.parametrize("kind", [SharedEngine, PlainSharedEngine])
def test_a_number_of_any_length_has_room_for_a_unique(kind: type[SharedEngine]) -> None:
    mapping = Mapping(4 * MEGABYTE, 64 * 1024, 2)
    engine = kind(SharedItems(mapping, 4 * MEGABYTE), Clock(), Counters(), item_size=64 * 1024)
    chance = random.Random(3)
    for number in range(1, 400):
        size = chance.choice([1, 20, 1000, 30_000, 65_000, 65_400])
        engine.set(b"n", 5, 0, b"1".ljust(size))
        counted = engine.count(b"n", 1, unique=number, touch=chance.choice([None, 100]))
        assert (counted.outcome, counted.number) == (Outcome.STORED, 2)
        found = engine.fetch(b"n")
        assert found is not None
        assert (found.unique, found.flags, found.value) == (number, 5, b"2".ljust(size))
        counted = engine.count(b"n", 1, down=True, compare=number)
        assert (counted.outcome, counted.number) == (Outcome.STORED, 1)
        found = engine.fetch(b"n")
        assert found is not None
        assert found.unique not in (0, number), "the item has a new unique"
