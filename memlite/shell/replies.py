"""What a server sends, taken apart as it comes, so that no reply is held as a whole.

`memlite.protocol.client` splits what fast clients ask for; a person may ask for anything, and wants
to see each line of it. So this reader is told what kind of reply was asked for.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from memlite.errors import ProtocolViolation

__all__ = ["FENCE", "Item", "Line", "Part", "ReplyReader", "Shape", "is_error"]

FENCE = b"version\r\n"
"""Sent behind a command of whose reply the end cannot be told: its answer is that end."""

_FENCE_REPLY = b"VERSION "
_UNAUTHENTICATED = b"CLIENT_ERROR unauthenticated"
_LINE_AT_MOST = 64 * 1024
_STATUS = re.compile(rb"[A-Z_]+(?::? .*|:)?|[0-9]+ *", re.DOTALL)
_ROW = (b"STAT ", b"ITEM ", b"PREFIX ", b"key=", b"mg ")
_ERRORS = (b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR", b"INVALID")


class Shape(Enum):
    """What a reply consists of, and so where it ends."""

    LINE = auto()
    """One line."""
    ITEMS = auto()
    """Items, then ``END``; or an error."""
    ITEM = auto()
    """An item without flags, as the lite dialect has it, then ``END``; or an error."""
    META = auto()
    """One item (``VA``), or one line."""
    ROWS = auto()
    """Lines of statistics, then one of another kind such as ``END``."""
    DUMP = auto()
    """``OK``, which older servers leave out, then a line for each item, then ``END`` or ``EN``."""
    STREAM = auto()
    """``OK``, then lines until somebody closes the connection; or an error."""
    FENCED = auto()
    """Anything, if only nothing; `FENCE` was sent behind the command."""
    LAST = auto()
    """One line, or the server closes the connection."""


class Line(NamedTuple):
    """A line of a reply, without its end."""

    text: bytes


class Item(NamedTuple):
    """An item: the line that announces it (``VALUE …`` or ``VA …``) and its value."""

    head: bytes
    value: bytes


Part = Line | Item


def is_error(part: Part) -> bool:
    """Return whether the server says with it that the command failed.

    A miss, or an item that was not stored as another is there, is an answer and no error.
    """
    return isinstance(part, Line) and part.text.partition(b" ")[0].rstrip(b":") in _ERRORS


class ReplyReader:
    """Takes the bytes of one reply as they come and gives its parts.

    Args:
        shape: what was asked for.
        value_at_most: bytes of the longest value to take.
    """

    def __init__(self, shape: Shape, value_at_most: int) -> None:
        self._shape = shape
        self._value_at_most = value_at_most
        self._buffer = bytearray()
        self._searched = 0
        self._head = b""
        self._missing = 0
        self._lines = 0
        self.done = False
        """Whether the reply has ended."""
        self.spent = shape in (Shape.STREAM, Shape.LAST)
        """Whether the connection is of no more use when it has."""

    @property
    def in_value(self) -> bool:
        """Whether a value is on its way; then any number of bytes is progress."""
        return bool(self._head)

    @property
    def streaming(self) -> bool:
        """Whether what comes next may take as long as it likes."""
        return self._shape is Shape.STREAM and self._lines > 0

    def feed(self, data: bytes) -> Iterator[Part]:
        """Yield the parts that `data` completes, in order; exhaust it before more is fed.

        Raises:
            ProtocolViolation: this is not what a memcached server sends, or too much of it; its
                text says so in a few words. The connection is of no use any more.
        """
        self._buffer += data
        position = 0
        while not self.done:
            if self._head:
                if len(self._buffer) - position < self._missing:
                    break
                end = position + self._missing
                value = bytes(self._buffer[position : end - 2])
                if self._buffer[end - 2 : end] != b"\r\n":
                    raise ProtocolViolation(
                        f"a value is longer than announced: {_shown(self._head)}"
                    )
                self._head, head = b"", self._head
                yield Item(head, value)
                self.done = self._shape is Shape.META
            else:
                end = self._buffer.find(b"\n", max(position, self._searched)) + 1
                if not end:
                    if len(self._buffer) - position > _LINE_AT_MOST:
                        raise _foreign(bytes(self._buffer[position : position + 80]))
                    self._searched = len(self._buffer)
                    break
                line = bytes(self._buffer[position : end - 1]).removesuffix(b"\r")
                if self._announces(line):
                    self._head = line
                elif self._show(line):
                    yield Line(line)
            position = end
        del self._buffer[:position]
        self._searched = max(0, self._searched - position)
        if self.done and self._buffer and not self.spent:
            raise ProtocolViolation(f"more than was asked for: {_shown(bytes(self._buffer[:80]))}")

    def _announces(self, line: bytes) -> bool:
        """Return whether a value follows, of which the rest of the reply then depends."""
        words = line.split(b" ")
        if words[0] == b"VALUE" and self._shape in (Shape.ITEMS, Shape.FENCED):
            length = words[3:4]
        elif words[0] == b"VALUE" and self._shape is Shape.ITEM:
            length = words[2:3]
        elif words[0] == b"VA" and self._shape in (Shape.META, Shape.FENCED):
            length = words[1:2]
        else:
            return False
        if not length or not length[0].isdigit() or len(length[0]) > 20:
            raise _foreign(line)
        size = int(length[0])
        if size > self._value_at_most:
            raise ProtocolViolation(
                f"a value of {size:,} bytes is more than the {self._value_at_most:,} taken here "
                "(--max-value)"
            )
        self._missing = size + 2
        return True

    def _show(self, line: bytes) -> bool:
        """Decide whether `line` ends the reply; return whether it is part of it."""
        known = _STATUS.fullmatch(line) is not None
        self._lines += 1
        match self._shape:
            case Shape.ROWS | Shape.DUMP:
                begins = self._shape is Shape.DUMP and self._lines == 1 and line == b"OK"
                self.done = not (begins or line.startswith(_ROW))
                known = known or not self.done
            case Shape.STREAM:
                self.done = self._lines == 1 and line != b"OK"
                known = known or self._lines > 1
            case Shape.FENCED:
                self.done = line.startswith(_FENCE_REPLY)
                if line == _UNAUTHENTICATED:
                    # The fence gets the same answer, of which memcached may send one or both.
                    self.done = self.spent = True
                    return True
                known = known or self._lines > 1 or line.startswith(_ROW)
            case _:
                self.done = True
        if not known:
            raise _foreign(line)
        return not (self.done and self._shape is Shape.FENCED)


def _foreign(line: bytes) -> ProtocolViolation:
    if line.startswith((b"HTTP/", b"<")):
        return ProtocolViolation(f"this is a web server: {_shown(line)}")
    if line[:2] in (b"\x15\x03", b"\x16\x03"):
        return ProtocolViolation("the server speaks TLS (--tls)")
    return ProtocolViolation(f"not memcached's protocol: {_shown(line)}")


def _shown(line: bytes) -> str:
    return repr(line[:40])[1:] + (" …" if len(line) > 40 else "")
