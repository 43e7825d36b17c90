"""The tables of a factorial experiment's page."""

import math
from collections.abc import Sequence

from memlite.lab import FactorialResult
from memlite.lab.factorial_result import Levels
from memlite.loadtest.cells import count, plain
from memlite.loadtest.factorial import wording
from memlite.loadtest.factorial.analysis import Analysis
from memlite.loadtest.factorial.design import Design
from memlite.loadtest.factorial.runs import Measured
from memlite.loadtest.factorial.tables import change_rows
from memlite.loadtest.statistics import interval
from memlite.loadtest.units import duration, grouped, percent

__all__ = ["changes", "combinations", "sign_table", "variance"]

_MAX_SIGNED = 5  # factors: 32 rows and 32 columns


def changes(design: Design, analysis: Analysis) -> list[dict[str, str]]:
    """Return the effect of each factor, a row for each change."""
    names = ("factor", "change", "interval", "variation", "chance")
    found = (dict(zip(names, row, strict=True)) for row in change_rows(design, analysis))
    return [{name: text or "–" for name, text in row.items()} for row in found]


def variance(result: FactorialResult) -> list[dict[str, str]]:
    """Return the analysis of variance, a row for each effect and one for errors."""
    rows = [
        {
            "source": " × ".join(one.factors),
            "variation": wording.share(one.variation),
            "freedom": count(one.freedom),
            "statistic": plain(one.f_statistic, _statistic),
            "chance": wording.chance(one.p_value) or "–",
            "differs": "yes" if one.significant else "no" if result.error_freedom else "–",
        }
        for one in result.effects
    ]
    errors: str = wording.share(result.error_variation) if result.error_freedom else "unknown"
    freedom = count(result.error_freedom)
    return [
        *rows,
        {
            "source": "errors", "variation": errors, "freedom": freedom,
            "statistic": "–", "chance": "–", "differs": "–",
        },
    ]  # fmt: skip


def _statistic(value: float) -> str:
    return "∞" if math.isinf(value) else grouped(value)


def sign_table(design: Design, result: FactorialResult) -> tuple[list[str], list[list[str]]] | None:
    """Return the sign table of a 2^k·r design: its header and its rows; None for other designs.

    In the table, factors are called A, B, C, …, as in
    R. Jain, *The Art of Computer Systems Performance Analysis* (1991), section 17.3.
    """
    if not design.two_levels or len(design.factors) > _MAX_SIGNED:
        return None
    places = {name: place for place, name in enumerate(design.names)}
    letters = dict(zip(design.names, "ABCDE", strict=False))
    head = ["I", *("".join(letters[name] for name in one.factors) for one in result.effects)]
    head.append("mean")
    rows = []
    for levels, predicted in result.predicted.items():
        signs = [
            math.prod(2 * levels[places[name]] - 1 for name in one.factors)
            for one in result.effects
        ]
        mean = math.log(predicted) if result.multiplicative else predicted
        rows.append(["1", *(f"{sign:+d}".replace("+1", "1") for sign in signs), _number(mean)])
    # Each column times the means, divided by the number of rows: the effects.
    rows.append([*(_number(one) for one in (result.mean, *(e.value for e in result.effects))), ""])
    return head, rows


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def combinations(
    design: Design, measured: Sequence[Measured], analyses: Sequence[Analysis]
) -> list[dict[str, object]]:
    """Return the measurements with each combination of levels."""
    by_levels: dict[Levels, list[Measured]] = {levels: [] for levels in design.combinations}
    for one in measured:
        by_levels[one.run.levels].append(one)
    return [
        {
            "levels": design.chosen(levels),
            "responses": [_response(of, analysis) for analysis in analyses],
            "errors": f"{sum(sum(one.point.errors.values()) for one in of):,}",
            "processors": _processors(of),
            "limit": "generator" if any(one.point.generator_limited for one in of) else "",
        }
        for levels, of in by_levels.items()
    ]


def _response(of: Sequence[Measured], analysis: Analysis) -> str:
    found = interval([analysis.response.of(one.point) for one in of])
    text = (grouped if analysis.response.name == "throughput" else duration)(found.mean)
    if found.high is not None and found.mean:
        text += f" ± {(found.high - found.mean) / found.mean:.0%}"
    return text


def _processors(of: Sequence[Measured]) -> str:
    """Return how busy each process of the servers was, on average over repetitions."""
    shares: dict[str, list[float]] = {}
    for one in of:
        for repetition in one.point.repetitions:
            uses = repetition.processes
            if not uses and repetition.server is not None:
                uses = {"server": repetition.server}
            for name, use in uses.items():
                shares.setdefault(name, []).append(use.cpu_share)
    return ", ".join(f"{name} {percent(sum(of) / len(of))}" for name, of in shares.items()) or "–"
