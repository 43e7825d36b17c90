"""Ctrl-C while the figures of a report are drawn."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.waiting import wait_until

__all__ = ["interrupted_while_drawing"]


def interrupted_while_drawing(command: Sequence[str], folder: Path) -> str:
    """Run a command that writes figures until it has written one; return what it then says.

    Args:
        command: it writes several figures.
        folder: where they go, or in a folder in it; those that are there are removed.
    """
    for path in folder.rglob("*.png"):
        path.unlink()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            drawing = wait_until(lambda: any(folder.rglob("*.png")), 250)
        finally:
            process.send_signal(signal.SIGINT)
        assert drawing
        assert process.stderr is not None
        shown = process.stderr.read()
        assert process.wait() == 130, shown
    return shown
