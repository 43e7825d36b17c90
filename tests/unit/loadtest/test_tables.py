"""Tables as CSV and LaTeX."""

import csv
import io
import math

import pytest

pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.cells import UNKNOWN, count, microseconds, plain, with_interval
from memlite.loadtest.report.tables import Column, Table
from memlite.loadtest.results import Interval

TABLE = Table(
    "times",
    "Times & rates of 100% of_all",
    [Column("Target", text=True), Column("Mean, µs")],
    [['1 node, "direct"', "12 ± 3"], ["a\\b^c~d", "$5 {#1} −2 × 3 ≤ 4–5"]],
)


def test_csv_is_read_back() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.csv)))
    assert rows == [["Target", "Mean, µs"], *map(list, TABLE.rows)]


def test_characters_that_latex_lacks() -> None:
    table = Table("a", "“σ²” → ∞ · κ’s…", [Column("≥")], [["1\N{NO-BREAK SPACE}s"]])
    assert (
        r"\caption{``$\sigma$$^2$'' $\rightarrow$ $\infty$ $\cdot$ $\kappa$'s\ldots{}}"
        in table.latex
    )
    assert r"$\geq$ \\" in table.latex
    assert r"1~s \\" in table.latex


def test_latex() -> None:
    assert TABLE.latex == (
        r"""\begin{table}
\caption{Times \& rates of 100\% of\_all}
\begin{tabular}{lr}
\toprule
Target & Mean, \textmu{}s \\
\midrule
1 node, "direct" & 12 $\pm$ 3 \\
a\textbackslash{}b\textasciicircum{}c\textasciitilde{}d & \$5 \{\#1\} $-$2 $\times$ 3 $\leq$ 4--5 \\
\bottomrule
\end{tabular}
\end{table}
"""
    )


def of_numbers(*rows: list[str]) -> Table:
    columns = [Column("Target", text=True), Column("Rate"), Column("Mean"), Column("Limit", True)]
    return Table("rates", "Rates", columns, rows)


def test_csv_has_one_number_in_a_cell_and_units_in_the_headings() -> None:
    rate = with_interval("12,300 ± 3%", Interval(12_345.678, 12_000, 12_691.36), "1/s")
    once = with_interval("9,000", Interval(9_000.0), "1/s")
    table = of_numbers(
        ["a", rate, microseconds(1_234.5), "a node"],
        ["b", once, microseconds(None), ""],
        ["c", UNKNOWN, microseconds(0.5), UNKNOWN],
    )
    assert list(csv.reader(io.StringIO(table.csv))) == [
        [
            *("Target", "Rate (1/s)", "Rate, 95% low (1/s)", "Rate, 95% high (1/s)", "Mean (µs)"),
            "Limit",
        ],
        ["a", "12345.7", "12000", "12691.4", "1234.5", "a node"],
        ["b", "9000", "", "", "", ""],
        ["c", "", "", "", "0.5", UNKNOWN],
    ]
    assert r"12,300 $\pm$ 3\% & 1.23 ms" in table.latex


def test_rows_with_different_units_name_the_units() -> None:
    table = Table(
        "by-row",
        "By row",
        [Column("", text=True), Column("8 in flight"), Column("16 in flight")],
        [
            ["Clients", count(4), count(1_000)],
            ["Mean", microseconds(3), UNKNOWN],
            ["Limited by", "the proxy", "a node"],
        ],
    )
    assert table.values == [
        ["", "Unit", "8 in flight", "16 in flight"],
        ["Clients", "", 4, 1000],
        ["Mean", "µs", 3, None],
        ["Limited by", "", "the proxy", "a node"],
    ]


def test_numbers_that_spreadsheets_cannot_take() -> None:
    table = Table(
        "odd",
        "Odd",
        [Column("Value")],
        [[plain(one, str)] for one in (math.inf, math.nan, 12.5, 1e300)],
    )
    assert [row[0] for row in table.values[1:]] == [math.inf, None, 12.5, 1e300]
