"""The raw display: values without any framing, and lines unchanged."""

from collections.abc import Iterator

from memlite.client.replies import Item, Part, Shape
from memlite.shell.text import clean
from memlite.shell.typed import Request

__all__ = ["Raw"]


class Raw:
    """Writes values byte for byte, and the lines of other replies.

    Nothing is added to a single value, so that it can be redirected to a file; further values are
    separated by newlines. Lines that only frame a reply, such as ``END`` or the header of a value,
    are omitted.

    Args:
        terminal: whether the output is a terminal; if so, control characters are escaped.
    """

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._needs_newline = False
        self._frames: tuple[bytes, ...] = ()

    def begin(self, request: Request) -> None:
        """Start a reply to `request`."""
        self._frames = (b"END", b"EN", b"OK") if request.shape is Shape.DUMP else (b"END", b"EN")

    def part(self, part: Part) -> Iterator[bytes]:
        """Yield a value or a line."""
        data = part.value if isinstance(part, Item) else part.text
        if not isinstance(part, Item) and data in self._frames:
            return
        if self._needs_newline:
            yield b"\n"
        self._needs_newline = isinstance(part, Item)
        if self._terminal:
            data = clean(data, lines=True).encode()
        yield data
        if not self._needs_newline:
            yield b"\n"

    def end(self, *, whole: bool = True) -> bytes:
        """Return the final newline that a terminal needs after a value."""
        if not (self._terminal and self._needs_newline):
            return b""
        self._needs_newline = False
        return b"\n"
