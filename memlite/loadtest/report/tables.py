"""Tables of a page, which readers can take along as CSV or LaTeX."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Column", "Table"]

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "µ": r"\textmu{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": r"$-$",
    "≤": r"$\leq$",
    "–": "--",
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


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(text: str) -> str:
    return re.sub(r"[\\~^µ±×−≤–&%$#_{}]", lambda found: _LATEX[found[0]], text)
