"""The summary table printed at the end of a run."""

from typing import TextIO

from rich.console import Console
from rich.table import Table

from memlite.loadtest.overview import Grid, grids
from memlite.loadtest.prices import Prices, costs
from memlite.loadtest.recommendation import choices, recommendation
from memlite.loadtest.results import Interval, Point, Results
from memlite.loadtest.units import duration, short
from memlite.loadtest.verdict import findings, generator_warnings, warnings

__all__ = ["print_summary"]

_WIDTH = 79


def print_summary(results: Results, prices: Prices, stream: TextIO) -> None:
    """Print whether the generator was the bottleneck, the measurements, and the verdict."""
    console = Console(file=stream, width=None if stream.isatty() else _WIDTH, highlight=False)
    for sentence in generator_warnings(results):
        console.print(sentence, markup=False, style="bold")
    console.print(_table(results))
    for point in results.points:
        for kind, number in sorted(point.errors.items()):
            console.print(
                f"{point.target}, {point.clients} clients: {number} × {kind}",
                markup=False,
                style="red",
            )
    console.print()
    summarised = grids(results)
    for grid in summarised:
        console.print(grid.title, markup=False, style="bold")
        console.print(_grid(grid))
        if grid.legend:
            console.print(grid.legend, markup=False)
        console.print()
    available = choices(results, costs(results, prices))
    answer = recommendation(available, prices.currency)
    for sentence in [*answer, *findings(results), *warnings(results)]:
        console.print(sentence, markup=False, end="\n\n" if summarised else "\n")


def _table(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    show_rate = any(point.rate for point in results.points)
    show_size = len({point.value_size for point in results.points}) > 1
    table.add_column("target")
    for shown, title in ((True, "clients"), (show_rate, "rate"), (show_size, "bytes")):
        if shown:
            table.add_column(title, justify="right")
    for title in ("ops/s", "±", "p50", "p99", "p99.9", "errors"):
        table.add_column(title, justify="right")
    for point in results.points:
        table.add_row(*_row(point, show_rate, show_size))
    return table


def _grid(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for label in grid.labels:
        table.add_column(label, justify="right")
    for nodes, cells in grid.rows:
        table.add_row(nodes, *(f"{one.throughput} {one.letter or ' '}" for one in cells))
    return table


def _row(point: Point, show_rate: bool, show_size: bool) -> list[str]:
    times = point.response.get("all")
    row = [point.target, str(point.clients)]
    if show_rate:
        row.append(short(point.rate))
    if show_size:
        row.append(short(point.value_size))
    row += [short(point.throughput.mean), _relative_half_width(point.throughput)]
    row += [duration(value) for value in (times.p50, times.p99, times.p999)] if times else ["–"] * 3
    errors = sum(point.errors.values())
    return [*row, str(errors) if errors else ""]


def _relative_half_width(interval: Interval) -> str:
    if interval.low is None or not interval.mean:
        return ""
    return f"{(interval.mean - interval.low) / interval.mean:.0%}"
