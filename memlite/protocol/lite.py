r"""The parser of the "memcached-lite" protocol used in teaching: bytes in, handler calls out.

The dialect has three commands of memcached's text protocol::

    set <key> <bytes>\r\n<value>\r\n    STORED, or NOT_STORED if the line is malformed
    get <key>\r\n                       VALUE <key> <bytes>\r\n<value>\r\nEND, or END alone
    quit\r\n
"""

from typing import Final

from memlite.core.errors import ProtocolViolation
from memlite.protocol import replies
from memlite.protocol.handler import Handler
from memlite.protocol.limits import Limits, item_total
from memlite.protocol.magic import MAGIC
from memlite.protocol.numbers import unsigned
from memlite.protocol.pieces import Pieces
from memlite.protocol.text_table import GET, TOO_LARGE

__all__ = ["LiteParser"]

_INVALID: Final = b"INVALID\r\n"
_SIZES_END: Final = 2**31 - 2  # memcached's limit


class _Stored(Pieces):
    """The value of a set that is incomplete or not yet followed by its line ending."""

    __slots__ = ("key",)

    def __init__(self, key: bytes, size: int) -> None:
        super().__init__(size)
        self.key = key


class _Refused:
    """A value that is read and discarded, with the interface of `Pieces`."""

    __slots__ = ("missing",)

    def __init__(self, size: int) -> None:
        self.missing = size

    def append(self, piece: bytes) -> None:
        self.missing -= len(piece)


class LiteParser:
    """Finds commands in a stream and calls the handler's methods, in order.

    Lines end with a line feed, optionally preceded by a carriage return. Words are separated by one
    or more spaces. A value has the declared length and may contain any bytes; anything between it
    and the end of the line is discarded. Incomplete input is kept for the next `receive`, and no
    byte is scanned twice.

    Calls `Handler.set`, `reject` and `quit`, and `execute` with GET (for one key) and TOO_LARGE.

    Args:
        limits: the limits on what the peer may send; `Limits.line_length` applies to every line.
    """

    __slots__ = (
        "_backlog",
        "_backlog_position",
        "_commands_per_turn",
        "_limits",
        "_line",
        "_pending",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._commands_per_turn = range(limits.commands_per_read)
        # Input left over when a turn ended starts at this position; see `TextParser`.
        self._backlog = b""
        self._backlog_position = 0
        self._line = bytearray()  # an incomplete line
        self._pending: _Stored | _Refused | None = None

    @property
    def backlog(self) -> int:
        """Bytes of memory taken by input left over from the last turn."""
        return len(self._backlog)

    @property
    def in_value(self) -> bool:
        """Whether a set is waiting for the rest of its value or its line ending."""
        return self._pending is not None

    @property
    def in_command(self) -> bool:
        """Whether part of a command has arrived and the rest has not."""
        return bool(self._pending is not None or self._line or self._backlog)

    def receive(self, data: bytes, handler: Handler) -> bool:
        """Take bytes from the peer and carry out the commands they complete.

        Args:
            data: the bytes that arrived; empty to continue after True was returned.
            handler: carries out the commands.

        Returns:
            True if `Limits.commands_per_read` commands were carried out and more are buffered:
            call again with ``b""`` once other connections have had their turn.

        Raises:
            ProtocolViolation: the connection must be closed (an endless line, a binary request, an
                HTTP request).
        """
        position = 0
        commands = self._commands_per_turn
        if self._backlog:
            backlog, position, self._backlog = self._backlog, self._backlog_position, b""
            data, position = (backlog[position:] + data, 0) if data else (backlog, position)
        elif self._line:
            if b"\n" not in data:
                self._buffer_line(data)
                return False
            data = bytes(self._line) + data
            self._line.clear()
        elif self._pending is not None:
            position = self._continue_value(self._pending, handler, data)
            if not self.in_value:
                commands = commands[1:]  # the set counts in the turn in which it is carried out
        length = len(data)
        for _ in commands:
            if position >= length:
                return False
            newline = data.find(b"\n", position)
            if newline < 0:
                self._buffer_line(data[position:])
                return False
            self._check_line(data[position], newline - position)
            position = self._command(data, position, newline, handler)
        if position >= length:
            return False
        if data.find(b"\n", position) < 0:
            self._buffer_line(data[position:])
            return False
        self._backlog, self._backlog_position = data, position
        return True

    def _buffer_line(self, part: bytes) -> None:
        """Buffer an incomplete line."""
        self._line += part
        if self._line:
            self._check_line(self._line[0], len(self._line))

    def _check_line(self, first: int, length: int) -> None:
        """Check the first byte and the length of a line or part of one.

        Raises:
            ProtocolViolation: no client of this protocol sends such a line.
        """
        if first == MAGIC:
            raise ProtocolViolation("a binary request where text is expected")
        if length > self._limits.line_length:
            raise ProtocolViolation("an unterminated line")

    # Commands. Each method returns the position of the next command.

    def _command(self, data: bytes, position: int, newline: int, handler: Handler) -> int:
        line = data[position:newline].removesuffix(b"\r")
        words = [word for word in line.split(b" ") if word]
        position = newline + 1
        match words:
            case [b"get", key] if len(key) <= self._limits.key_length:
                handler.execute(GET, ([key],))
            case [b"get", *_]:
                handler.reject(_INVALID, False)
            case [b"set", key, size] if len(key) <= self._limits.key_length:
                return self._set(key, unsigned(size, _SIZES_END), handler, data, position)
            case [b"set", *_]:
                # The length of the value is unknown, so any value is parsed as commands.
                handler.reject(replies.NOT_STORED, False)
            case [b"quit", *_]:
                handler.quit()
                return len(data)  # anything sent after it is discarded
            case [_, *_, last] if last.startswith(b"HTTP/"):
                raise ProtocolViolation("an HTTP request")
            case _:
                handler.reject(replies.ERROR, False)
        return position

    def _set(
        self, key: bytes, size: int | None, handler: Handler, data: bytes, position: int
    ) -> int:
        if size is None:
            handler.reject(replies.NOT_STORED, False)
            return position
        limits = self._limits
        refused = item_total(len(key), 0, size, cas=limits.cas) > limits.item_size
        if refused:
            handler.execute(TOO_LARGE, (b"set", key, False))
        end = position + size
        newline = data.find(b"\n", end)
        if newline < 0:
            self._pending = _Refused(size) if refused else _Stored(key, size)
            self._pending.append(data[position:end])
            return len(data)
        if not refused:
            handler.set(key, 0, 0, data[position:end], False)
        return newline + 1

    def _continue_value(self, pending: _Stored | _Refused, handler: Handler, data: bytes) -> int:
        """Take more of a value; once it is complete, skip the rest of its line."""
        missing = pending.missing
        pending.append(data[:missing])
        newline = data.find(b"\n", missing)
        if newline < 0:
            return len(data)
        self._pending = None
        if isinstance(pending, _Stored):
            handler.set(pending.key, 0, 0, pending.value(), False)
        return newline + 1
