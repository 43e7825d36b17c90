"""Progress display: a bar on a terminal, plain lines elsewhere."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from memlite.cluster.plan import size_text

__all__ = ["Progress", "progress_display"]

_LINE_SECONDS: Final = 5.0
_BAR_SECONDS: Final = 0.2
_BAR_CELLS: Final = 20
_NARROW: Final = 80


class Progress:
    """The interface of progress displays; this base class shows nothing but counts.

    Args:
        clock: returns seconds that never decrease.

    Attributes:
        items: items that have moved so far, including those that were moved by clients.
        total: how many there are to move, as far as is known.
        bytes: those of the values that have moved.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.items = self.total = self.bytes = 0
        self._clock = clock
        self._began = clock()

    def step(self, text: str) -> None:
        """Say what is being done now."""

    def begin(self, total: int) -> None:
        """Begin to move items."""
        self.total = total
        self._began = self._clock()

    def advance(self, items: int, size: int) -> None:
        """Count items that have moved."""
        self.items += items
        self.bytes += size
        self.total = max(self.total, self.items)

    def close(self) -> None:
        """Leave the terminal as it should be."""

    def status(self) -> str:
        """Return how far it is, with rate and remaining time."""
        seconds = max(self._clock() - self._began, 1e-9)
        rate = self.items / seconds
        text = f"{self.items:,} of {self.total:,} items, {size_text(self.bytes)}, {rate:,.0f}/s"
        left = self.total - self.items
        return f"{text}, {_time(left / rate)} left" if rate and left else text


class _Bar(Progress):
    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._next = 0.0
        self._shown = False

    def step(self, text: str) -> None:
        self._show(text)
        self._next = 0.0

    def begin(self, total: int) -> None:
        super().begin(total)
        self.advance(0, 0)

    def advance(self, items: int, size: int) -> None:
        super().advance(items, size)
        if self._clock() < self._next:
            return
        self._next = self._clock() + _BAR_SECONDS
        share = self.items / self.total if self.total else 0.0
        filled = round(share * _BAR_CELLS)
        bar = "#" * filled + "-" * (_BAR_CELLS - filled)
        self._show(f"moving [{bar}] {share:4.0%} {self.status()}")

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\033[K")
            self._stream.flush()
            self._shown = False

    def _show(self, text: str) -> None:
        width = shutil.get_terminal_size((_NARROW, 24)).columns
        self._stream.write(f"\r\033[K{text[: width - 1]}")
        self._stream.flush()
        self._shown = True


class _Lines(Progress):
    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._next = self._clock() + _LINE_SECONDS

    def step(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def advance(self, items: int, size: int) -> None:
        super().advance(items, size)
        if self._clock() >= self._next:
            self._next = self._clock() + _LINE_SECONDS
            self.step(f"  {self.status()}")


def _time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def progress_display(*, quiet: bool, stream: TextIO | None = None) -> Progress:
    """Return a progress display for `stream`, stderr by default; none is seen if `quiet`."""
    if quiet:
        return Progress()
    stream = stream or sys.stderr
    return _Bar(stream) if stream.isatty() else _Lines(stream)
