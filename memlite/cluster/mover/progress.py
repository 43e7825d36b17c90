"""Progress display: a bar on a terminal, plain lines elsewhere."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from memlite.cluster.plan import items_text, size_text

__all__ = ["Progress", "progress_display"]

_LINE_SECONDS: Final = 5.0
_BAR_SECONDS: Final = 0.2
_NARROW: Final = 80
# Terminals with at least this many columns get a longer bar. Its length should not keep changing.
_WIDE: Final = 100
_WIDE_CELLS: Final = 20
_CELLS: Final = 12


class Progress:
    """The interface of progress displays; this base class only counts.

    Args:
        clock: returns seconds that never decrease.

    Attributes:
        items: number of items done so far in the present step, including those moved by clients.
        total: their total number, as far as is known.
        bytes: total size of the values sent.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.items = self.total = self.bytes = 0
        self._clock = clock
        self._doing = ""
        self._from = 0  # items already done at its beginning
        self._known = False  # whether the total covers all nodes
        self._nodes = 0
        self._seen: list[str] = []
        self._of_node = self._done_of_node = 0
        self._began = clock()

    def step(self, text: str) -> None:
        """Announce the present step."""

    def note(self, text: str) -> None:
        """Show a text that stays on the screen."""
        self.step(text)

    def begin(self, doing: str, nodes: int, total: int = 0, items: int = 0) -> None:
        """Begin a step on items of several nodes.

        Args:
            doing: the step, in a word or two.
            nodes: number of nodes.
            total: number of their items; 0 if it becomes known node by node.
            items: how many of them are already done.
        """
        self._doing, self._nodes, self._seen = doing, nodes, []
        self.total, self.items, self._from, self.bytes = max(total, items), items, items, 0
        self._of_node = self._done_of_node = 0
        self._known = total > 0
        self._began = self._clock()
        self.advance(0, 0)

    def node(self, name: str, items: int) -> None:
        """Begin with a node, or restart it; `items` is its number of items as known now."""
        if name not in self._seen:
            self._seen.append(name)
        self._of_node, self._done_of_node = items, 0
        if not self._known:
            self.total = self.items + items
        self.advance(0, 0)

    def advance(self, items: int, size: int) -> None:
        """Count completed items."""
        self.items += items
        self._done_of_node += items
        self.bytes += size
        self.total = max(self.total, self.items)

    def close(self) -> None:
        """Restore the terminal."""

    def share(self) -> float:
        """Return the completed share of the step, from 0 to 1.

        While the number of items is unknown, all nodes count equally.
        """
        if self._known:
            return self.items / self.total
        if not self._seen:
            return 0.0
        of_node = self._done_of_node / self._of_node if self._of_node else 1.0
        return min((len(self._seen) - 1 + min(of_node, 1.0)) / max(self._nodes, 1), 1.0)

    def status(self) -> list[str]:
        """Return the parts of the status, the most important first."""
        seconds = max(self._clock() - self._began, 1e-9)
        rate = (self.items - self._from) / seconds
        if self._known:
            texts = [f"{self.items:,} of {items_text(self.total)}"]
        elif self._seen:
            texts = [f"node {len(self._seen)} of {self._nodes}", items_text(self.items)]
        else:
            texts = [f"node 1 of {self._nodes}"]
        if rate:
            done = self.share()
            before = self._from / self.total if self._known else 0.0
            if before < done < 1:
                texts.append(f"{_time(seconds * (1 - done) / (done - before))} left")
            texts.append(f"{rate:,.0f}/s")
        if self.bytes:
            texts.append(size_text(self.bytes))
        return texts


class _Bar(Progress):
    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._next = 0.0
        self._shown = False

    def step(self, text: str) -> None:
        self._show(text)
        self._next = 0.0

    def note(self, text: str) -> None:
        self.close()
        self._stream.write(f"{text}\n")
        self._stream.flush()
        self._next = 0.0

    def advance(self, items: int, size: int) -> None:
        super().advance(items, size)
        if self._clock() < self._next:
            return
        self._next = self._clock() + _BAR_SECONDS
        self._show(self._line(_columns() - 1))

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\033[K")
            self._stream.flush()
            self._shown = False

    def _line(self, columns: int) -> str:
        """Return the line, omitting parts that do not fit."""
        cells = _WIDE_CELLS if columns >= _WIDE - 1 else _CELLS
        share, texts = self.share(), self.status()
        percent = f"{int(share * 100):3}%"  # 100% only when all is done
        filled = int(share * cells)
        bar = f"{self._doing} [{'#' * filled}{'-' * (cells - filled)}] {percent}"
        while texts:
            line = f"{bar} {', '.join(texts)}"
            if len(line) <= columns:
                return line
            texts.pop()
        return bar

    def _show(self, text: str) -> None:
        self._stream.write(f"\r\033[K{text[: _columns() - 1]}")
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
            self.step(f"  {self._doing}: {int(self.share() * 100)}%, {', '.join(self.status())}")


def _columns() -> int:
    return shutil.get_terminal_size((_NARROW, 24)).columns


def _time(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def progress_display(*, quiet: bool, stream: TextIO | None = None) -> Progress:
    """Return a progress display for `stream`, by default stderr; if `quiet`, an invisible one."""
    if quiet:
        return Progress()
    stream = stream or sys.stderr
    return _Bar(stream) if stream.isatty() else _Lines(stream)
