"""Replies as they came: values without anything around them, lines as lines."""

from collections.abc import Iterator

from memlite.shell.replies import Item, Part, Shape
from memlite.shell.text import clean
from memlite.shell.typed import Request

__all__ = ["Raw"]


class Raw:
    """Shows values byte by byte, and of other replies the lines.

    Nothing is added to a value, so that one can be written to a file; before the next there is a
    line end. What only frames a reply is left out: ``END``, the line that announces a value.

    Args:
        terminal: whether a terminal shows it, which must not get controls: they are escaped.
    """

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._open = False
        self._frames: tuple[bytes, ...] = ()

    def begin(self, request: Request) -> None:
        """Remember what will frame the reply."""
        self._frames = (b"END", b"EN", b"OK") if request.shape is Shape.DUMP else (b"END", b"EN")

    def part(self, part: Part) -> Iterator[bytes]:
        """Yield a value or a line."""
        data = part.value if isinstance(part, Item) else part.text
        if not isinstance(part, Item) and data in self._frames:
            return
        if self._open:
            yield b"\n"
        self._open = isinstance(part, Item)
        if self._terminal:
            data = clean(data, lines=True).encode()
        yield data
        if not self._open:
            yield b"\n"

    def end(self, *, whole: bool = True) -> bytes:
        """Return a line end where a terminal needs one."""
        if not (self._terminal and self._open):
            return b""
        self._open = False
        return b"\n"
