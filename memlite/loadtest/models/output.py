"""Models as text, CSV and JSON."""

import csv
import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import orjson
from rich.console import Console
from rich.table import Table

from memlite.loadtest.cells import UNKNOWN, Cell, Number, between, count, share
from memlite.loadtest.models.assess import BOUND, Assessment, Check
from memlite.loadtest.models.build import REST
from memlite.loadtest.models.study import TargetModels
from memlite.loadtest.units import duration, percent, short

__all__ = ["COLUMNS", "as_csv", "as_document", "as_json", "error_text", "print_models", "stations"]

COLUMNS = (
    "target",
    "model",
    "clients",
    "quantity",
    "station",
    "measured",
    "predicted",
    "error",
    "tolerance",
    "holds",
    "tests",
)
"""The columns of ``models.csv``. Times are in seconds; errors are shares of the measured value."""

_WIDTH = 79
_NOTHING = 1e-8  # seconds


def print_models(found: Sequence[TargetModels], stream: TextIO) -> None:
    """Print the answer of each target's models, its stations, and the errors of all models."""
    console = Console(file=stream, width=None if stream.isatty() else _WIDTH, highlight=False)
    # Doubts about the figures come first, since readers take figures as facts.
    doubts = [doubt for target in found for doubt in target.doubts]
    for sentence in [*doubts, *(each for target in found for each in target.answer)]:
        console.print(sentence, markup=False)
    console.print()
    for target in found:
        console.print(f"[bold]{target.sweep.target}[/bold]\n")
        console.print(_stations(target))
        for quantity in ("throughput", "response time"):
            console.print()
            console.print(_errors(target, quantity))
        console.print(
            f"\n(errors of predictions; *: more than {percent(BOUND)} and outside the measured "
            "value's 95% interval; (): not a test, because the model was calibrated there or the "
            "measured value varies by more than 50%)\n",
            style="dim",
        )
        for one in target.assessments:
            console.print(f"{one.model.name} {one.verdict}.", markup=False)
            for reason in one.reasons:
                console.print(f"  - {reason}", markup=False)
        console.print()


def stations(target: TargetModels) -> Iterator[dict[str, str]]:
    """Yield a row for each station: name, servers, demand, its interval, source, utilisation."""
    most = target.sweep.loads[-1]
    for one in target.inputs.stations:
        estimate = target.inputs.demands[one.name]
        low, high = estimate.interval
        known = estimate.value and math.isfinite(high)
        use = most.utilisations.get(one.name)
        yield {
            "name": "elsewhere" if one.name == REST else one.name,
            "servers": count(one.servers) if one.servers else "no queue",
            "demand": Cell(_time(estimate.value), Number(estimate.value * 1e6, "µs")),
            "interval": (
                between(f"{_time(low)} to {_time(high)}", low * 1e6, high * 1e6, "µs")
                if known
                else UNKNOWN
            ),
            "busy": share(use),
            "source": target.inputs.sources[one.name],
        }


def _time(seconds: float) -> str:
    return duration(seconds * 1e6) if seconds > _NOTHING else "0 µs"


def _stations(target: TargetModels) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("station")
    for title in ("servers", "demand", "95% interval"):
        table.add_column(title, justify="right")
    table.add_column(f"busy at {target.sweep.loads[-1].clients}", justify="right")
    table.add_column("from")
    for row in stations(target):
        table.add_row(
            *(row[k] for k in ("name", "servers", "demand", "interval", "busy", "source"))
        )
    return table


def error_text(check: Check) -> str:
    """Return an error as text: ``+3%``, ``+43%*`` if it is too large, ``(+3%)`` if no test."""
    text = "none" if math.isinf(check.error) else f"{check.error:+.0%}"
    if not check.tests:
        return f"({text})"
    return text if check.holds else f"{text}*"


