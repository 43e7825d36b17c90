"""Options about files: what is written, and tables that are read."""

import argparse
from pathlib import Path

from memlite.loadtest import option_values as values

__all__ = ["add_output", "add_prices"]


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of reports."""
    add = parser.add_argument
    add("--title", default="", help="title of the report")
    add("--out", type=Path, metavar="DIR", help="output directory (default: bench-results/<time>)")
    add(
        "--machine",
        type=values.checked(values.machine),
        action="append",
        default=[],
        metavar="NAME[:NUM]",
        help="the machine that all servers run on, from the table of machines, for performance per "
        "watt and per price; several: how many, such as raspberry-pi-4b:5, or this option again",
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
        help="table of machines, their power and price (default: memlite's own)",
    )
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="price table (default: memlite's own)"
    )
