"""Tables of a page, which readers can take along as CSV or LaTeX."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Column", "Table", "as_table"]

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
        text: whether it has text, and not numbers.
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
        rows: the cells of each row.
        note: how to read it; may be empty.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @property
    def csv(self) -> str:
        """The table as CSV (RFC 4180, with lines that end in a newline alone)."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.heading for column in self.columns])
        writer.writerows(self.rows)
        return stream.getvalue()

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
    """Return what a page shows in another form as a table, for readers to take along.

    Args:
        title: its title, unique on the page.
        columns: the heading of each, the member of a row that it shows, and CSS classes, of which
            ``n`` is for numbers.
        rows: the rows.
    """
    return Table(
        re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"),
        title,
        [Column(heading, text="n" not in style.split()) for heading, _, style in columns],
        [[str(row[member]) for _, member, _ in columns] for row in rows],
    )


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
