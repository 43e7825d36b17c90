"""The table in Python and the one in C, over one mapping and against a model."""

import os
import random
import time

import pytest

from memlite.core.errors import ConfigError
from memlite.engine.evicted import Evicted
from memlite.memory.item import wire_form
from memlite.memory.shared import Mapping, SharedTable, native
from memlite.memory.shared.layout import (
    EXPIRY,
    MAX_EVICTED,
    META,
    UNNAMED,
    Layout,
    record_size,
)

SIZE = 1 << 20
ITEM = 16 * 1024
needs_compiled = pytest.mark.skipif(native() is None, reason="the table in C is not compiled")
KINDS = [
    pytest.param("pure"),
    pytest.param("native", marks=needs_compiled),
    pytest.param("both", marks=needs_compiled),
]


def tables(kind: str) -> tuple[Mapping, list[SharedTable]]:
    mapping = Mapping(SIZE, ITEM, 2, compiled=kind != "pure")
    second = mapping.attach(compiled=kind == "native")
    both = [mapping.table, second]
    for number, table in enumerate(both):
        table.attach(number)
        table.offset = time.time() - time.monotonic()
    return mapping, both


def line(number: int) -> bytes:
    return b"get key-%d\r\n" % number


def reply(number: int, value: bytes) -> bytes:
    return wire_form(b"key-%d" % number, 0, value)


class Model:
    """The expected content of a table when nothing is evicted."""

    def __init__(self) -> None:
        self.items: dict[bytes, tuple[bytes, int]] = {}
        self.uniques: set[int] = set()

    def store(self, key: bytes, new: bytes, condition: int | None, result: int) -> None:
        present = self.items.get(key, (b"", 0))[1]
        if condition is not None and condition != present:
            assert result == 0
            return
        assert result > present
        assert result not in self.uniques
        self.uniques.add(result)
        self.items[key] = new, result


