"""A process's cache of recently found items never shows what another process has changed."""

import random
import time
from collections.abc import Callable

import pytest

from memlite.memory.item import wire_form
from memlite.memory.shared import Mapping, SharedTable, native, near
from memlite.memory.shared.layout import META, ORDER_AT
from memlite.memory.shared.python_table import PureTable

SIZE = 1 << 20
ITEM = 16 * 1024
OTHERS = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(native() is None, reason="no table in C")),
]


def line(number: int) -> bytes:
    return b"get key-%d\r\n" % number


def reply(number: int, value: bytes) -> bytes:
    return wire_form(b"key-%d" % number, 0, value)


def put(
    table: SharedTable, number: int, value: bytes, expires: float = 0.0, kind: int = 0
) -> bytes:
    wire = reply(number, value)
    extra = bytes(9) if kind else b""
    assert table.store(line(number), wire, expires, None, kind, extra) > 0
    return wire


def tables(other: bool) -> tuple[Mapping, PureTable, SharedTable]:
    mapping = Mapping(SIZE, ITEM, 2, compiled=False)
    mapping.attach(compiled=other).init_locks()
    one, another = mapping.table, mapping.attach(compiled=other)
    for number, table in enumerate((one, another)):
        table.attach(number)
        table.offset = time.time() - time.monotonic()
    assert isinstance(one, PureTable)
    return mapping, one, another


def warm(table: PureTable, number: int) -> None:
    """Read an item until its reply is cached."""
    for _ in range(5):
        assert table.find(line(number))
    assert line(number) in table._hot


CHANGES: dict[str, Callable[[SharedTable], object]] = {
    "delete": lambda table: table.delete(line(1), None),
    "flush": lambda table: table.flush(0.0),
    "expire": lambda table: table.touch(line(1), time.time() - 1),
    "give flags": lambda table: put(table, 1, b"one", kind=META),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("expires", [0.0, 1000.0])
def test_items_removed_elsewhere_are_not_found(change: str, expires: float, other: bool) -> None:
    _, one, another = tables(other)
    put(another, 1, b"one", expires and time.time() + expires)
    put(another, 2, b"two")
    warm(one, 1)
    CHANGES[change](another)
    assert one.find(line(1)) is None
    assert one.find_all([line(1)], stop=True) == [None]


@pytest.mark.parametrize("other", OTHERS)
def test_items_stored_elsewhere_are_found(other: bool) -> None:
    _, one, another = tables(other)
    for turn in range(10):
        new = put(another, 1, b"%d" % turn)
        assert one.find_all([line(1)] * 5, stop=False) == [new] * 5
        warm(one, 1)


@pytest.mark.parametrize("other", OTHERS)
def test_a_delayed_flush_applies_to_replies_cached_before_and_meanwhile(other: bool) -> None:
    _, one, another = tables(other)
    put(another, 1, b"one")
    warm(one, 1)
    another.flush(time.time() + 100)
    for _ in range(5):
        assert one.find(line(1))
    for table in (one, another):
        table.offset += 200
    assert one.find(line(1)) is None
    new = put(another, 1, b"two")
    assert one.find(line(1)) == new


def test_cached_replies_expire_on_time_and_may_be_prolonged() -> None:
    _, one, another = tables(False)
    now = time.time()
    put(one, 1, b"one", now + 100)
    warm(one, 1)
    another.touch(line(1), now + 300)
    one.offset += 200
    warm(one, 1)
    one.offset += 200
    assert one.find(line(1)) is None
    assert one.find_all([line(1)], stop=False) == [None]


def test_use_is_recorded_in_each_second() -> None:
    _, one, another = tables(False)
    put(one, 1, b"one")
    for second in (5, 6):
        one.second = second
        warm(one, 1)
        stored = another.get(line(1))
        assert stored is not None
        assert stored[3] == second << 5 | 0b111


@pytest.mark.parametrize("other", OTHERS)
def test_no_old_value_is_found_while_segments_are_reused(other: bool) -> None:
    mapping, one, another = tables(other)
    chance = random.Random(4)
    values: dict[int, bytes] = {}
    for turn in range(12_000):
        number = min(int(chance.paretovariate(0.4)), 3000)
        if chance.random() < 0.6:
            values[number] = put(another, number, b"%06d" % turn * chance.choice([200, 201]))
        elif chance.random() < 0.8:
            assert one.find(line(number)) in (None, values.get(number))
        else:
            several = [number, number % 7, number % 50]
            found = one.find_all([line(each) for each in several], stop=False)
            for each, wire in zip(several, found, strict=True):
                assert wire in (None, values.get(each))
    assert mapping._words[ORDER_AT // 8] > 3 * mapping.layout.segments
    assert one._hot
    mapping.verify()


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "_AT_MOST", 50_000)
    _, one, _ = tables(False)
    for number in range(300):
        put(one, number, b"v" * 100)
        warm(one, number)
        assert len(one._near._known) <= 100
    put(one, 300, b"v" * 15_900)
    for _ in range(5):
        assert one.find(line(300))
    assert one._near._size <= 50_000


def test_lacks_is_true_once_and_only_for_the_last_missing_key() -> None:
    _, one, another = tables(False)
    missing = line(1)
    assert one.find(missing) is None
    assert one.lacks(missing)
    assert not one.lacks(missing)
    put(another, 2, b"two", time.time() - 1)
    expired = line(2)
    assert one.find(expired) is None
    assert not one.lacks(expired)


def test_find_all_may_stop_at_the_first_missing_key() -> None:
    _, one, _ = tables(False)
    first = put(one, 1, b"one")
    third = put(one, 3, b"three")
    lines = [line(number) for number in (1, 2, 3)]
    for _ in range(5):
        assert one.find_all(lines, stop=True) == [first, None]
        assert one.find_all(lines, stop=False) == [first, None, third]


def test_another_record_at_the_same_place_is_found() -> None:
    mapping, one, another = tables(False)
    assert isinstance(another, PureTable)

    def put_first(value: bytes) -> bytes:
        """Store an item at the beginning of a segment."""
        assert another._open(1000)
        return put(another, 1, value)

    put_first(b"%06d" % 0)
    warm(one, 1)
    slot, word, *_ = one._hot[line(1)]
    for turn in range(1, 10 * mapping.layout.segments):
        new = put_first(b"%06d" % turn)
        if one._slots[slot] == word:
            break
    assert one._slots[slot] == word
    assert one.find(line(1)) == new
    assert one.find_all([line(1)], stop=True) == [new]
