"""The table at the end, in the terminal."""

from typing import TextIO

from rich.console import Console
from rich.table import Table

from memlite.loadtest.results import Interval, Point, Results
from memlite.loadtest.units import duration, short
from memlite.loadtest.verdict import verdict

__all__ = ["print_summary"]

_WIDTH = 79


def print_summary(results: Results, stream: TextIO) -> None:
    """Print what was measured, and what that says."""
    console = Console(file=stream, width=None if stream.isatty() else _WIDTH, highlight=False)
    console.print(_table(results))
    for one in results.points:
        for kind, number in sorted(one.errors.items()):
            console.print(
                f"{one.target}, {one.clients} clients: {number} × {kind}", markup=False, style="red"
            )
    console.print()
    for sentence in verdict(results):
        console.print(sentence, markup=False)


def _table(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    rates = any(one.rate for one in results.points)
    sizes = len({one.value_size for one in results.points}) > 1
    table.add_column("target")
    for wanted, title in ((True, "clients"), (rates, "rate"), (sizes, "bytes")):
        if wanted:
            table.add_column(title, justify="right")
    for title in ("ops/s", "±", "p50", "p99", "p99.9", "errors"):
        table.add_column(title, justify="right")
    for one in results.points:
        table.add_row(*_row(one, rates, sizes))
    return table


def _row(one: Point, rates: bool, sizes: bool) -> list[str]:
    every = one.response.get("all")
    row = [one.target, str(one.clients)]
    if rates:
        row.append(short(one.rate))
    if sizes:
        row.append(short(one.value_size))
    row += [short(one.throughput.mean), _spread(one.throughput)]
    row += [duration(value) for value in (every.p50, every.p99, every.p999)] if every else ["–"] * 3
    errors = sum(one.errors.values())
    return [*row, str(errors) if errors else ""]


def _spread(interval: Interval) -> str:
    if interval.low is None or not interval.mean:
        return ""
    return f"{(interval.mean - interval.low) / interval.mean:.0%}"
