"""Progress display: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from memlite.loadtest.messages import ProgressUpdate
from memlite.loadtest.units import duration, short

__all__ = ["ProgressDisplay", "progress_display"]

_LINE_SECONDS = 5.0


class ProgressDisplay:
    """The interface of progress displays; this base class shows nothing. A context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def expect_measurements(self, measurements: int) -> None:
        """Set the total number of measurements."""

    def start_step(self, description: str) -> None:
        """Start a step, such as a measurement."""
        self._operations, self._time = 0, time.monotonic()

    def update(self, updates: Sequence[ProgressUpdate]) -> None:
        """Show the workers' combined progress."""
        operations = sum(one.operations for one in updates)
        now = time.monotonic()
        if operations < self._operations:  # the warm-up is over
            self._operations = 0
        rate = (operations - self._operations) / max(now - self._time, 1e-9)
        self._operations, self._time = operations, now
        self.show(rate, max(one.p99 for one in updates), sum(one.errors for one in updates))

    def show(self, rate: float, p99: float, errors: int) -> None:
        """Show the rate in operations per second, the 99th percentile in µs, and all errors."""

    def finish_measurement(self) -> None:
        """Count a measurement as finished."""

    def message(self, text: str) -> None:
        """Print a permanent line."""


class _Bar(ProgressDisplay):
    """A progress bar followed by the current rate, latency and errors."""

    def __init__(self, stream: TextIO) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[now]}"),
            console=Console(file=stream),
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None, now="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._progress.stop()

    def expect_measurements(self, measurements: int) -> None:
        self._progress.update(self._task, total=measurements)

    def start_step(self, description: str) -> None:
        super().start_step(description)
        self._progress.update(self._task, description=description, now="")

    def show(self, rate: float, p99: float, errors: int) -> None:
        text = f"{short(rate)}/s p99 {duration(p99)}" + (f" {errors} errors" if errors else "")
        self._progress.update(self._task, now=text)

    def finish_measurement(self) -> None:
        self._progress.advance(self._task)

    def message(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


class _Lines(ProgressDisplay):
    """One line for each finished measurement, and a progress line every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = self._finished = 0
        self._step = ""
        self._next_line = 0.0

    def expect_measurements(self, measurements: int) -> None:
        self._total = measurements

    def start_step(self, description: str) -> None:
        super().start_step(description)
        self._step = description
        self._next_line = time.monotonic() + _LINE_SECONDS

    def show(self, rate: float, p99: float, errors: int) -> None:
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_SECONDS
            failed = f", {errors} errors" if errors else ""
            self.message(f"  {self._step}: {short(rate)}/s, p99 {duration(p99)}{failed}")

    def finish_measurement(self) -> None:
        self._finished += 1
        total = f"/{self._total}" if self._total else ""
        self.message(f"[{self._finished}{total}] {self._step}")

    def message(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


def progress_display(*, quiet: bool, stream: TextIO | None = None) -> ProgressDisplay:
    """Return a progress display for `stream`, by default stderr; it shows nothing if `quiet`."""
    if quiet:
        return ProgressDisplay()
    stream = stream or sys.stderr
    return _Bar(stream) if stream.isatty() else _Lines(stream)
