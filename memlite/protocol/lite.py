r"""The parser of the classroom's "memcached-lite" protocol: bytes in, handler calls out.

What it has of memcached's text protocol is this::

    set <key> <bytes>\r\n<value>\r\n    STORED, or NOT_STORED if the line is malformed
    get <key>\r\n                       VALUE <key> <bytes>\r\n<value>\r\nEND, or END alone
    quit\r\n
"""

from typing import Final

from memlite.errors import ProtocolViolation
from memlite.protocol import replies
from memlite.protocol.handler import Handler
from memlite.protocol.limits import Limits, item_total
from memlite.protocol.magic import MAGIC
from memlite.protocol.numbers import unsigned
from memlite.protocol.pieces import Pieces

__all__ = ["LiteParser"]

_INVALID: Final = b"INVALID\r\n"
_SIZES_END: Final = 2**31 - 2  # as memcached has it


class _Stored(Pieces):
    """The value of a set that has not arrived in full, or whose line has not ended."""

    __slots__ = ("key",)

    def __init__(self, key: bytes, size: int) -> None:
        super().__init__(size)
        self.key = key


class _Refused:
    """A value that is read and not kept; counts as `Pieces` does."""

    __slots__ = ("missing",)

    def __init__(self, size: int) -> None:
        self.missing = size

    def append(self, piece: bytes) -> None:
        self.missing -= len(piece)


class LiteParser:
    """Finds commands in a stream and calls the handler's methods, in order.

    Lines end with a line feed, perhaps after a carriage return; words are parted by one or more
    spaces. Of a value the announced bytes are taken, whatever they are, and what follows them up
    to the line's end is discarded. What is incomplete is kept for the next `receive`, and no byte
    is searched twice.

    Of `Handler` it calls `get`, with one key, `set`, `too_large`, `reject` and `quit`.

    Args:
        limits: what the peer may send; `Limits.line_length` holds for every line.
    """

    __slots__ = ("_backlog", "_backlog_position", "_limits", "_line", "_pending", "_share")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._share = range(limits.commands_per_read)
        # What was left when a read's share was used up begins here; see `TextParser`.
        self._backlog = b""
        self._backlog_position = 0
        self._line = bytearray()  # an unfinished line
        self._pending: _Stored | _Refused | None = None

    @property
    def in_value(self) -> bool:
        """Whether a set waits for the rest of its value, or for the end of its line."""
        return self._pending is not None

    @property
    def in_command(self) -> bool:
        """Whether a command has begun to arrive and is not complete."""
        return bool(self._pending is not None or self._line or self._backlog)

    def receive(self, data: bytes, handler: Handler) -> bool:
        """Take bytes from the peer and carry out what they complete.

        Args:
            data: what has arrived; empty to go on after True was returned.
            handler: whose methods are called.

        Returns:
            True when `Limits.commands_per_read` commands were carried out and more is left: call
            again with ``b""`` once others had their turn.

        Raises:
            ProtocolViolation: the connection must be cut (an endless line, a binary request, an
                HTTP request).
        """
        position = 0
        if self._backlog:
            backlog, position, self._backlog = self._backlog, self._backlog_position, b""
            data, position = (backlog[position:] + data, 0) if data else (backlog, position)
        elif self._line:
            if b"\n" not in data:
                self._keep_line(data)
                return False
            data = bytes(self._line) + data
            self._line.clear()
        elif self._pending is not None:
            position = self._go_on(self._pending, handler, data)
        length = len(data)
        for _ in self._share:
            if position >= length:
                return False
            newline = data.find(b"\n", position)
            if newline < 0:
                self._keep_line(data[position:])
                return False
            self._check_line(data[position], newline - position)
            position = self._command(data, position, newline, handler)
        if position >= length:
            return False
        if data.find(b"\n", position) < 0:
            self._keep_line(data[position:])
            return False
        self._backlog, self._backlog_position = data, position
        return True

    def _keep_line(self, part: bytes) -> None:
        """Keep the beginning of a line until its end arrives."""
        self._line += part
        if self._line:
            self._check_line(self._line[0], len(self._line))

    def _check_line(self, first: int, length: int) -> None:
        """Cut off who sends a line, or a part of one, that no client sends."""
        if first == MAGIC:
            raise ProtocolViolation("a binary request where text belongs")
        if length > self._limits.line_length:
            raise ProtocolViolation("a line without an end")

    # Commands: each returns the position of the next.

    def _command(self, data: bytes, position: int, newline: int, handler: Handler) -> int:
        line = data[position:newline].removesuffix(b"\r")
        words = [word for word in line.split(b" ") if word]
        position = newline + 1
        match words:
            case [b"get", key] if len(key) <= self._limits.key_length:
                handler.get([key])
            case [b"get", *_]:
                handler.reject(_INVALID, False)
            case [b"set", key, size] if len(key) <= self._limits.key_length:
                return self._set(key, unsigned(size, _SIZES_END), handler, data, position)
            case [b"set", *_]:
                # Nothing tells how long a value is, so one that follows is read as commands.
                handler.reject(replies.NOT_STORED, False)
            case [b"quit", *_]:
                handler.quit()
                return len(data)  # what was sent behind it is nobody's any more
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
            handler.too_large(b"set", key, False)
        end = position + size
        newline = data.find(b"\n", end)
        if newline < 0:
            self._pending = _Refused(size) if refused else _Stored(key, size)
            self._pending.append(data[position:end])
            return len(data)
        if not refused:
            handler.set(key, 0, 0, data[position:end], False)
        return newline + 1

    def _go_on(self, pending: _Stored | _Refused, handler: Handler, data: bytes) -> int:
        """Take more of a value, and pass over what is behind it up to the line's end."""
        missing = pending.missing
        pending.append(data[:missing])
        newline = data.find(b"\n", missing)
        if newline < 0:
            return len(data)
        self._pending = None
        if isinstance(pending, _Stored):
            handler.set(pending.key, 0, 0, pending.value(), False)
        return newline + 1
