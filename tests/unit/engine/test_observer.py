"""The engine's reports to an observer that tests over the network cannot check."""

import pytest

from memlite.core.errors import OutOfMemoryError
from memlite.engine.observer import EXPIRED, FLUSHED, FOUND, NOT_FOUND
from memlite.engine.prefixes import PrefixStats
from tests.unit.engine.fixture import Fixture, size_of


class Notes:
    """An observer that records all reports."""

    def __init__(self, commands=True):
        self.wants_commands = commands
        self.taken = []

    def fetched(self, key, item, state):
        assert (item is not None) == (state == FOUND)
        self.taken.append((key, state))

    def stored(self, command, key, flags, size, expires, status):
        self.taken.append((command, key, flags, size, expires, status))

    def deleted(self, command, key, item):
        self.taken.append((command, key, item.value))

    def evicted(self, key, item):
        self.taken.append(("evicted", key, item.value))

    def take(self):
        taken, self.taken = self.taken, []
        return taken


@pytest.fixture
def one():
    one = Fixture()
    one.notes = Notes()
    one.engine.observe(None, one.notes)
    return one


def test_the_reasons_for_misses_are_reported(one):
    one.set(b"gone", exptime=5)
    one.set(b"flushed")
    one.wait(10)
    one.notes.take()
    one.engine.fetch(b"gone")
    one.engine.delete(b"gone")
    one.engine.add(b"soon", 0, 5, b"x")
    one.wait(10)
    one.engine.add(b"soon", 0, 0, b"x")
    one.engine.flush_all(0)
    one.engine.collect([b"flushed", b"flushed"], [])
    assert [note for note in one.notes.take() if len(note) == 2] == [
        (b"gone", EXPIRED), (b"gone", NOT_FOUND), (b"soon", NOT_FOUND), (b"soon", EXPIRED),
        (b"flushed", FLUSHED), (b"flushed", NOT_FOUND),
    ]  # fmt: skip


def test_no_room(one):
    one = Fixture(size_of(b"a", b"x" * 100), evict=False)
    notes = Notes()
    one.engine.observe(None, notes)
    one.set(b"a", b"x" * 100)
    with pytest.raises(OutOfMemoryError):
        one.set(b"a", b"x" * 117, flags=7)
    assert notes.take()[2:] == [(b"a", FOUND), ("set", b"a", 7, 117, 0.0, "no_memory")]
    assert one.value(b"a") is None


@pytest.mark.parametrize("commands", [True, False])
def test_evictions_are_reported_whether_or_not_commands_are(commands):
    one = Fixture(size_of(b"a", b"x"))
    notes = Notes(commands)
    one.engine.observe(None, notes)
    assert one.engine.observed is commands
    one.set(b"a", b"x")
    one.set(b"b", b"y")
    told = notes.take()
    assert ("evicted", b"a", b"x") in told
    assert len(told) == (5 if commands else 1)


def test_evicting_an_expired_item_is_not_an_eviction(one):
    one = Fixture(size_of(b"a", b"x", expires=1.0))
    notes = Notes(commands=False)
    one.engine.observe(None, notes)
    one.set(b"a", b"x", exptime=5)
    one.wait(10)
    one.set(b"b", b"y")
    assert notes.take() == []


def test_counts_do_not_depend_on_watchers():
    counted = []
    for observer in (None, Notes()):
        for prefixes in (None, PrefixStats()):
            one = Fixture()
            one.engine.observe(prefixes, observer)
            one.set(b"a:b", exptime=5)
            one.set(b"a:b", b"1")
            one.engine.add(b"a:b", 0, 0, b"x")
            one.engine.collect([b"a:b", b"c"], [])
            one.engine.try_get(b"get a:b\r\n") or one.engine.fetch(b"a:b")
            one.engine.incr(b"a:b", 1)
            one.engine.count(b"n", 1, initial=5)
            one.engine.touch(b"c", 1)
            one.engine.delete(b"a:b")
            one.engine.delete(b"a:b")
            counted.append(tuple(one.counters.take().items()))
            if prefixes is not None:
                assert prefixes.dump().startswith(b"PREFIX a get 2 hit 2 set 3 del 2\r\n")
    assert len(set(counted)) == 1
