"""The progress of an experiment: a bar on a terminal, a line for each run elsewhere."""

import sys
import time
from typing import Self, TextIO

from memlite.loadtest.progress import ProgressDisplay, progress_display

__all__ = ["RunProgress"]


class RunProgress:
    """Shows the progress of runs; a context manager.

    Args:
        quiet: whether to show nothing.
        stream: the output; stderr by default.

    Attributes:
        display: the display of measurements within a run.
    """

    def __init__(self, *, quiet: bool, stream: TextIO | None = None) -> None:
        stream = stream or sys.stderr
        self._stream = None if quiet else stream
        terminal = not quiet and stream.isatty()
        self._bar = progress_display(quiet=not terminal, stream=stream)
        self.display: ProgressDisplay = _WithinRun(self._bar) if terminal else ProgressDisplay()
        self._missing = self._done = 0
        self._begun = 0.0

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._bar.__exit__(None, None, None)

    def begin(self, total: int, missing: int) -> None:
        """Show how many runs there are, and how many of them are still to be measured."""
        self._missing, self._begun = missing, time.monotonic()
        self._bar.expect_measurements(missing)
        if missing < total:
            self._message(f"{total - missing} of {total} runs have already been measured")

    def start_run(self, description: str) -> None:
        """Start a run."""
        self._bar.start_step(description)
        if isinstance(self.display, _WithinRun):
            self.display.description = description
            return
        left = ""
        if self._done:
            seconds = (time.monotonic() - self._begun) / self._done * (self._missing - self._done)
            left = f", about {seconds:.0f} s left"
        self._message(f"run {self._done + 1} of {self._missing}{left}: {description}")

    def finish_run(self) -> None:
        """Count a run as finished."""
        self._done += 1
        self._bar.finish_measurement()

    def _message(self, text: str) -> None:
        if self._stream is None:
            return
        if isinstance(self.display, _WithinRun):
            self._bar.message(text)
            return
        self._stream.write(f"{text}\n")
        self._stream.flush()


class _WithinRun(ProgressDisplay):
    """Shows the rate of a run in the experiment's bar, which counts only runs.

    Args:
        bar: the experiment's bar.

    Attributes:
        description: the description of the run.
    """

    def __init__(self, bar: ProgressDisplay) -> None:
        self._bar = bar
        self.description = ""

    def start_step(self, description: str) -> None:
        """Start a step of the run; its description is not shown."""
        super().start_step(description)
        self._bar.start_step(self.description)

    def show(self, rate: float, p99: float, errors: int) -> None:
        """Show the rate in operations per second, the 99th percentile in µs, and all errors."""
        self._bar.show(rate, p99, errors)

    def message(self, text: str) -> None:
        """Print a permanent line."""
        self._bar.message(text)
