"""The table: figures as text, order, and width."""

import pytest

from memlite.top.readings import Figures, HotKey
from memlite.top.table import (
    COLUMNS,
    Row,
    hot_key_lines,
    lines,
    ordered,
    percent,
    seconds,
    short,
    size,
)

FULL = Figures(
    operations=123_456, gets=99_950, sets=12.25, hits=99_000, latency=0.00123, memory=52e6,
    memory_limit=67_108_864, items=1_234_567, evictions=0, connections=1024,
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.2"), (7, "7"), (99.94, "99.9"), (99.96, "100"), (999.4, "999"),
     (999.6, "1.00k"), (1234, "1.23k"), (12_345, "12.3k"), (123_456, "123k"), (999_499, "999k"),
     (999_600, "1.00M"), (1.5e9, "1.50G"), (9.9e15, "9.90P")],
)  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    assert short(value) == text
    assert len(text) <= 5


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1000, "0.98K"), (1023, "1.00K"), (64 * 1024**2, "64.0M"), (2**34, "16.0G")],
)
def test_sizes(value: float, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0%"), (0.5, "50%"), (0.991, "99.1%"), (0.9999, "100%"), (1, "100%")]
)
def test_shares(value: float, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0000004, "0.40µs"), (0.000123, "123µs"), (0.00123, "1.23ms"), (0.0123, "12.3ms"),
     (0.5, "500ms"), (1.5, "1.50s"), (123.4, "123s")],
)  # fmt: skip
def test_times(value: float, text: str) -> None:
    assert seconds(value) == text
    assert len(text) <= 6


def test_the_table_is_80_columns_wide() -> None:
    rows = [
        Row("127.0.0.1:11211", FULL),
        Row("cache-1.internal.example.com:11211", Figures()),
        Row("10.0.0.3:11211", Figures(), "Connection refused" + "!" * 100),
    ]
    found = list(lines(rows, 80, "o"))
    assert [line.kind for line in found] == ["title", "server", "server", "down", "total"]
    assert {len(line.text) for line in found} == {80}
    assert [line.text for line in found[:3]] == [
        "server               OPS/S get/s set/s   hit    p99   mem used items evi/s  conn",
        "127.0.0.1:11211       123k  100k  12.2 99.0% 1.23ms 49.6M  77% 1.23M     0 1.02k",
        "cache-1.in…com:11211     -     -     -     -      -     -    -     -     -     -",
    ]
    assert found[3].text.startswith("10.0.0.3:11211       down: Connection refused!!!")
    assert found[4].text.startswith("2 of 3 up             123k  100k ")


def test_one_server_has_no_totals() -> None:
    assert [line.kind for line in lines([Row("a", FULL)], 120)] == ["title", "server"]
    assert [line.kind for line in lines([], 80)] == ["title"]


def test_the_order() -> None:
    rows = [
        Row("b", Figures(gets=1, items=5)),
        Row("down", Figures(gets=9), "gone"),
        Row("a", Figures(gets=1)),
        Row("c", Figures(gets=3, items=7)),
    ]

    def names(letter: str, *, reverse: bool = False) -> list[str]:
        return [row.name for row in ordered(rows, letter, reverse=reverse)]

    assert names("g") == ["c", "a", "b", "down"]
    assert names("i") == ["c", "b", "a", "down"]  # unknown figures come last
    assert names("n") == ["a", "b", "c", "down"]
    assert names("n", reverse=True) == ["c", "b", "a", "down"]


def test_each_column_has_a_letter_of_its_own_and_room_for_its_title() -> None:
    assert len({column.letter for column in COLUMNS} | {"n", "q", "p", "r"}) == len(COLUMNS) + 4
    assert all(len(column.title) <= column.width for column in COLUMNS)


def test_hot_keys_of_all_servers() -> None:
    rows = [
        Row("one:11211", FULL, hot_keys=[HotKey("a" * 300, 50, 12.5), HotKey("b", 1, 0.1)]),
        Row("two:11211", FULL, hot_keys=[HotKey("c", 7000, 100)]),
        Row("three:11211", FULL, "gone", [HotKey("d", 9e9, 100)]),
    ]
    found = list(hot_key_lines(rows, 80, 2))
    assert [line.split() for line in found] == [
        ["c", "7.00k/s", "100.0%", "of", "two:11211"],
        ["a" * 25 + "…" + "a" * 24, "50/s", "12.5%", "of", "one:11211"],
    ]
    assert all(len(line) <= 80 for line in found)