def _errors(target: TargetModels, quantity: str) -> Table:
    """Return the errors of all models: a row for each, and a column for each load."""
    loads = target.sweep.loads
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(quantity)
    for load in loads:
        table.add_column(f"{load.clients}", justify="right")
    measured = [
        short(one.throughput.mean)
        if quantity == "throughput"
        else duration(one.response_time.mean * 1e6)
        for one in loads
    ]
    table.add_row("measured", *measured)
    for one in target.assessments:
        checks = {each.clients: each for each in one.checks if each.quantity == quantity}
        if checks:
            cells = [error_text(checks[n.clients]) if n.clients in checks else "" for n in loads]
            table.add_row(one.model.name, *cells)
    return table


def as_csv(found: Sequence[TargetModels]) -> str:
    """Return a row for each predicted value, and for each station's utilisation and queue."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for target in found:
        for one in target.assessments:
            writer.writerows(_rows(target, one))
    return text.getvalue()


def _rows(target: TargetModels, one: Assessment) -> Iterator[list[Any]]:
    start = [target.sweep.target, one.model.name]
    for check in one.checks:
        predicted = "" if check.predicted is None else check.predicted
        error = "" if math.isinf(check.error) else check.error
        yield [
            *start, check.clients, check.quantity, "", check.measured, predicted, error,
            check.tolerance, check.holds, check.tests,
        ]  # fmt: skip
    loads = {load.clients: load for load in target.sweep.loads}
    for prediction in one.model.predictions:
        load = loads[prediction.clients]
        for name, use in prediction.uses.items():
            measured = load.utilisations.get(name)
            error = "" if not measured else use.utilisation / measured - 1
            yield [
                *start, load.clients, "utilisation", name, "" if measured is None else measured,
                use.utilisation, error, "", "", "",
            ]  # fmt: skip
            traced = load.traced.get(name)
            length = (
                load.arrivals(name) * (traced.queue.mean + traced.service.mean) if traced else ""
            )
            yield [
                *start, load.clients, "queue length", name, length,
                "" if math.isinf(use.queue_length) else use.queue_length, "", "", "", "",
            ]  # fmt: skip


def as_json(found: Sequence[TargetModels]) -> bytes:
    """Return all models as JSON; infinite numbers are null."""
    document = [as_document(target) for target in found]
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def as_document(target: TargetModels) -> dict[str, Any]:
    """Return the models of a target as JSON-serializable data, except for infinite numbers."""
    return {
        "target": target.sweep.target,
        "answer": target.answer,
        "doubts": target.doubts,
        "think_time": target.sweep.think_time,
        "bottleneck": target.inputs.bottleneck,
        "knee_clients": target.inputs.knee,
        "stations": [
            {
                "name": one.name,
                "servers": one.servers,
                "demand": one.demand,
                "interval": target.inputs.demands[one.name].interval,
                "source": target.inputs.sources[one.name],
            }
            for one in target.inputs.stations
        ],
        "loads": [
            {
                "clients": load.clients,
                "throughput": dataclasses.asdict(load.throughput),
                "response_time": dataclasses.asdict(load.response_time),
                "utilisations": dict(load.utilisations),
                "bounds": dataclasses.asdict(bounds),
            }
            for load, bounds in zip(target.sweep.loads, target.inputs.bounds, strict=True)
        ],
        "models": [_model(one) for one in target.assessments],
    }


def _model(one: Assessment) -> dict[str, Any]:
    return {
        "name": one.model.name,
        "describes": one.model.describes,
        "assumes": one.model.assumes,
        "verdict": one.verdict,
        "fits": one.fits,
        "outcome": one.outcome,
        "reasons": one.reasons,
        "fitted": {name: dataclasses.asdict(value) for name, value in one.model.fitted.items()},
        "predictions": [dataclasses.asdict(each) for each in one.model.predictions],
        "checks": [{**dataclasses.asdict(each), "holds": each.holds} for each in one.checks],
    }