@pytest.mark.parametrize("kind", KINDS)
def test_random_operations_by_either_match_those_on_a_dict(kind: str) -> None:
    mapping, both = tables(kind)
    chance, model = random.Random(7), Model()
    for _ in range(6000):
        table, number = chance.choice(both), chance.randrange(200)
        key = line(number)
        what = chance.random()
        if what < 0.4:
            assert table.find(key) == model.items.get(key, (None,))[0]
        elif what < 0.7:
            new = reply(number, chance.randbytes(chance.randrange(60)))
            condition = chance.choice([None, None, 0, model.items.get(key, (b"", 3))[1]])
            model.store(key, new, condition, table.store(key, new, 0.0, condition, 0, b""))
        elif what < 0.85:
            assert table.delete(key, None) == (model.items.pop(key, None) is not None)
        elif what < 0.95:
            found = table.get(key)
            assert (found and (found[0], found[2])) == model.items.get(key)
        else:
            assert table.touch(key, 0.0) == (key in model.items)
        assert len(mapping) == len(model.items)
        if chance.random() < 0.002:
            mapping.table.flush(0.0)
            for one in list(model.items):
                assert both[0].find(one) is None
                both[1].delete(one, None)
            model.items.clear()
    mapping.verify()
    assert {b"get %b\r\n" % key for key in mapping.list_keys()} == set(model.items)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_table_evicts_the_oldest_and_keeps_used_items(kind: str) -> None:
    mapping, both = tables(kind)
    value = b"v" * 500
    stored = 5 * SIZE // 500
    for number in range(stored):
        table = both[number % 2]
        assert table.store(line(number), reply(number, value), 0.0, None, 0, b"") > 0
        assert both[number // 2 % 2].find(line(0)) == reply(0, value), "an item in use stays"
    mapping.verify()
    left = [number for number in range(stored) if both[0].find(line(number)) is not None]
    assert left[0] == 0
    assert left[1:] == sorted(left[1:])
    assert stored - 1 in left
    # Names of evicted keys have 15 bits: a few new keys are mistaken for returning ones.
    assert sum(number < stored // 2 for number in left[1:]) < 10
    assert mapping.used > SIZE * 0.7, "little of the memory is unused"
    assert sum(table.evictions for table in both) == stored - len(left)


@pytest.mark.parametrize("kind", KINDS)
def test_evictions_are_reported_while_a_watcher_follows(kind: str) -> None:
    mapping, both = tables(kind)
    feeds = [Evicted(mapping), Evicted(mapping)]
    feeds[1]._table = both[1]
    for feed in feeds:
        feed.follow(True)
    later = time.time() + 1000
    value = b"v" * 500
    stored = 2 * SIZE // 500
    for number in range(stored):
        table, name = both[number % 2], b"key-%d" % number
        wire = wire_form(name, number % 3, value)
        assert table.store(line(number), wire, later * (number % 2), None, 0, b"") > 0
        if number % 7 == 0:
            table.find(line(number))
    extra = [both[0].find(line(number)) for number in range(stored)]
    gone = {b"key-%d" % number for number, one in enumerate(extra) if one is None}
    told = {key: item for feed in feeds for key, item in feed.take(10 * stored)}
    assert told.keys() == gone
    for key, item in told.items():
        number = int(key[4:])
        assert (item.size, item.flags) == (500, number % 3)
        assert item.expires == (later if number % 2 else 0)
    assert {item.fetched for item in told.values()} == {False, True}
    assert [(feed.missed, len(feed)) for feed in feeds] == [(0, 0), (0, 0)]
    for feed in feeds:
        feed.follow(False)
    assert both[0].evicted is both[1].evicted is None


@pytest.mark.parametrize("kind", KINDS)
def test_evictions_that_are_not_taken_are_missed(kind: str) -> None:
    mapping, both = tables(kind)
    feed = Evicted(mapping)
    feed.follow(True)
    assert both[0].evicted is not None
    both[0].evicted += [b""] * (MAX_EVICTED - 10)
    feed._known -= MAX_EVICTED - 10
    for number in range(2 * SIZE // 500):
        assert both[0].store(line(number), reply(number, b"v" * 500), 0.0, None, 0, b"") > 0
    assert len(feed) == MAX_EVICTED
    assert feed.missed == both[0].evictions - 10
    assert feed.missed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_evicted_item_has_its_key_even_if_its_reply_lacks_it(kind: str) -> None:
    mapping, both = tables(kind)
    feed = Evicted(mapping)
    feed.follow(True)
    for number in range(2 * SIZE // 500):
        name = b"key %d" % number
        wire, more = wire_form(b"", 0, b"v" * 500), name + bytes(9)
        assert both[0].store(b"get %b\r\n" % name, wire, 0.0, None, META | UNNAMED, more) > 0
    taken = list(feed.take(5))
    assert [(key[:4], item.size) for key, item in taken] == [(b"key ", 500)] * 5


@pytest.mark.parametrize("kind", KINDS)
def test_items_that_are_read_survive_a_scan(kind: str) -> None:
    _, both = tables(kind)
    value = b"v" * 500
    for turn in range(3):
        for number in range(200):
            table = both[number % 2]
            if table.find(line(number)) is None:
                table.store(line(number), reply(number, value), 0.0, None, 0, b"")
        assert turn == 0 or all(both[0].find(line(number)) for number in range(200))
    for number in range(1000, 1000 + 5 * SIZE // 500):
        both[number % 2].store(line(number), reply(number, value), 0.0, None, 0, b"")
    left = sum(both[0].find(line(number)) is not None for number in range(200))
    assert left > 150


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_returns_soon_is_recognised(kind: str) -> None:
    _, both = tables(kind)
    value = b"v" * 500

    def scan(first: int) -> None:
        for number in range(first, first + 3 * SIZE // 500):
            both[0].store(line(number), reply(number, value), 0.0, None, 0, b"")

    scan(1000)
    known = [number for number in range(1000, 3000) if both[0].find(line(number)) is None][-100:]
    for number in known:
        both[0].store(line(number), reply(number, value), 0.0, None, 0, b"")
    scan(10_000)
    assert sum(both[1].find(line(number)) is not None for number in known) > 50


@pytest.mark.parametrize("kind", KINDS)
def test_dead_records_go_before_live_items(kind: str) -> None:
    mapping, both = tables(kind)
    value = b"v" * 500
    items = SIZE // 2 // 560
    for number in range(items):
        both[0].store(line(number), reply(number, value), 0.0, None, 0, b"")
    for turn in range(8 * items):  # half of the memory is live
        number = turn * 7919 % items
        assert both[turn % 2].store(line(number), reply(number, value), 0.0, None, 0, b"") > 0
    assert all(both[0].find(line(number)) for number in range(items))
    assert sum(table.evictions for table in both) == 0
    mapping.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_items_overwritten_again_and_again_do_not_pass_through_all_memory(kind: str) -> None:
    mapping, both = tables(kind)
    layout = mapping.layout
    for turn in range(4 * SIZE // 560):
        number = turn % 60
        value = b"%08d" % turn * 60
        for table in both:
            assert table.store(line(number), reply(number, value), 0.0, None, 0, b"") > 0
    written = [
        any(mapping._view[at : at + layout.segment_size])
        for at in range(layout.segments_at, SIZE - layout.segment_size + 1, layout.segment_size)
    ]
    assert sum(written) < len(written) // 4
    for number in range(60):
        assert both[0].find(line(number)) == both[1].find(line(number)) is not None
    mapping.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_expired_segments_go_before_live_items(kind: str) -> None:
    _, both = tables(kind)
    value, now = b"v" * 500, time.time()
    for number in range(500):
        both[0].store(line(number), reply(number, value), 0.0, None, 0, b"")
    for turn in range(5):
        for number in range(1000, 1800):
            expires = now + 100 * turn + 50
            both[1].store(line(number), reply(number, value), expires, 0, 0, b"")
        for table in both:
            table.offset += 100
    assert all(both[0].find(line(number)) for number in range(500))
    assert sum(table.evictions for table in both) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_without_eviction_a_store_fails_when_all_is_live(kind: str) -> None:
    mapping, both = tables(kind)
    value, chance = b"v" * 500, random.Random(9)
    for table in both:
        table.evicts = 0

    def put(number: int) -> bool:
        table = both[number % 2]
        return table.store(line(number), reply(number, value), 0.0, None, 0, b"") > 0

    stored = {number for number in range(3000) if put(number)}
    assert mapping.used > SIZE * 0.75
    assert stored >= set(range(1000))
    for _ in range(20):
        gone = chance.sample(sorted(stored), 40)
        for number in gone:
            assert both[0].delete(line(number), None)
        assert all(put(number) for number in gone[:30])
        stored -= set(gone[30:])
    assert all(both[1].find(line(number)) for number in stored)
    assert sum(table.evictions for table in both) == 0
    mapping.verify()


@pytest.mark.parametrize("evicts", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_are_killed_cost_no_memory(kind: str, evicts: int) -> None:
    mapping, both = tables(kind)
    for number in range(4 * mapping.layout.segments):
        # The worker's successor: it has the same number, but another object.
        table = mapping.attach(compiled=kind == "native" or (kind == "both" and number % 4 < 2))
        table.evicts = evicts
        table.attach(number % 2)
        assert table.store(line(number), reply(number, b"v" * 500), 0.0, None, 0, b"") > 0
        assert table.evictions == 0
    assert all(both[0].find(line(number)) for number in range(4 * mapping.layout.segments))
    mapping.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_without_eviction_dead_records_of_the_open_segment_are_reused(kind: str) -> None:
    _, both = tables(kind)
    for table in both:
        table.evicts = 0
    value, stored = b"v" * 500, 0
    while both[0].store(line(stored), reply(stored, value), 0.0, None, 0, b"") > 0:
        stored += 1
    gone = range(stored - 5, stored)
    for number in gone:
        assert both[1].delete(line(number), None)
    for number in gone:
        assert both[0].store(line(number), reply(number, value), 0.0, None, 0, b"") > 0
    assert all(both[1].find(line(number)) for number in range(stored))
    assert both[0].store(line(stored), reply(stored, value), 0.0, None, 0, b"") == -1


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_any_size_up_to_the_largest(kind: str) -> None:
    mapping, both = tables(kind)
    chance = random.Random(3)
    for number in range(600):
        new = reply(number % 50, chance.randbytes(chance.randrange(ITEM)))
        assert both[0].store(line(number % 50), new, 0.0, None, 0, b"") > 0
        assert both[1].find(line(number % 50)) == new
    assert both[0].store(line(1), bytes(2 * ITEM), 0.0, None, 0, b"") == -1
    mapping.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_fill_a_segment_to_the_last_byte(kind: str) -> None:
    mapping, both = tables(kind)
    each = mapping.layout.segment_size // 10
    length = each - record_size(0, 0)
    for number in range(10, 40):
        new = reply(number, bytes(length - len(reply(number, bytes(1000))) + 1000))
        assert record_size(len(new), 0) == each
        assert both[0].store(line(number), new, 0.0, None, 0, b"") > 0
    assert all(both[1].find(line(number)) for number in range(10, 40))


@pytest.mark.parametrize("kind", KINDS)
def test_slots_run_out_with_many_small_items(kind: str) -> None:
    mapping, both = tables(kind)
    for number in range(mapping.layout.slots * 256 * 2):
        assert both[0].store(line(number), reply(number, b""), 0.0, None, 0, b"") > 0
    assert len(mapping) > mapping.layout.slots * 256 // 8, "regions are small here, and uneven"
    mapping.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_expires_exactly_on_time(kind: str) -> None:
    _, both = tables(kind)
    now = time.time()
    both[0].store(line(1), reply(1, b"x"), now + 100, None, 0, b"")
    assert both[1].find(line(1))
    for table in both:
        table.offset += 200
    assert both[1].find(line(1)) is None
    assert both[0].touch(line(1), 0.0) is False
    assert both[0].store(line(1), reply(1, b"y"), 0.0, 0, 0, b"") > 0, "as if it were absent"
    assert both[0].touch(line(1), now + 300)
    assert both[1].find(line(1)) == reply(1, b"y")


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_may_leave_the_expiry_as_it_is(kind: str) -> None:
    mapping, both = tables(kind)
    expires = time.time() + 100
    for table in both:
        unique = table.store(line(1), reply(1, b"x"), 0.0, None, 0, b"")
        assert both[0].touch(line(1), expires)
        assert table.store(line(1), reply(1, b"y"), 0.0, unique, EXPIRY, b"") > unique
        assert both[0].get(line(1))[:2] == (reply(1, b"y"), expires)
        assert table.store(line(2), reply(2, b"x"), expires, None, EXPIRY, b"") > 0
        assert both[0].get(line(2))[1] == expires, "with no expiry to keep, the given one applies"
    mapping.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_other_lines_find_nothing(kind: str) -> None:
    _, both = tables(kind)
    both[0].store(line(1), reply(1, b"x"), 0.0, None, 0, b"")
    for other in (
        b"",
        b"get key-1",
        b"get key-1\n",
        b"gat key-1\r\n",
        b"get key-1 \r\n",
        b"x" * 300,
    ):
        assert both[0].find(other) is both[1].find(other) is None


def test_an_item_takes_less_than_215_bytes() -> None:
    size = 64 << 20
    layout = Layout.of(size, 1 << 20, 4)
    record = record_size(len(wire_form(b"k" * 20, 0, b"v" * 100)), 0)
    usable = (layout.segments - 5) * layout.segment_size // record  # four open ones, and one free
    assert usable <= layout.slots * 256 / 8 * 7
    assert size / usable < 215


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"4 workers and items of 1048576 bytes .* at least -m 9"):
        Layout.of(2 << 20, 1 << 20, 4)
    Layout.of(9 << 20, 1 << 20, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lower_limit_gives_memory_back(kind: str) -> None:
    mapping, both = tables(kind)
    segment = mapping.layout.segment_size
    value = b"v" * 500

    def fill() -> int:
        for number in range(3 * SIZE // 500):
            table = both[number % 2]
            assert table.store(line(number), reply(number, value), 0.0, None, 0, b"") > 0
        mapping.verify()
        return mapping.used

    def taken() -> int:
        return os.fstat(mapping.attach()._file).st_blocks * 512  # type: ignore[attr-defined]

    before, memory = fill(), taken()
    assert mapping.resize(SIZE // 2)
    assert mapping.limit == SIZE // 2
    while mapping.settle():
        mapping.verify()
    assert not mapping.over
    assert memory - taken() >= SIZE // 2
    assert mapping.used < before - SIZE // 2 + 4 * segment
    small = fill()
    assert small < before - SIZE // 2 + 4 * segment
    assert not mapping.resize(SIZE + 1)
    assert not mapping.resize(segment)
    assert mapping.resize(SIZE)
    assert taken() == memory
    assert fill() > before - 3 * segment


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_given_back_before_a_segment_may_be_reused(kind: str) -> None:
    mapping, both = tables(kind)
    segment = mapping.layout.segment_size
    file: int = mapping.attach()._file  # type: ignore[attr-defined]
    assert mapping.resize(SIZE - segment)
    before = os.fstat(file).st_blocks * 512
    assert both[1].park() >= 0  # its process may be stopped now
    assert before - os.fstat(file).st_blocks * 512 == segment
    assert mapping.resize(SIZE)
    assert os.fstat(file).st_blocks * 512 == before


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_listed_while_segments_are_reused(kind, monkeypatch):
    mapping, both = tables(kind)
    names = {b"key-%d" % number for number in range(20)}
    for number in range(20):
        assert both[0].store(line(number), reply(number, b"x" * 900), 0.0, None, 0, b"") > 0
    read, times = mapping._key_at, 0

    def later(place):
        nonlocal times
        times += 1
        for number in range(60 if times < 10 else 0):  # once the slots have been copied
            new = reply(number % 20, b"x" * 900)
            assert both[1].store(line(number % 20), new, 0.0, None, 0, b"") > 0
        return read(place)

    monkeypatch.setattr(mapping, "_key_at", later)
    assert {key for batch in mapping.key_batches() for key in batch} == names
    assert times > 20


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_store_passes_over_a_whole_segment(kind: str, new: bool) -> None:
    """Few items of each segment are dead, or, with `new`, none."""
    mapping = Mapping(12 << 20, 512 * 1024, 2, compiled=kind != "pure")
    both = [mapping.table, mapping.attach(compiled=kind == "native")]
    for number, table in enumerate(both):
        table.attach(number)
        table.offset = time.time() - time.monotonic()
    value = b"v" * 400  # so that room runs out before slots
    each = record_size(len(reply(10_000, value)), 0)
    items = mapping.layout.segments * 3 // 4 * mapping.layout.segment_size // each
    chance, most = random.Random(5), 0
    for number in range(3 * items):
        key = 10_000 + (number if new or number < items else chance.randrange(items))
        table = both[number % 2]
        before = table.reinserted + table.evictions
        assert table.store(line(key), reply(key, value), 0.0, None, 0, b"") > 0
        most = max(most, table.reinserted + table.evictions - before)
    assert sum(table.reinserted + table.evictions for table in both) > items // 2
    assert 100 < most <= 256 < mapping.layout.segment_size // each // 2
    mapping.verify()
