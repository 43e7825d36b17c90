"""Carries out ``memlite bench multigets``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.table import Table

from memlite.core import signals
from memlite.core.errors import ConfigError
from memlite.loadtest.multigets.analysis import Comparison, compare_sizes, doubts, sentence
from memlite.loadtest.multigets.measuring import complete, missing
from memlite.loadtest.multigets.runs import Run, Settings, load_runs
from memlite.loadtest.planning import new_folder, prepare
from memlite.loadtest.progress import progress_display
from memlite.loadtest.results import Interval
from memlite.loadtest.resuming import differences, interrupted, locked, systems
from memlite.loadtest.units import duration

__all__ = ["measure_multigets", "print_comparison"]

_WIDTH: Final = 79
_ERRORS: Final = 1
_INTERRUPTED: Final = 130
_MAX_KEYS: Final = 100


def measure_multigets(options: argparse.Namespace, out: TextIO) -> int:
    """Measure, or resume measuring, print the size from which sharding pays, and write the report.

    Args:
        options: what to measure, and where to save it.
        out: receives the table.

    Returns:
        The exit code: 0, 1 if requests have failed, or 130 if the user has interrupted it.

    Raises:
        ConfigError: an option is invalid, or the folder has other measurements.
        StartError: a server cannot be started, or has died.
    """
    settings = _settings(options)
    folder: Path = options.out or new_folder()
    prepare(folder)
    try:
        with locked(folder), progress_display(quiet=options.quiet) as display:
            left = missing(settings, folder)
            fresh = not load_runs(settings, folder)
            mixed = options.mix_systems
            measured_on = systems(folder, measuring=left > 0, fresh=fresh, mixed=mixed)
            runs = complete(settings, folder, display)
        _show(settings, runs, differences(measured_on), folder, out)
    except KeyboardInterrupt:
        signals.block()  # until the process ends: it only counts the runs that are left
        said = interrupted(folder, left=missing(settings, folder))
        sys.stderr.write(f"memlite: bench: {said}\n")
        return _INTERRUPTED
    return _ERRORS if any(run.errors for run in runs) else 0


def _show(settings: Settings, runs: Sequence[Run], differ: str, folder: Path, out: TextIO) -> None:
    """Print the answer and the table, and write the report."""
    found = compare_sizes(runs)
    warnings = doubts(runs)
    if differ:
        warnings.insert(0, f"{differ[:1].upper()}{differ[1:]}.")
    print_comparison(found, warnings, out)
    # Imported here: the plotting libraries take a second to import.
    from memlite.loadtest.multigets.page import write_multigets

    out.write(f"\nreport: {write_multigets(settings, warnings, found, folder)}\n")


def _settings(options: argparse.Namespace) -> Settings:
    if max(options.sizes) > _MAX_KEYS:
        raise ConfigError(f"bench: --sizes: at most {_MAX_KEYS} keys, not {max(options.sizes)}")
    if options.nodes < 2:
        raise ConfigError("bench: --nodes: sharding needs 2 nodes or more")
    if options.clients < options.nodes:
        raise ConfigError(f"bench: --clients must be at least the number of nodes, {options.nodes}")
    return Settings(
        tuple(sorted(options.sizes)),
        options.nodes,
        options.clients,
        options.keys,
        options.value_size,
        options.duration,
        options.repetitions,
        options.seed,
    )


def print_comparison(found: Sequence[Comparison], warnings: Sequence[str], out: TextIO) -> None:
    """Print doubts about the measurement, the answer, and a table of all sizes."""
    console = Console(file=out, width=None if out.isatty() else _WIDTH, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("keys", "sharded", "one node", "ratio", "95% interval", "ratio of p99"):
        table.add_column(title, justify="right")
    table.add_column("sharding")
    for one in found:
        table.add_row(
            str(one.size),
            duration(one.sharded.mean.mean),
            duration(one.together.mean.mean),
            f"{one.ratio.mean:.2f}",
            _bounds(one.ratio),
            f"{one.tail.mean:.2f}",
            one.decision,
        )
    # Doubts about the figures come first, as figures are read as facts.
    for text in [*warnings, sentence(found)]:
        console.print(text, markup=False)
    console.print()
    console.print(table)


def _bounds(value: Interval) -> str:
    if value.low is None or value.high is None:
        return "–"
    return f"{value.low:.2f} to {value.high:.2f}"
