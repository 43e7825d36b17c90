"""The files of an experiment: its analysis as JSON, its runs and its effects as CSV."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memlite.lab import Effect, FactorialResult
from memlite.lab.factorial_result import Levels
from memlite.loadtest.factorial.analysis import Analysis
from memlite.loadtest.factorial.design import DESIGN_NAME, Design, save_design
from memlite.loadtest.factorial.runs import Measured
from memlite.loadtest.files import write

__all__ = ["EFFECTS_NAME", "RUNS_NAME", "in_order", "save_analysis"]

RUNS_NAME: Final = "runs.csv"
EFFECTS_NAME: Final = "effects.csv"


def save_analysis(
    folder: Path, design: Design, measured: Sequence[Measured], analyses: Sequence[Analysis]
) -> None:
    """Write ``factorial.json``, ``runs.csv`` and ``effects.csv``.

    Raises:
        ConfigError: a file cannot be written.
    """
    analysis = {one.response.name: _models(one) for one in analyses}
    save_design(folder / DESIGN_NAME, {**design.content(), "analysis": analysis})
    write(folder / RUNS_NAME, _csv(_run_rows(design, measured, analyses)))
    write(folder / EFFECTS_NAME, _csv(_effect_rows(design, analyses)))


def in_order(measured: Sequence[Measured]) -> list[Measured]:
    """Return runs in the order in which they were measured."""
    return sorted(measured, key=lambda one: one.results.started)


def _models(analysis: Analysis) -> dict[str, Any]:
    models = analysis.models
    added, multiplied = models.unexplained
    return {
        "model": "multiplicative" if models.better.multiplicative else "additive",
        "advantage": models.advantage,
        "additive": {**_plain(models.additive), "unexplained": added},
        "multiplicative": models.multiplicative
        and {**_plain(models.multiplicative), "unexplained": multiplied},
    }


def _plain(result: FactorialResult) -> dict[str, Any]:
    """Return JSON-serializable data, without infinite numbers and with strings as keys."""
    return {
        "mean": result.mean,
        "mean_interval": [_finite(one) for one in result.mean_interval],
        "effects": [_plain_effect(one) for one in result.effects],
        "error_variation": result.error_variation,
        "error_freedom": result.error_freedom,
        "error_deviation": result.error_deviation,
        "predicted": _by_text(result.predicted),
        "residuals": _by_text(result.residuals),
    }


def _plain_effect(effect: Effect) -> dict[str, Any]:
    return {
        "factors": list(effect.factors),
        "values": _by_text(effect.values),
        "reach": _finite(effect.reach),
        "variation": effect.variation,
        "freedom": effect.freedom,
        "f_statistic": _finite(effect.f_statistic),
        "p_value": effect.p_value,
        "significant": effect.significant,
    }


def _by_text(values: Mapping[Levels, Any]) -> dict[str, Any]:
    return {".".join(map(str, levels)): value for levels, value in values.items()}


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _run_rows(
    design: Design, measured: Sequence[Measured], analyses: Sequence[Analysis]
) -> Iterator[list[object]]:
    names = [one.response.name for one in analyses]
    yield [
        "order", "run", *design.names, "repetition", "started", "operations", "errors",
        "generator_limited", *names, *(f"{name}_predicted" for name in names),
        *(f"{name}_residual" for name in names),
    ]  # fmt: skip
    for order, one in enumerate(in_order(measured), 1):
        levels, number, point = one.run.levels, one.run.number, one.point
        yield [
            order,
            one.run.name,
            *design.chosen(levels),
            number,
            one.results.started,
            sum(each.operations for each in point.repetitions),
            sum(point.errors.values()),
            "yes" if point.generator_limited else "no",
            *(each.response.of(point) for each in analyses),
            *(each.result.predicted[levels] for each in analyses),
            *(each.result.residuals[levels][number - 1] for each in analyses),
        ]


def _effect_rows(design: Design, analyses: Sequence[Analysis]) -> Iterator[list[object]]:
    yield [
        "response", "model", "fits_better", "factors", "levels", "effect", "low", "high",
        "variation", "freedom", "f", "p",
    ]  # fmt: skip
    levels = {one.name: one.levels for one in design.factors}
    for analysis in analyses:
        for result in (analysis.models.additive, analysis.models.multiplicative):
            if result is None:
                continue
            model = "multiplicative" if result.multiplicative else "additive"
            better = "yes" if result is analysis.result else "no"
            for effect in result.effects:
                for at, value in effect.values.items():
                    chosen = (
                        levels[name][one] for name, one in zip(effect.factors, at, strict=True)
                    )
                    known = math.isfinite(effect.reach)
                    bounds = (value - effect.reach, value + effect.reach) if known else ("", "")
                    yield [
                        analysis.response.name, model, better, " × ".join(effect.factors),
                        " × ".join(chosen), value, *bounds, effect.variation, effect.freedom,
                        effect.f_statistic, effect.p_value,
                    ]  # fmt: skip
            yield [
                analysis.response.name, model, better, "errors", "", "", "", "",
                result.error_variation, result.error_freedom, "", "",
            ]  # fmt: skip


def _csv(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
