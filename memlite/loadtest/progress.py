"""What the user sees while it runs: a bar on a terminal, lines elsewhere."""

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

from memlite.loadtest.units import duration, short
from memlite.loadtest.worker import Glance

__all__ = ["Watcher", "watch"]

_LINE_SECONDS = 5.0


class Watcher:
    """Is told how a run goes, and tells nobody; a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def expect(self, measurements: int) -> None:
        """Learn how many measurements there will be."""

    def begin(self, what: str) -> None:
        """Learn what is done next."""
        self._operations, self._time = 0, time.monotonic()

    def glance(self, glances: Sequence[Glance]) -> None:
        """Learn how it goes."""
        operations = sum(one.operations for one in glances)
        now = time.monotonic()
        if operations < self._operations:  # the warm-up is over
            self._operations = 0
        rate = (operations - self._operations) / max(now - self._time, 1e-9)
        self._operations, self._time = operations, now
        self.show(rate, max(one.p99 for one in glances), sum(one.errors for one in glances))

    def show(self, rate: float, p99: float, errors: int) -> None:
        """Show operations a second, the 99th percentile in µs, and errors so far."""

    def done(self) -> None:
        """Learn that a measurement is done."""

    def say(self, text: str) -> None:
        """Show a line that stays."""


class _Bar(Watcher):
    """A bar with what goes on behind it."""

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

    def expect(self, measurements: int) -> None:
        self._progress.update(self._task, total=measurements)

    def begin(self, what: str) -> None:
        super().begin(what)
        self._progress.update(self._task, description=what, now="")

    def show(self, rate: float, p99: float, errors: int) -> None:
        text = f"{short(rate)}/s p99 {duration(p99)}" + (f" {errors} errors" if errors else "")
        self._progress.update(self._task, now=text)

    def done(self) -> None:
        self._progress.advance(self._task)

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


class _Lines(Watcher):
    """A line for each thing that is done, and every few seconds one on how it goes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = self._done = 0
        self._what = ""
        self._next = 0.0

    def expect(self, measurements: int) -> None:
        self._total = measurements

    def begin(self, what: str) -> None:
        super().begin(what)
        self._what = what
        self._next = time.monotonic() + _LINE_SECONDS

    def show(self, rate: float, p99: float, errors: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_SECONDS
            failed = f", {errors} errors" if errors else ""
            self.say(f"  {self._what}: {short(rate)}/s, p99 {duration(p99)}{failed}")

    def done(self) -> None:
        self._done += 1
        total = f"/{self._total}" if self._total else ""
        self.say(f"[{self._done}{total}] {self._what}")

    def say(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


def watch(*, quiet: bool, stream: TextIO = sys.stderr) -> Watcher:
    """Return what shows progress on `stream`."""
    if quiet:
        return Watcher()
    return _Bar(stream) if stream.isatty() else _Lines(stream)
