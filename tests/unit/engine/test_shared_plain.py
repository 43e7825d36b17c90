"""Shortcuts for plain shared items behave like the general path, even under concurrent changes."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from memlite.core.clock import Clock
from memlite.core.errors import CommandError
from memlite.engine import Outcome
from memlite.engine.semantics import Mode
from memlite.engine.shared import SharedEngine, SharedItems
from memlite.engine.shared_plain import PlainSharedEngine
from memlite.memory import Part
from memlite.memory.shared import Mapping, native
from memlite.telemetry.counters import Counters

MEGABYTE = 1024 * 1024
KEYS = [b"a", b"b", b"c" * 250]
COMMANDS = 1000
_LEAST_LEFT = 20  # of the seconds that an item with an expiry is given
TWINS = [False, pytest.param(True, marks=pytest.mark.skipif(native() is None, reason="no C"))]


def make(kind: type[SharedEngine], compiled: bool, cas: bool = True) -> SharedEngine:
    # Nothing is evicted: the time of an eviction depends on the number of records written.
    mapping = Mapping(16 * MEGABYTE, 64 * 1024, 2, compiled=compiled)
    items = SharedItems(mapping, 16 * MEGABYTE)
    return kind(items, Clock(), Counters(), item_size=64 * 1024, cas=cas)


def lines(engine: SharedEngine, keys: list[bytes]) -> list[Part]:
    """Carry out a get of several keys, as the text protocol does."""
    out: list[Part] = []
    if not engine.collect_lines([b"get %b\r\n" % key for key in keys], out):
        engine.collect(keys, out)
        out.append(b"END\r\n")
    return [b"".join(out)]


def get(engine: SharedEngine, key: bytes) -> object:
    line = b"get %b\r\n" % key
    return engine.try_get(line) or engine.miss(line) or lines(engine, [key])


def mg(engine: SharedEngine, key: bytes) -> object:
    item = engine.fetch_plain(key)
    if item is not None:
        return item.wire
    if engine.is_miss(b"get %b\r\n" % key):
        return None
    found = engine.retrieve(key)
    return None if found is None else found.item.wire


def gat(engine: SharedEngine, key: bytes, exptime: int) -> object:
    item = engine.retime_plain(key, exptime) or engine.fetch_and_touch(key, exptime)
    return None if item is None else item.wire


def number(engine: SharedEngine, key: bytes, delta: int, down: bool) -> object:
    return engine.decr(key, delta) if down else engine.incr(key, delta)


def stored(engine: SharedEngine, key: bytes) -> object:
    """Return an item's state, without its cas unique, which differs by table; not a read."""
    item = engine.table.get(key)
    if item is None or (item.expires and item.expires <= engine.clock.now()):
        return None
    left = item.expires - engine.clock.now()
    lives = not item.expires or left > _LEAST_LEFT
    return item.wire, item.fetched, bool(item.expires), lives, item.meta_flags


Command = Callable[[SharedEngine], object]


def any_command(chance: random.Random) -> Command:
    key, other = chance.choices(KEYS, k=2)
    value = chance.choice([b"7", b"9", b"99", b"x", b"", b"y" * 3000, b"10  "])
    exptime = chance.choice([0, 0, 100, -1])
    delta = chance.choice([0, 1, 5, 10**18])
    down = chance.random() < 0.5
    flags = chance.randrange(3)

    def cas(engine: SharedEngine) -> object:
        item = engine.table.get(key)
        unique = item.unique if item is not None and delta else 12345
        return engine.cas(key, flags, exptime, value, unique)

    return chance.choice(
        [
            lambda e: e.set(key, flags, exptime, value),
            lambda e: e.add(key, flags, exptime, value),
            lambda e: e.replace(key, flags, exptime, value),
            lambda e: e.append(key, flags, exptime, value),
            lambda e: e.prepend(key, flags, exptime, value),
            cas,
            lambda e: get(e, key),
            lambda e: lines(e, [key, other, key]),
            lambda e: mg(e, key),
            lambda e: gat(e, key, exptime),
            lambda e: e.touch(key, exptime),
            lambda e: number(e, key, delta, down),
            lambda e: e.delete(key),
            lambda e: e.store(Mode.SET, key, 0, 0, value, unique=77)[0],
            lambda e: e.flush_all(0) if delta == 5 else None,
        ]
    )


def result(engine: SharedEngine, command: Command) -> object:
    try:
        return command(engine)
    except CommandError as error:
        return str(error)


@pytest.mark.parametrize("compiled", TWINS)
@pytest.mark.parametrize("cas", [True, False])
def test_shortcuts_agree_with_the_general_path(compiled: bool, cas: bool) -> None:
    quick, general = (make(kind, compiled, cas) for kind in (PlainSharedEngine, SharedEngine))
    chance = random.Random(3)
    for at in range(COMMANDS):
        command = any_command(chance)
        assert result(quick, command) == result(general, command), at
        for key in KEYS:
            assert stored(quick, key) == stored(general, key), at
        counts = [dict(zip(Counters.NAMES, one.counters.values(), strict=True))
                  for one in (quick, general)]  # fmt: skip
        assert counts[0] == counts[1], at
    assert quick.counters.incr_hits > 3
    assert (quick.counters.cas_hits > 3) is cas


