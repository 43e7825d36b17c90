"""The report: one self-contained HTML page, and its figures as PNG files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlite.loadtest.machines import MachineTable
    from memlite.loadtest.prices import Prices
    from memlite.loadtest.results import Results

__all__ = ["write_report"]


def write_report(
    results: Sequence["Results"],
    folder: Path,
    prices: "Prices | None" = None,
    machines: "MachineTable | None" = None,
) -> list[Path]:
    """Write ``report.html``, and each of its figures as ``NAME.png`` and ``NAME-dark.png``.

    Args:
        results: the results of one run, or of several to compare.
        folder: the destination directory; created if missing.
        prices: the price table; None for the one that ships with memlite.
        machines: the table of machines; likewise.

    Returns:
        The paths of the files, the page first.

    Raises:
        ConfigError: the runs cannot be compared, results are damaged, they name a machine that is
            not in the table, or a file cannot be written.
    """
    # Imported here: the plotting libraries take a second to import.
    from memlite.loadtest.report.html import write

    return write(results, folder, prices, machines)
