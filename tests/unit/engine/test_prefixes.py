"""Counts by key prefix."""

from memlite.engine.prefixes import PrefixStats
from tests.unit.engine.fixture import Fixture


def test_prefixes():
    one = Fixture()
    engine = one.engine
    one.set(b"user:0")  # not collected yet
    engine.observe(PrefixStats(), None)
    one.set(b"user:1")
    engine.add(b"user:1", 0, 0, b"x")
    engine.append(b"item:", 0, 0, b"x")
    one.set(b"none")
    engine.fetch(b"user:1")
    engine.fetch(b"user:2")
    engine.fetch_and_touch(b"user:1", 0)
    engine.fetch(b"none")
    engine.delete(b"user:1")
    engine.delete(b"user:1")
    engine.incr(b"user:1", 1)
    engine.touch(b"user:1", 1)
    assert engine.prefixes.dump() == (
        b"PREFIX user get 3 hit 2 set 2 del 2\r\nPREFIX item get 0 hit 0 set 1 del 0\r\nEND\r\n"
    )
    engine.prefixes.clear()
    assert engine.prefixes.dump() == b"END\r\n"


def test_prefixes_end_at_the_first_delimiter():
    prefixes = PrefixStats(b"/")
    prefixes.record_get(b"a/b/c", True)
    prefixes.record_get(b"a:b", True)
    prefixes.record_set(b"/x")
    assert prefixes.dump() == (
        b"PREFIX a get 1 hit 1 set 0 del 0\r\nPREFIX  get 0 hit 0 set 1 del 0\r\nEND\r\n"
    )


def test_prefixes_are_bounded():
    prefixes = PrefixStats(at_most=2)
    for key in (b"a:", b"b:", b"c:", b"a:"):
        prefixes.record_delete(key)
    assert prefixes.dump() == (
        b"PREFIX a get 0 hit 0 set 0 del 2\r\nPREFIX b get 0 hit 0 set 0 del 1\r\nEND\r\n"
    )
