"""The page about models: ``models.html``, with its figures, and their numbers beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from memlite.loadtest import files
from memlite.loadtest.models.assess import BOUND, Check
from memlite.loadtest.models.figures import plots_of
from memlite.loadtest.models.output import as_csv, as_json, error_text, stations
from memlite.loadtest.models.study import TargetModels
from memlite.loadtest.report.page import draw, render
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.results import Results
from memlite.loadtest.units import duration, percent, short

__all__ = ["write_models"]

_QUANTITIES: Final = {
    "throughput": "Throughput, requests per second",
    "response time": "Mean response time",
}
_PLOTS: Final = 3
"""Figures of each target."""


def write_models(results: Results, found: Sequence[TargetModels], folder: Path) -> Path:
    """Write ``models.html``, ``models.csv``, ``models.json`` and the figures as PNG.

    Args:
        results: the run's, for the title.
        found: the models of its targets.
        folder: the destination directory; created if missing.

    Returns:
        The path of the page.

    Raises:
        ConfigError: a file cannot be written.
    """
    plots = plots_of(found)
    drawings, _ = draw(plots, folder)
    files.write(folder / "models.csv", as_csv(found).encode())
    files.write(folder / "models.json", as_json(found))
    targets = [
        _target(one, plots[number * _PLOTS : (number + 1) * _PLOTS])
        for number, one in enumerate(found)
    ]
    page = render(
        "models.html.j2",
        title=f"Models of {results.title or 'a load test'}",
        subtitle=f"Queueing models, and what was measured with {' '.join(results.command)}",
        targets=targets,
        drawings=drawings,
        bound=percent(BOUND),
    )
    path = folder / "models.html"
    files.write(path, page.encode())
    return path


def _target(target: TargetModels, plots: Sequence[Plot]) -> dict[str, Any]:
    loads = target.sweep.loads
    return {
        "name": target.sweep.target,
        "answer": target.answer,
        "doubts": target.doubts,
        "plots": plots,
        "stations": list(stations(target)),
        "most": loads[-1].clients,
        "clients": [load.clients for load in loads],
        "tables": [_table(target, quantity) for quantity in _QUANTITIES],
        "models": [
            {
                "name": one.model.name,
                "verdict": one.verdict,
                "describes": one.model.describes,
                "assumes": one.model.assumes,
                "reasons": one.reasons,
            }
            for one in target.assessments
        ],
    }


def _table(target: TargetModels, quantity: str) -> tuple[str, list[str], list[Any]]:
    loads = target.sweep.loads
    rows = []
    for one in target.assessments:
        checks = {each.clients: each for each in one.checks if each.quantity == quantity}
        if checks:
            rows.append((one.model.name, [_cell(checks.get(load.clients)) for load in loads]))
    measured = [
        load.throughput.mean if quantity == "throughput" else load.response_time.mean
        for load in loads
    ]
    return _QUANTITIES[quantity], [_value(quantity, one) for one in measured], rows


def _cell(check: Check | None) -> dict[str, str]:
    if check is None:
        return {"predicted": "", "error": "", "style": "none"}
    style = "none" if not check.tests else "" if check.holds else "off"
    predicted = "–" if check.predicted is None else _value(check.quantity, check.predicted)
    return {"predicted": predicted, "error": error_text(check), "style": style}


def _value(quantity: str, value: float) -> str:
    return short(value) if quantity == "throughput" else duration(value * 1e6)
