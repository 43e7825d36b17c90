"""The table of servers: columns, their order, and figures as text. Without I/O."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memlite.top.readings import Figures, HotKey, totals

__all__ = ["COLUMNS", "NAME", "Column", "Line", "Row", "hot_key_lines", "lines", "ordered"]

NAME: Final = "n"
"""The letter that stands for the servers' names."""

_LEAST_NAME: Final = 12
_UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """A server.

    Attributes:
        name: its address.
        figures: its figures.
        trouble: why it does not answer; empty if it does.
        hot_keys: its hottest keys.
    """

    name: str
    figures: Figures
    trouble: str = ""
    hot_keys: Sequence[HotKey] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures.

    Attributes:
        letter: the key that sorts by it.
        title: the title, of at most `width` characters.
        width: width in characters.
        value: returns its figure; None if unknown.
        text: returns a figure as text.
    """

    letter: str
    title: str
    width: int
    value: Callable[[Figures], float | None]
    text: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table.

    Attributes:
        kind: ``title``, ``server``, ``down`` or ``total``.
        text: the text, as wide as the table.
    """

    kind: str
    text: str


def short(value: float, step: int = 1000, units: str = " kMGTP") -> str:
    """Return a number in at most five characters: 999, 1.23k, 12.3k, 123M."""
    unit = 0
    while value >= 999.5 and unit < len(units) - 1:
        value /= step
        unit += 1
    digits = 0 if value >= 99.95 or (unit == 0 and value == int(value)) else 1
    if unit and value < 9.995:
        digits = 2
    return f"{value:.{digits}f}{units[unit].strip()}"


def size(value: float) -> str:
    """Return a number of bytes in at most five characters."""
    return short(value, 1024, " KMGTP")


def percent(value: float) -> str:
    """Return a share as a percentage, whole except close to 100."""
    shown = 100 * value
    return f"{shown:.1f}%" if 99 <= shown < 99.95 else f"{shown:.0f}%"


def seconds(value: float) -> str:
    """Return a time in at most six characters."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        scaled = value * factor
        if scaled >= 1 or unit == "µs":
            digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
            return f"{scaled:.{digits}f}{unit}"
    raise AssertionError  # the loop has returned


COLUMNS: Final = (
    Column("o", "OPS/S", 5, lambda found: found.operations, short),
    Column("g", "GET/S", 5, lambda found: found.gets, short),
    Column("s", "SET/S", 5, lambda found: found.sets, short),
    Column("h", "HIT", 5, lambda found: found.hit_ratio, percent),
    Column("l", "P99", 6, lambda found: found.latency, seconds),
    Column("m", "MEM", 5, lambda found: found.memory, size),
    Column("u", "USED", 4, lambda found: found.memory_share, "{:.0%}".format),
    Column("i", "ITEMS", 5, lambda found: found.items, short),
    Column("e", "EVI/S", 5, lambda found: found.evictions, short),
    Column("c", "CONN", 5, lambda found: found.connections, short),
)
_BY_LETTER: Final = {column.letter: column for column in COLUMNS}
_WIDTH: Final = sum(column.width + 1 for column in COLUMNS)


def ordered(rows: Sequence[Row], letter: str, *, reverse: bool = False) -> list[Row]:
    """Return rows sorted by a column, highest first, or by name; servers that are down come last.

    Args:
        rows: the rows.
        letter: `Column.letter`, or `NAME`.
        reverse: whether to reverse the order.
    """
    up = sorted((row for row in rows if not row.trouble), key=lambda row: row.name)
    down = sorted((row for row in rows if row.trouble), key=lambda row: row.name)
    column = _BY_LETTER.get(letter)
    if column is not None:
        up.sort(key=lambda row: -_value(column, row))
    if reverse:
        up.reverse()
    return up + down


def _value(column: Column, row: Row) -> float:
    value = column.value(row.figures)
    return -1.0 if value is None else value


def lines(rows: Sequence[Row], width: int, letter: str = "") -> Iterator[Line]:
    """Yield the lines of the table: titles, servers, and totals if there are several.

    Args:
        rows: the servers, in order.
        width: width in characters; the table is at least 72 wide.
        letter: the column by which they are sorted, which is marked.
    """
    name_width = max(_LEAST_NAME, width - _WIDTH)
    yield Line("title", _line(_marked("SERVER", letter == NAME), name_width, _titles(letter)))
    for row in rows:
        if row.trouble:
            text = f"{_cut(row.name, name_width):{name_width}} down: {row.trouble}"
            yield Line("down", text[: name_width + _WIDTH])
        else:
            yield Line("server", _line(row.name, name_width, _cells(row.figures)))
    up = [row.figures for row in rows if not row.trouble]
    if len(rows) > 1:
        yield Line("total", _line(f"{len(up)} of {len(rows)} up", name_width, _cells(totals(up))))


def hot_key_lines(rows: Sequence[Row], width: int, most: int) -> Iterator[str]:
    """Yield the hottest keys of all servers, a line for each.

    Args:
        rows: the servers.
        width: width in characters.
        most: the maximum number of lines.
    """
    found = [(hot, row.name) for row in rows if not row.trouble for hot in row.hot_keys]
    found.sort(key=lambda one: -one[0].per_second)
    for hot, name in found[:most]:
        figures = f"{short(hot.per_second):>7}/s {hot.percent:>5.1f}% of "
        name_width = min(len(name), max(_LEAST_NAME, width // 3))
        key_width = max(8, width - len(figures) - name_width - 1)
        yield f"{_cut(hot.key, key_width):{key_width}} {figures}{_cut(name, name_width)}"


def _titles(letter: str) -> list[str]:
    return [_marked(column.title, column.letter == letter) for column in COLUMNS]


def _marked(title: str, marked: bool) -> str:
    return title.lower() if not marked else title


def _cells(figures: Figures) -> list[str]:
    found = [(column, column.value(figures)) for column in COLUMNS]
    return [_UNKNOWN if value is None else column.text(value) for column, value in found]


def _line(name: str, name_width: int, cells: Sequence[str]) -> str:
    shown = [cell.rjust(column.width) for column, cell in zip(COLUMNS, cells, strict=True)]
    return " ".join([f"{_cut(name, name_width):{name_width}}", *shown])


def _cut(text: str, width: int) -> str:
    """Shorten a text that is too long, by omitting its middle."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"
