"""Tables as CSV and LaTeX."""

import csv
import io

import pytest

pytest.importorskip("matplotlib", reason="the load tester needs memlite-cache[bench]")

from memlite.loadtest.report.tables import Column, Table

TABLE = Table(
    "times",
    "Times & rates of 100% of_all",
    [Column("Target", text=True), Column("Mean, µs")],
    [['1 node, "direct"', "12 ± 3"], ["a\\b^c~d", "$5 {#1} −2 × 3 ≤ 4–5"]],
)


def test_csv_is_read_back() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.csv)))
    assert rows == [["Target", "Mean, µs"], *map(list, TABLE.rows)]


def test_latex_of_signs_that_it_lacks() -> None:
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
