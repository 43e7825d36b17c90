"""Ctrl-C while the figures of a report are drawn, and pages without figures."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from markupsafe import Markup

    from memlite.loadtest.report.plots import Plot

__all__ = ["interrupted_while_drawing", "without_figures"]


def interrupted_while_drawing(command: Sequence[str], folder: Path) -> str:
    """Interrupt a command once it has written a figure; return its error output.

    Args:
        command: a command that writes several figures.
        folder: where it writes them, or a parent folder; figures already there are removed.
    """
    for path in folder.rglob("*.png"):
        path.unlink()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            drawing = wait_until(lambda: _has_figures(folder), 250)
        finally:
            process.send_signal(signal.SIGINT)
        assert drawing
        assert process.stderr is not None
        shown = process.stderr.read()
        assert process.wait() == 130, shown
    return shown


def _has_figures(folder: Path) -> bool:
    try:
        return any(folder.rglob("*.png"))
    except FileNotFoundError:  # a folder was removed while it was searched
        return False


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave figures out of pages, as drawing takes seconds; for tests of the text."""
    from markupsafe import Markup

    def draw(plots: Sequence["Plot"], _: Path) -> tuple[dict[str, "Markup"], list[Path]]:
        return {plot.name: Markup() for plot in plots}, []

    for module in ("report.html", "report.factorial_page", "models.page", "multigets.page"):
        monkeypatch.setattr(f"memlite.loadtest.{module}.draw", draw)
