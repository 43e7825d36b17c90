"""Replies of the text protocol, the client's side: bytes in, reply values out, without I/O.

`ReplyReader` builds a value for every part of a reply and needs to know the shape of each reply.
`memlite.client.scanner` finds where replies end without building anything.
"""

import re
from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from memlite.core.errors import ProtocolViolation

__all__ = [
    "END",
    "FENCE",
    "LINE_LENGTH",
    "VALUE_LENGTH",
    "Fault",
    "Item",
    "Line",
    "Part",
    "Reply",
    "ReplyError",
    "ReplyReader",
    "Shape",
    "is_error",
]

FENCE: Final = b"version\r\n"
"""Sent after a command whose reply has no recognizable end; the reply to it marks that end."""

LINE_LENGTH: Final = 64 * 1024
"""Default limit for a line of a reply, in bytes. The lines that servers send are far shorter."""

VALUE_LENGTH: Final = 1024 * 1024 * 1024
"""Default limit for a value, in bytes: the largest item size that servers can be configured for."""

_FENCE_REPLY: Final = b"VERSION "
_UNAUTHENTICATED: Final = b"CLIENT_ERROR unauthenticated"
_CRLF: Final = b"\r\n"
_ROW: Final = (b"STAT ", b"ITEM ", b"PREFIX ", b"key=", b"mg ")
_ERRORS: Final = frozenset((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR", b"INVALID"))
# Lines that end most replies; they need no regular expression.
_FREQUENT: Final = frozenset(
    b"END STORED NOT_STORED EXISTS NOT_FOUND DELETED TOUCHED OK HD EN".split()
)
_is_status = re.compile(rb"[A-Z_]+(?::? .*|:)?|[0-9]+ *", re.DOTALL).fullmatch
_LENGTH_DIGITS: Final = 19
# The longest line for the fast path, in bytes: a key, and numbers of a few digits.
_SHORT: Final = 320
# Takes half the time of calling the class.
_new: Final = tuple.__new__


class Shape(Enum):
    """The parts that a reply consists of, which determine where it ends."""

    LINE = auto()
    """One line."""
    ITEMS = auto()
    """Items, then ``END``; or a single line, such as an error."""
    ITEM = auto()
    """An item without flags, as in the lite dialect, then ``END``; or a single line."""
    META = auto()
    """One item (``VA``), or one line."""
    ROWS = auto()
    """Lines of statistics, then a line of another kind, such as ``END``."""
    DUMP = auto()
    """``OK``, which older servers omit, then a line for each item, then ``END`` or ``EN``."""
    STREAM = auto()
    """``OK``, then lines until either side closes the connection; or an error."""
    FENCED = auto()
    """Anything, or nothing at all; `FENCE` was sent after the command."""
    LAST = auto()
    """One line, or the server closes the connection without one."""


class Fault(Enum):
    """Why received bytes are not the expected reply."""

    FOREIGN = auto()
    """The line is not part of memcached's protocol."""
    HTTP = auto()
    """The line comes from a web server."""
    TLS = auto()
    """The peer speaks TLS, and the connection does not."""
    TOO_LARGE = auto()
    """A value, or a reply, is longer than the reader's limit."""
    LENGTH = auto()
    """A value does not end where its announced length says."""
    EXCESS = auto()
    """The peer sent more than was requested."""


class ReplyError(ProtocolViolation):
    """The peer sent something that is not the expected reply; the connection is unusable.

    Attributes:
        fault: the reason.
        line: the line concerned, or the beginning of it.
    """

    def __init__(self, fault: Fault, text: str, line: bytes) -> None:
        super().__init__(f"{text}: {_shown(line)}" if line else text)
        self.fault = fault
        self.line = line


class Line(NamedTuple):
    """A line of a reply.

    Attributes:
        text: the line without its line ending.
    """

    text: bytes

    @property
    def word(self) -> bytes:
        """The first word, such as ``STORED`` or a meta command's ``HD``."""
        return self.text.partition(b" ")[0]

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """The other words: of a meta command's reply, its flags with their arguments."""
        return tuple(self.text.split()[1:])


class Item(NamedTuple):
    """An item: the line that announces it and its value.

    The line is kept as it was received, so that it can be forwarded; properties parse it.

    Attributes:
        head: the line, ``VALUE …`` or ``VA …``, without its line ending.
        value: the value.
    """

    head: bytes
    value: bytes

    @property
    def key(self) -> bytes | None:
        """The key; for a meta command, that of the ``k`` flag, None if it was not requested."""
        if self.head.startswith(b"VALUE "):
            return self.head[6 : self.head.index(b" ", 6)]
        return self.token(b"k")

    @property
    def flags(self) -> int:
        """The client flags; 0 where the reply does not contain them."""
        if self.head.startswith(b"VA "):
            return int(self.token(b"f") or 0)
        words = self.head.split(b" ")
        return int(words[2]) if len(words) > 3 else 0

    @property
    def unique(self) -> int | None:
        """The cas unique; None where the reply does not contain it."""
        if self.head.startswith(b"VA "):
            number = self.token(b"c")
            return None if number is None else int(number)
        words = self.head.split(b" ")
        return int(words[4]) if len(words) > 4 else None

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """The flags of a meta command's reply with their arguments; empty for other replies."""
        return tuple(self.head.split()[2:]) if self.head.startswith(b"VA ") else ()

    def token(self, flag: bytes) -> bytes | None:
        """Return the argument of a meta flag, such as ``b"t"``; None if the flag is absent."""
        for token in self.tokens:
            if token[:1] == flag:
                return token[1:]
        return None


Part = Line | Item
"""A part of a reply."""

END: Final = Line(b"END")
"""The line after a retrieval's items: always this object."""


class Reply(NamedTuple):
    """A complete reply.

    Attributes:
        parts: its items and lines, in order. Empty only for `Shape.FENCED` and `Shape.LAST`.
    """

    parts: tuple[Part, ...]

    @property
    def items(self) -> list[Item]:
        """The items found."""
        return [part for part in self.parts if isinstance(part, Item)]

    @property
    def line(self) -> bytes:
        """The last line, such as ``STORED``; empty if the reply ends with an item, or is empty."""
        last = self.parts[-1] if self.parts else None
        return last.text if isinstance(last, Line) else b""

    @property
    def error(self) -> bytes | None:
        """The first line that reports an error; None if the command succeeded."""
        for part in self.parts:
            if isinstance(part, Line) and is_error(part):
                return part.text
        return None


_ONE_LINE: Final = {line: Reply((END if line == END.text else Line(line),)) for line in _FREQUENT}


def is_error(part: Part) -> bool:
    """Return whether the server reports with `part` that the command failed.

    A miss is a regular outcome, and so is ``NOT_STORED``.
    """
    return isinstance(part, Line) and part.word.rstrip(b":") in _ERRORS


class ReplyReader:
    """Reads replies from bytes as they arrive, in any pieces.

    Values are framed by their declared length, and no byte is searched twice.

    Args:
        line_length: limit for a line, in bytes.
        value_length: limit for a value, in bytes.
        reply_length: limit for the lines and values of a reply together, in bytes; None for none.
            Parts that `take_parts` has returned do not count.
        default: the shape of replies for which `expect` was not called; None if such replies are
            an error.

    Attributes:
        spent: whether the connection is unusable after the last reply read.
    """

    def __init__(
        self,
        *,
        line_length: int = LINE_LENGTH,
        value_length: int = VALUE_LENGTH,
        reply_length: int | None = None,
        default: Shape | None = None,
    ) -> None:
        self.spent = False
        self._line_length = line_length
        self._value_length = value_length
        self._reply_length = reply_length
        self._default = default
        self._expected: deque[Shape] = deque()
        self._shape: Shape | None = None  # of the reply being read
        self._parts: list[Part] = []
        self._lines = 0  # of that reply, so far
        self._size = 0  # of those parts, in bytes, if it is limited
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0  # bytes required to continue; 0: a line ending is required

    def expect(self, shape: Shape) -> None:
        """Announce a reply; call once for each request sent, in order."""
        self._expected.append(shape)

    @property
    def in_reply(self) -> bool:
        """Whether a part of a reply was received, but not all of it."""
        return bool(self._chunks) or self._shape is not None

    @property
    def in_value(self) -> bool:
        """Whether a value is being received."""
        return bool(self._chunks) and self._need > 0

    @property
    def streaming(self) -> bool:
        """Whether the next part may take any length of time to arrive."""
        return self._shape is Shape.STREAM and self._lines > 0

    def take_parts(self) -> list[Part]:
        """Return the parts read so far of an incomplete reply.

        They will not be part of the `Reply` that `feed` yields.
        """
        parts, self._parts = self._parts, []
        self._size = 0
        return parts

    def feed(self, data: bytes) -> Iterator[Reply]:
        """Yield the replies that `data` completes, in order.

        The iterator must be exhausted before the next call.

        Raises:
            ReplyError: the data is not an expected reply. Everything before it was yielded, or is
                returned by `take_parts`.
        """
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need or (not self._need and b"\n" not in data):
                self._check_line_length()
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        position, size = 0, len(data)
        # Looked up once: a pipelined reply takes about a microsecond.
        find, starts, longest = data.find, data.startswith, self._value_length
        items, expected, default = Shape.ITEMS, self._expected, self._default
        one_line = _ONE_LINE
        while position < size and not self.spent:
            shape = self._shape
            if shape is None:
                shape = expected.popleft() if expected else default
                if shape is None:
                    line = data[position : position + _SHOWN_LENGTH]
                    raise ReplyError(Fault.EXCESS, "unexpected data after the reply", line)
                # The fast path: a frequent line, or a complete hit of one key.
                newline = find(b"\r\n", position, position + _SHORT)
                line = data[position:newline] if newline > 0 else b""
                known = one_line.get(line)
                if known is not None and (shape is items or shape is Shape.LINE):
                    position = newline + 2
                    yield known
                    continue
                if shape is items and line.startswith(b"VALUE "):
                    words = line.split(b" ")
                    if len(words) == 4 and words[2].isdigit() and words[3].isdigit():
                        begin = newline + 2
                        end = begin + int(words[3])
                        if starts(b"\r\nEND\r\n", end) and end - begin <= longest:
                            position = end + 7
                            yield _new(Reply, ((_new(Item, (line, data[begin:end])), END),))
                            continue
                self._shape = shape
            newline = find(b"\n", position)
            if newline < 0:
                self._keep(data[position:], 0)
                return
            end = newline - 1 if newline > position and data[newline - 1] == _CR else newline
            line = data[position:end]
            # Only VALUE and VA begin like this.
            length = self._announced(line, shape) if data[position] == _V else -1
            if length < 0:
                position = newline + 1
                if self._take_line(line, shape):
                    yield self._complete()
                continue
            after = newline + 1 + length
            if after + 2 > size:
                self._keep(data[position:], after + 2 - position)
                return
            if not starts(_CRLF, after):
                raise ReplyError(Fault.LENGTH, "a value is longer than announced", line)
            if self._reply_length is not None:
                self._count(len(line) + length, self._reply_length)
            self._parts.append(Item(line, data[newline + 1 : after]))
            position = after + 2
            if shape is Shape.META:
                yield self._complete()

    def _keep(self, data: bytes, need: int) -> None:
        self._chunks.append(data)
        self._have = len(data)
        self._need = need
        self._check_line_length()

    def _check_line_length(self) -> None:
        if not self._need and self._have > self._line_length:
            raise _foreign(b"".join(self._chunks)[:_SHOWN_LENGTH])

    def _complete(self) -> Reply:
        parts, self._parts = self._parts, []
        if self._shape is Shape.STREAM or self._shape is Shape.LAST:
            self.spent = True
        self._shape = None
        self._lines = self._size = 0
        return Reply(tuple(parts))

    def _count(self, size: int, limit: int) -> None:
        """Count bytes of the reply being read.

        Raises:
            ReplyError: the reply is too long.
        """
        self._size += size
        if self._size > limit:
            text = f"a reply exceeds the limit of {limit:,} bytes"
            raise ReplyError(Fault.TOO_LARGE, text, b"")

    def _announced(self, line: bytes, shape: Shape) -> int:
        """Return the length of the value that `line` announces; -1 if it announces none."""
        words = line.split(b" ")
        if words[0] == b"VALUE" and (shape is Shape.ITEMS or shape is Shape.FENCED):
            # Key, flags, length, perhaps a cas unique.
            valid = len(words) == 4 or (len(words) == 5 and words[4].isdigit())
            word = words[3] if valid and words[2].isdigit() else b""
        elif words[0] == b"VALUE" and shape is Shape.ITEM:
            word = words[2] if len(words) == 3 else b""
        elif words[0] == b"VA" and (shape is Shape.META or shape is Shape.FENCED):
            word = words[1] if len(words) > 1 else b""
        else:
            return -1
        if not word.isdigit() or len(word) > _LENGTH_DIGITS:
            raise _foreign(line)
        length = int(word)
        if length > self._value_length:
            raise ReplyError(
                Fault.TOO_LARGE,
                f"a value of {length:,} bytes exceeds the limit of {self._value_length:,}",
                b"",
            )
        return length

    def _take_line(self, line: bytes, shape: Shape) -> bool:
        """Add a line to the reply; return whether the reply ends with it."""
        self._lines += 1
        if self._reply_length is not None:
            self._count(len(line) + 1, self._reply_length)  # an empty line takes memory, too
        first = self._lines == 1
        done = True
        known = line in _FREQUENT
        if shape is Shape.ROWS or shape is Shape.DUMP:
            begins = shape is Shape.DUMP and first and line == b"OK"
            done = not (begins or line.startswith(_ROW))
            known = known or not done
        elif shape is Shape.STREAM:
            done = first and line != b"OK"
            known = known or not first
        elif shape is Shape.FENCED:
            if line.startswith(_FENCE_REPLY):
                return True
            # The fence is refused as well, and memcached may send one or both of the errors.
            done = self.spent = line == _UNAUTHENTICATED
            known = known or not first or line.startswith(_ROW)
        if not known and _is_status(line) is None:
            raise _foreign(line)
        self._parts.append(END if line == b"END" else Line(line))
        return done


_CR: Final = ord("\r")
_V: Final = ord("V")
_SHOWN_LENGTH: Final = 80


def _foreign(line: bytes) -> ReplyError:
    if line.startswith((b"HTTP/", b"<")):
        return ReplyError(Fault.HTTP, "this is a web server", line)
    if line[:2] in (b"\x15\x03", b"\x16\x03"):
        return ReplyError(Fault.TLS, "the server speaks TLS", b"")
    return ReplyError(Fault.FOREIGN, "not memcached's protocol", line)


def _shown(line: bytes) -> str:
    return repr(line[:40])[1:] + (" …" if len(line) > 40 else "")
