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
        help="output directory; one with an interrupted run of the same options is completed "
        "(default: bench-results/<time>)",
    )
    add_mix_systems(parser)
    add(
        "--machine",
        type=values.checked(values.machine),
        action="append",
        default=[],
        metavar="NAME[:NUM]",
        help="the machine that all servers run on, from the table of machines, for performance per "
        "watt and per price; several: how many, such as raspberry-pi-4b:5, or this option again; "
        "with --hosts each cluster counts those that it ran on",
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


def add_mix_systems(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands that complete earlier measurements."""
    parser.add_argument(
        "--mix-systems",
        action="store_true",
        help="complete measurements although the machine, Python, memlite or a server has changed "
        "since; the report says so",
    )
