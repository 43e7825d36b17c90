"""Prints the answer to a plan."""

import shutil
import textwrap
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from memlite.loadtest.capacity.answer import Answer, Option
from memlite.loadtest.capacity.estimate import Range
from memlite.loadtest.units import duration, grouped

__all__ = ["show"]

_WIDTH = 79


def show(answer: Answer, stream: TextIO) -> None:
    """Print an answer: the servers, the reasons, and when the answer would be wrong."""
    width = shutil.get_terminal_size().columns if stream.isatty() else _WIDTH
    console = Console(file=stream, width=width, highlight=False)

    def say(text: str = "", start: str = "") -> None:
        stream.write(
            textwrap.fill(text, width, initial_indent=start, subsequent_indent="    ") + "\n"
        )

    request = answer.request
    stream.writelines(f"{doubt}\n" for doubt in answer.doubts)
    say(
        f"For {grouped(request.rate)} operations per second, with 99 of 100 responses within "
        f"{duration(request.p99)}:"
    )
    for sentence in answer.advice:
        say(sentence, "  - ")
    possible = [one for one in answer.options if one.estimate is not None]
    if possible:
        say()
        console.print(_table(answer, possible))
    for option in answer.options:
        if option.reason:
            say()
            say(f"No estimate for {option.target}: {option.reason}.")
    for title, sentences in (
        ("Based on", answer.basis),
        ("This estimate is wrong if", answer.wrong_if),
    ):
        if sentences:
            say()
            say(title)
        for sentence in sentences:
            say(sentence, "  - ")


def _table(answer: Answer, options: list[Option]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    proxies = any(one.estimate and one.estimate.proxies.high for one in options)
    types = {one.machines.machine.name for one in options if one.machines is not None}
    table.add_column("target", overflow="fold")
    for title in (
        "servers",
        *(("proxies",) if proxies else ()),
        "ops/s each",
        types.copy().pop() if len(types) == 1 else "machines",
        f"{answer.currency} a month",
    ):
        table.add_column(title, justify="right", overflow="fold")
    for option in options:
        found = option.estimate
        if found is None:
            continue
        row = [escape(option.target), _range(option.servers or found.servers)]
        if proxies:
            row.append(_range(found.proxies))
        row.append(_joined(grouped(found.each.low), grouped(found.each.high)))
        if option.machines is None or option.month is None:
            row += ["no type known", ""]
        else:
            name = f" {option.machines.machine.name}" if len(types) > 1 else ""
            row += [f"{_range(option.machines.count)}{name}", _range(option.month)]
        table.add_row(*row)
    return table


def _range(number: Range) -> str:
    return _joined(f"{number.low:,.0f}", f"{number.high:,.0f}")


def _joined(low: str, high: str) -> str:
    return low if low == high else f"{low}–{high}"
