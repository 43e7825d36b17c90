"""The view on a terminal: the effect of keys, and the drawing of the table."""

import asyncio
import contextlib
import os
import signal
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from memlite.top.servers import Servers
from memlite.top.table import COLUMNS, NAME, Row, hot_key_lines, lines, ordered

__all__ = ["View", "render", "show_once", "watch"]

_LETTERS: Final = NAME + "".join(column.letter for column in COLUMNS)
_INTERVALS: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_HOT_KEYS: Final = 5
_STYLES: Final = {"title": "reverse", "server": "", "down": "bold red", "total": "bold"}
_HELP: Final = "q quit  p pause  +/- interval  r reverse  </> or a letter sorts:"
_ESCAPES: Final = {b"\x1b[C": b">", b"\x1b[D": b"<", b"\x1bOC": b">", b"\x1bOD": b"<"}


@dataclass(frozen=True, slots=True)
class View:
    """The settings that keys change.

    Attributes:
        letter: the column by which servers are sorted.
        reverse: whether the order is reversed.
        paused: whether the table is not updated.
        interval: seconds between two readings.
        over: whether to exit.
    """

    letter: str = COLUMNS[0].letter
    reverse: bool = False
    paused: bool = False
    interval: float = 1.0
    over: bool = False

    def after(self, key: str) -> "View":
        """Return the view after a key was pressed."""
        if key in ("q", "\x03", "\x04"):
            return replace(self, over=True)
        if key in ("p", " "):
            return replace(self, paused=not self.paused)
        if key == "r":
            return replace(self, reverse=not self.reverse)
        if key in ("+", "-"):
            return replace(self, interval=self._next_interval(key == "+"))
        if key in ("<", ">"):
            step = 1 if key == ">" else -1
            at = (_LETTERS.index(self.letter) + step) % len(_LETTERS)
            return replace(self, letter=_LETTERS[at])
        if key in _LETTERS:
            return replace(self, letter=key)
        return self

    def _next_interval(self, longer: bool) -> float:
        if longer:
            return next((one for one in _INTERVALS if one > self.interval), self.interval)
        return next((one for one in reversed(_INTERVALS) if one < self.interval), self.interval)


def render(rows: Sequence[Row], view: View, width: int, height: int, clock: str) -> Group:
    """Return the output, no wider or higher than the terminal.

    Args:
        rows: the servers.
        view: the settings that keys change.
        width: the terminal's width.
        height: the terminal's height; 0 for no limit.
        clock: the time of day.
    """
    state = "paused" if view.paused else f"every {view.interval:g} s"
    title = f"memlite top  {state}"
    shown = [Text(f"{title}{clock:>{max(1, width - len(title))}}", style="dim")]
    table = list(lines(ordered(rows, view.letter, reverse=view.reverse), width, view.letter))
    if height:
        room = max(1, height - 3)
        if len(table) > room:  # the titles and the totals stay
            table = [*table[: room - 1], table[-1]]
    shown += [Text(_plain(line.text), style=_STYLES[line.kind]) for line in table]
    room = max(0, height - len(shown) - 4) if height else _HOT_KEYS
    keys = list(hot_key_lines(rows, width, min(_HOT_KEYS, room)))
    if keys:
        shown += [Text(), Text("hot keys".ljust(width), style="reverse")]
        shown += [Text(_plain(line)) for line in keys]
    for text in shown:
        text.no_wrap, text.overflow = True, "crop"
    return Group(*shown)


def _plain(text: str) -> str:
    """Return a text without terminal control characters: parts of it come from servers."""
    return "".join(one if one.isprintable() else "?" for one in text)


async def show_once(servers: Servers, console: Console, interval: float) -> list[Row]:
    """Read twice, for the rates, and show the table; return the rows shown."""
    await servers.read_twice(interval)
    rows = servers.rows()
    console.print(render(rows, View(interval=interval), console.width, 0, _clock()))
    return rows


async def watch(servers: Servers, console: Console, interval: float) -> None:
    """Show the table until ``q`` is pressed.

    Args:
        servers: the servers.
        console: the terminal.
        interval: the initial seconds between two readings.
    """
    await _Screen(servers, console, View(interval=interval)).run()


class _Screen:
    """The terminal while the table is shown."""

    def __init__(self, servers: Servers, console: Console, view: View) -> None:
        self._servers = servers
        self._console = console
        self._view = view
        self._changed = asyncio.Event()
        self._rows = servers.rows()
        self._clock = _clock()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        with _keys_unbuffered() as number:
            loop.add_reader(number, self._pressed, number)
            try:
                with Live(
                    console=self._console, screen=True, auto_refresh=False, transient=True
                ) as live:
                    await self._draw_until_over(live)
            finally:
                loop.remove_reader(number)
                loop.remove_signal_handler(signal.SIGWINCH)

    async def _draw_until_over(self, live: Live) -> None:
        loop = asyncio.get_running_loop()
        due = 0.0
        while not self._view.over:
            now = loop.time()
            if now >= due and not self._view.paused:
                self._servers.begin()
                # Show the last interval's readings; the first answers arrive at once.
                due = now + (self._view.interval if due else min(0.3, self._view.interval))
                self._rows, self._clock = self._servers.rows(), _clock()
            size = self._console.size
            live.update(self._drawn(size.width, size.height), refresh=True)
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                pause = None if self._view.paused else max(0.0, due - loop.time())
                await asyncio.wait_for(self._changed.wait(), pause)

    def _drawn(self, width: int, height: int) -> Group:
        table = render(self._rows, self._view, width, height, self._clock)
        text = Text(f"{_HELP} {_LETTERS}"[:width], style="dim")
        used = len(table.renderables)
        return Group(*table.renderables, *[Text()] * (height - used - 1), text)

    def _pressed(self, number: int) -> None:
        data = os.read(number, 64)
        if not data:  # the terminal was closed
            self._view = replace(self._view, over=True)
        for escape, key in _ESCAPES.items():
            data = data.replace(escape, key)
        for letter in data.decode("ascii", "ignore"):
            self._view = self._view.after(letter)
        self._changed.set()


@contextlib.contextmanager
def _keys_unbuffered() -> Iterator[int]:
    """Deliver keys at once and without echo; restore the terminal's settings at the end."""
    number = 0
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield number
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _clock() -> str:
    return time.strftime("%H:%M:%S")
