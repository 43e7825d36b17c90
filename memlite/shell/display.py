"""What a display is, and the styles of one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from memlite.shell.replies import Part
from memlite.shell.typed import Request

__all__ = ["Display", "Style"]

_RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Style:
    """What the output can show.

    Attributes:
        terminal: whether people read it there and then; else it goes to a file or a program, and is
            complete, with numbers as they are.
        colour: whether it understands colours.
        width: columns.
    """

    terminal: bool = False
    colour: bool = False
    width: int = 80

    def dim(self, text: str) -> str:
        """Return `text` as an aside."""
        return self._styled("2", text)

    def bold(self, text: str) -> str:
        """Return `text` as a heading."""
        return self._styled("1", text)

    def red(self, text: str) -> str:
        """Return `text` as an error."""
        return self._styled("31", text)

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}{_RESET}" if self.colour and text else text

    def number(self, number: int) -> str:
        """Return a number, for people with its thousands apart."""
        return f"{number:,}" if self.terminal else str(number)

    def clip(self, text: str, width: int) -> str:
        """Return `text`, on a terminal in `width` columns at most."""
        if not self.terminal or len(text) <= width:
            return text
        return text[: max(0, width - 1)] + "…"


class Display(Protocol):
    """Turns the parts of a reply into what is written, as they come."""

    def begin(self, request: Request) -> None:
        """A reply to `request` follows."""

    def part(self, part: Part) -> Iterator[bytes]:
        """Yield what to write for the next part of the reply, bit by bit; perhaps nothing yet."""

    def end(self, *, whole: bool = True) -> bytes:
        """Return what is still to be written; the reply has ended, or broke off (not `whole`)."""
