"""Tables of a page, which readers can download as CSV or LaTeX."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from memlite.loadtest.cells import PER_SECOND, UNKNOWN, Cell

__all__ = ["Column", "Table", "as_table"]

Value: TypeAlias = str | float | None

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "µ": r"\textmu{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "∞": r"$\infty$",
    "·": r"$\cdot$",
    "²": "$^2$",
    "σ": r"$\sigma$",
    "κ": r"$\kappa$",
    "–": "--",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{NO-BREAK SPACE}": "~",
} | {character: f"\\{character}" for character in "&%$#_{}"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        heading: its heading, with the unit of its numbers if they are not labelled.
        text: whether it contains text instead of numbers.
    """

    heading: str
    text: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        name: unique on the page; letters, digits and dashes.
        title: its title.
        columns: the columns; the first one names the row.
        rows: the cells of each row; cells with numbers are of type `Cell`.
        note: how to read it; may be empty.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @property
    def csv(self) -> str:
        """The table as CSV (RFC 4180, with lines that end in a newline alone).

        Each number has its own cell, as in `values`; unknown numbers are empty.
        """
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows(self.values)
        return stream.getvalue()

    @property
    def values(self) -> list[list[Value]]:
        """The headings and the rows for programs: one number in a cell, units in the headings.

        If the rows have different units, these are in a separate column.
        """
        columns = [_column(cells) for cells in zip(*self.rows, strict=True)]
        by_row = any(len(units) > 1 for column in columns for units in column.values())
        head: list[Value] = []
        for shown, column in zip(self.columns, columns, strict=False):
            head += [_heading(shown.heading, of, units, by_row) for of, units in column.items()]
        rows = [
            [
                value
                for cell, column, shown in zip(row, columns, self.columns, strict=True)
                for value in _values(cell, column, text=shown.text)
            ]
            for row in self.rows
        ]
        if by_row:
            head.insert(1, "Unit")
            for shown_row, row in zip(self.rows, rows, strict=True):
                row.insert(1, _unit(shown_row))
        return [head or [column.heading for column in self.columns], *rows]

    @property
    def latex(self) -> str:
        """The table as LaTeX, with the rules of the package ``booktabs``."""
        kinds = "".join("l" if column.text else "r" for column in self.columns)
        lines = [
            r"\begin{table}",
            rf"\caption{{{_latex(self.title)}}}",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            _latex_row([column.heading for column in self.columns]),
            r"\midrule",
            *map(_latex_row, self.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


def as_table(
    title: str,
    columns: Sequence[tuple[str, str, str]],
    rows: Sequence[Mapping[str, object]],
) -> Table:
    """Return a table for download, with content that the page shows in another form.

    Args:
        title: its title, unique on the page.
        columns: the heading of each, the member of a row that it shows, and CSS classes; ``n`` is
            for numbers.
        rows: the rows.
    """
    return Table(
        re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"),
        title,
        [Column(heading, text="n" not in style.split()) for heading, _, style in columns],
        [[_text(row[member]) for _, member, _ in columns] for row in rows],
    )


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else str(cell)


def _column(cells: Sequence[str]) -> dict[str, set[str]]:
    """Return the labels of the numbers in a column with their units; text has one empty label."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        if isinstance(cell, Cell):
            for number in cell.numbers:
                found.setdefault(number.of, set()).add(number.unit)
    return found or {"": set()}


def _heading(heading: str, of: str, units: set[str], by_row: bool) -> str:
    text = ", ".join(filter(None, (heading, of)))
    unit = "" if by_row else "".join(units)
    named = not unit or (unit == PER_SECOND and "per second" in heading)
    return text if named else f"{text} ({unit})"


def _values(cell: str, column: Mapping[str, set[str]], *, text: bool) -> list[Value]:
    """Return the numbers of a cell, one for each number in its column, or its words."""
    if text and not isinstance(cell, Cell):
        return [str(cell), *[None] * (len(column) - 1)]
    if isinstance(cell, Cell):
        numbers = {one.of: one.value for one in cell.numbers}
        return [_rounded(numbers.get(of)) for of in column]
    words = None if cell == UNKNOWN else cell or None
    return [words, *[None] * (len(column) - 1)]


def _rounded(value: float | None) -> Value:
    """Return a number with six significant digits: no measurement has more."""
    if value is None or math.isnan(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _unit(row: Sequence[str]) -> str:
    """Return the unit of a row's numbers."""
    units = {number.unit for cell in row if isinstance(cell, Cell) for number in cell.numbers}
    return ", ".join(sorted(units))


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
