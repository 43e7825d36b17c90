"""Options about files: output files, and tables to read."""

import argparse
from pathlib import Path

from memlite.loadtest import option_values as values

__all__ = ["add_mix_systems", "add_output", "add_prices"]


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of reports."""
    add = parser.add_argument
    add("--title", default="", help="title of the report")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory; an interrupted run with the same options in it is resumed "
        "(default: bench-results/<time>)",
    )
    add_mix_systems(parser)
    add(
        "--machine",
        type=values.checked(values.machine),
        action="append",
        default=[],
        metavar="NAME[:NUM]",
        help="machine that all servers run on, from the table of machines, for performance per "
        "watt and per price; for several, append their number, as in raspberry-pi-4b:5, or repeat "
        "this option; with --hosts, each cluster counts the machines that it ran on",
    )
    add_prices(parser)
    add("--no-report", action="store_true", help="save the results without writing a report")
    add("-q", "--quiet", action="store_true", help="do not show progress")


def add_prices(parser: argparse.ArgumentParser) -> None:
    """Add the options of tables of machines and prices."""
    parser.add_argument(
        "--machines",
        type=Path,
        metavar="FILE",
        help="table of machines with their power and price (default: built-in)",
    )
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="price table (default: built-in)"
    )


def add_mix_systems(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that complete earlier measurements."""
    parser.add_argument(
        "--mix-systems",
        action="store_true",
        help="resume a run even if the machine, Python, memlite or a server has changed since; the "
        "report notes the differences",
    )
