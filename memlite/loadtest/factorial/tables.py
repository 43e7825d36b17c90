"""The tables shown on a terminal: the effect of each factor on a response."""

from collections.abc import Iterator, Sequence
from typing import TextIO

from memlite.lab import Effect, Estimate, FactorialResult
from memlite.loadtest.factorial import wording
from memlite.loadtest.factorial.analysis import Analysis
from memlite.loadtest.factorial.design import Design

__all__ = ["change_rows", "print_table"]

Row = tuple[str, str, str, str, str]


def print_table(design: Design, analysis: Analysis, out: TextIO) -> None:
    """Print a table.

    Args:
        design: the experiment.
        analysis: the analysis of a response.
        out: receives the table.
    """
    result, response = analysis.result, analysis.response
    kind = "factors multiply" if result.multiplicative else "factors add"
    out.write(f"\n{response.words}, {response.unit} ({kind})\n")
    head = "low to high" if design.two_levels else "change"
    rows: list[Row] = [("", head, "95% interval", "variation", "p")]
    rows += change_rows(design, analysis)
    errors = wording.share(result.error_variation) if result.error_freedom else "unknown"
    rows.append(("errors", "", "", errors, ""))
    _print_rows(rows, out)


def change_rows(design: Design, analysis: Analysis) -> Iterator[Row]:
    """Yield a row for each effect: name, change, its interval, share of variation, p-value.

    A factor has a row for each level after the first; changes are relative to the first.
    """
    result, unit = analysis.result, analysis.response.unit
    levels = {one.name: one.levels for one in design.factors}
    for effect in result.effects:
        known: tuple[str, str] = wording.share(effect.variation), wording.chance(effect.p_value)
        if len(effect.factors) > 1:
            yield (" × ".join(effect.factors), *_together(effect, result, unit), *known)
            continue
        (name,) = effect.factors
        first, *others = levels[name]
        for number, level in enumerate(others, 1):
            found = result.change(name, 0, number)
            cells = wording.change(found, result, unit), wording.interval(found, result, unit)
            yield (f"{name} {first} → {level}", *cells, *known)
            known = "", ""


def _together(effect: Effect, result: FactorialResult, unit: str) -> tuple[str, str]:
    """Return the joint effect of factors with two levels; two empty strings for more levels."""
    if not effect.two_levels:
        return "", ""
    low, high = effect.interval
    both = Estimate(*map(result.scaled, (2 * effect.value, 2 * low, 2 * high)))
    return wording.change(both, result, unit), wording.interval(both, result, unit)


def _print_rows(rows: Sequence[Row], out: TextIO) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        out.write(("  " + "  ".join(cells)).rstrip() + "\n")
