"""The page about models: ``models.html`` with its figures, and files with their numbers."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from memlite.loadtest import files
from memlite.loadtest.cells import PER_SECOND, UNKNOWN, Cell, Number
from memlite.loadtest.models.assess import BOUND, Check
from memlite.loadtest.models.output import as_csv, as_json, error_text, stations
from memlite.loadtest.models.plots import plots_of
from memlite.loadtest.models.study import TargetModels
from memlite.loadtest.report.page import draw, render
from memlite.loadtest.report.plots import Plot
from memlite.loadtest.report.tables import Column, Table
from memlite.loadtest.results import Results
from memlite.loadtest.units import duration, percent, short

__all__ = ["PLOTS", "as_values", "write_models"]

_QUANTITIES: Final = {
    "throughput": "Throughput, requests per second",
    "response time": "Mean response time",
}
PLOTS: Final = 3
"""Figures of each target."""


def write_models(results: Results, found: Sequence[TargetModels], folder: Path) -> Path:
    """Write ``models.html``, ``models.csv``, ``models.json`` and the figures as PNG.

    Args:
        results: the run's results, for the title.
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
        as_values(one, plots[number * PLOTS : (number + 1) * PLOTS], number)
        for number, one in enumerate(found)
    ]
    page = render(
        "models.html.j2",
        title=f"Models of {results.title or 'a load test'}",
        subtitle=f"Queueing models compared with the results of {' '.join(results.command)}",
        targets=targets,
        drawings=drawings,
        bound=percent(BOUND),
    )
    path = folder / "models.html"
    files.write(path, page.encode())
    return path


def as_values(target: TargetModels, plots: Sequence[Plot], number: int) -> dict[str, Any]:
    """Return the values that a page shows for a target.

    Args:
        target: the target.
        plots: its figures.
        number: makes the names of its tables unique on the page.
    """
    return {
        "name": target.sweep.target,
        "answer": target.answer,
        "doubts": target.doubts,
        "plots": plots,
        "stations": _stations(target, number),
        "tables": [_table(target, quantity, number) for quantity in _QUANTITIES],
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


def _stations(target: TargetModels, number: int) -> Table:
    most = target.sweep.loads[-1].clients
    headings = ("Servers", "Demand per request", "95% interval", f"Busy with {most} clients")
    keys = ("name", "servers", "demand", "interval", "busy", "source")
    return Table(
        f"stations-{number}",
        f"Stations of {target.sweep.target}",
        [Column("Station", text=True), *map(Column, headings), Column("Source", text=True)],
        [[row[key] for key in keys] for row in stations(target)],
    )


def _table(target: TargetModels, quantity: str, number: int) -> Table:
    loads = target.sweep.loads
    measured = [
        load.throughput.mean if quantity == "throughput" else load.response_time.mean
        for load in loads
    ]
    rows: list[list[str]] = [["measured", *(_value(quantity, one) for one in measured)]]
    for one in target.assessments:
        checks = {each.clients: each for each in one.checks if each.quantity == quantity}
        if checks:
            rows.append([one.model.name, *(_cell(checks.get(load.clients)) for load in loads)])
    clients = [f"{load.clients} client{'s' if load.clients > 1 else ''}" for load in loads]
    return Table(
        f"{quantity.replace(' ', '-')}-{number}",
        f"{_QUANTITIES[quantity]}, and the error of each prediction",
        [Column("", text=True), *map(Column, clients)],
        rows,
    )


def _cell(check: Check | None) -> str:
    if check is None:
        return UNKNOWN
    error = Number(None if math.isinf(check.error) else check.error * 100, "%", "error")
    if check.predicted is None:
        return Cell(f"{UNKNOWN} {error_text(check)}", error)
    predicted = _value(check.quantity, check.predicted)
    return Cell(f"{predicted} {error_text(check)}", *predicted.numbers, error)


def _value(quantity: str, value: float) -> Cell:
    if quantity == "throughput":
        return Cell(short(value), Number(value, PER_SECOND))
    return Cell(duration(value * 1e6), Number(value * 1e6, "µs"))
