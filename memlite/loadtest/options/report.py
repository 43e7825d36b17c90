"""Options of ``bench report``."""

from pathlib import Path

from memlite.loadtest.options.output import add_prices
from memlite.loadtest.options.parser import Commands, add_command

__all__ = ["add_report"]


def add_report(commands: Commands) -> None:
    """Add the command."""
    report = add_command(
        commands, "report", "write a report from saved results, or compare several"
    )
    report.add_argument(
        "results", nargs="+", type=Path, metavar="RESULTS", help="results.json or its directory"
    )
    report.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory (default: that of the results; for several, bench-results/<time>)",
    )
    add_prices(report)