CHANGES: dict[str, tuple[Callable[[SharedEngine], Any], Any, bytes | None]] = {
    "replace": (lambda e: e.replace(b"a", 0, 0, b"new"), Outcome.STORED, b"new"),
    "append": (lambda e: e.append(b"a", 0, 0, b"!"), Outcome.STORED, b"20!"),
    "prepend": (lambda e: e.prepend(b"a", 0, 0, b"!"), Outcome.STORED, b"!20"),
    "incr": (lambda e: e.incr(b"a", 5), 25, b"25"),
    "decr": (lambda e: e.decr(b"a", 5), 15, b"15"),
    "add": (lambda e: e.add(b"a", 0, 0, b"new"), Outcome.NOT_STORED, b"20"),
}
"""Commands, their outcomes, and the values they leave if another process has just stored 20."""


class _Interrupted:
    """A table that another process changes after each of the first `times` reads."""

    def __init__(self, engine: SharedEngine, times: int, change: Callable[[], object]) -> None:
        self._table, self._times, self._change = engine._shared, times, change

    def get(self, line: bytes) -> Any:
        found = self._table.get(line)
        if self._times:
            self._times -= 1
            self._change()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


@pytest.mark.parametrize("compiled", TWINS)
@pytest.mark.parametrize("times", [1, 3, 4])
@pytest.mark.parametrize("name", CHANGES)
def test_another_process_changes_the_item_meanwhile(name: str, times: int, compiled: bool) -> None:
    command, outcome, value = CHANGES[name]
    engine = make(PlainSharedEngine, compiled)
    if name != "add":
        engine.set(b"a", 0, 0, b"10")

    def change() -> None:
        engine._store_now(b"get a\r\n", b"VALUE a 0 2\r\n20\r\nEND\r\n", 0.0, None, 0, b"")

    engine._shared = _Interrupted(engine, times, change)  # type: ignore[assignment]
    assert command(engine) == outcome
    item = engine.table.get(b"a")
    assert item is not None
    assert item.wire.split(b"\r\n")[1] == value


@pytest.mark.parametrize("compiled", TWINS)
@pytest.mark.parametrize("name", ["incr", "decr", "append", "prepend"])
def test_another_process_touches_the_item_meanwhile(name: str, compiled: bool) -> None:
    command, outcome, value = CHANGES[name]
    engine = make(PlainSharedEngine, compiled)
    engine.set(b"a", 0, 0, b"20")
    far, shared = engine._expires(1000), engine._shared
    engine._shared = _Interrupted(  # type: ignore[assignment]
        engine, 1, lambda: shared.touch(b"get a\r\n", far)
    )
    assert command(engine) == outcome
    item = engine.table.get(b"a")
    assert item is not None
    assert item.expires == far
    assert item.wire.split(b"\r\n")[1] == value


@pytest.mark.parametrize("compiled", TWINS)
def test_a_cas_fails_if_another_process_comes_first(compiled: bool) -> None:
    engine = make(PlainSharedEngine, compiled)
    engine.set(b"a", 0, 0, b"10")
    item = engine.table.get(b"a")
    assert item is not None
    engine._shared = _Interrupted(  # type: ignore[assignment]
        engine, 1, lambda: engine._store_now(b"get a\r\n", item.wire, 0.0, None, 0, b"")
    )
    assert engine.cas(b"a", 0, 0, b"new", item.unique) is Outcome.EXISTS
    assert (engine.counters.cas_badval, engine.counters.cas_hits) == (1, 0)


@pytest.mark.parametrize("compiled", TWINS)
def test_gets_of_a_pipeline_are_answered_up_to_the_first_unusual_one(compiled: bool) -> None:
    engines = [make(PlainSharedEngine, compiled) for _ in range(2)]
    for engine in engines:
        for number in range(20):
            engine.set(b"k%d" % number, 0, 0, b"v%d" % number)
        engine.set(b"gone", 0, -1, b"x")
    usual = [b"get k%d\r\n" % number for number in range(20)] + [b"get absent\r\n"]
    unusual = [b"get k1 k2\r\n", b"get gone\r\n", b"gets k1\r\n", b"set k1 0 0 1\r\n", b"x\r\n"]
    chance = random.Random(5)
    for _ in range(200):
        batch = chance.choices([*usual, chance.choice(unusual)], k=chance.randrange(1, 30))
        out: list[Part] = []
        served = engines[0].serve_lines(batch, out)
        expected: list[Part] = []
        for line in batch:
            reply = engines[1].try_get(line) or engines[1].miss(line)
            if reply is None:
                break
            expected.append(reply)
        assert (served, out) == (len(expected), expected)
        first, second = (engine.counters for engine in engines)
        assert (first.hits, first.get_misses) == (second.hits, second.get_misses)
    engines[0].observed = True
    assert engines[0].serve_lines(usual, []) == 0
