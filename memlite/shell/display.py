"""The display interface, and the output style."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from memlite.client.replies import Part
from memlite.shell.typed import Request

__all__ = ["Display", "Style"]

_RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Style:
    """The capabilities of the output.

    Attributes:
        terminal: whether the output is read on a terminal. Output to a file or program is complete,
            and its numbers are not grouped.
        colour: whether colours are supported.
        width: number of columns.
    """

    terminal: bool = False
    colour: bool = False
    width: int = 80

    def dim(self, text: str) -> str:
        """Return `text` styled as secondary text."""
        return self._styled("2", text)

    def bold(self, text: str) -> str:
        """Return `text` styled as a heading."""
        return self._styled("1", text)

    def red(self, text: str) -> str:
        """Return `text` styled as an error."""
        return self._styled("31", text)

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}{_RESET}" if self.colour and text else text

    def number(self, number: int) -> str:
        """Format a number, with thousands grouped on a terminal."""
        return f"{number:,}" if self.terminal else str(number)

    def clip(self, text: str, width: int) -> str:
        """Return `text`, shortened to `width` columns on a terminal."""
        if not self.terminal or len(text) <= width:
            return text
        return text[: max(0, width - 1)] + "…"


class Display(Protocol):
    """Renders the parts of a reply as they arrive."""

    def begin(self, request: Request) -> None:
        """Start a reply to `request`."""

    def part(self, part: Part) -> Iterator[bytes]:
        """Yield the output for the next part of the reply; may yield nothing yet."""

    def end(self, *, whole: bool = True) -> bytes:
        """Return the remaining output; `whole` is false if the reply was cut off."""
