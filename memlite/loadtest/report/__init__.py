"""The report: one page that opens anywhere, and its figures as pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlite.loadtest.prices import Prices
    from memlite.loadtest.results import Results

__all__ = ["write_report"]


def write_report(
    results: Sequence["Results"], folder: Path, prices: "Prices | None" = None
) -> list[Path]:
    """Write ``report.html``, and each of its figures as ``NAME.png`` and ``NAME-dark.png``.

    Args:
        results: of one run, or of several to be compared.
        folder: where to; made if it is not there.
        prices: for the costs; without them, those that come with memlite.

    Returns:
        The files, the page first.

    Raises:
        ConfigError: the runs cannot be compared, results are damaged, or files cannot be written.
    """
    # Imported here: the packages that draw take a second to import.
    from memlite.loadtest.report.html import write

    return write(results, folder, prices)
