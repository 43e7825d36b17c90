"""Lines from a pipe or a file: values by their length, as they are on the wire."""

from typing import BinaryIO

from memlite.shell.typed import TypedError

__all__ = ["ScriptSource"]

# As long as the longest get line memlite takes.
_LINE_AT_MOST = 4 * 1024 * 1024
_PIECE = 64 * 1024


class ScriptSource:
    """Reads commands from a stream of bytes.

    Args:
        stream: of lines, with or without carriage returns.
        value_at_most: bytes of the longest value.
    """

    def __init__(self, stream: BinaryIO, value_at_most: int) -> None:
        self._stream = stream
        self._value_at_most = value_at_most
        self._line_number = 0

    def line(self) -> bytes | None:
        """Return the next line; None at the end.

        Raises:
            TypedError: it is too long; it was skipped.
        """
        data = self._stream.readline(_LINE_AT_MOST)
        if not data:
            return None
        self._line_number += 1
        if len(data) == _LINE_AT_MOST and not data.endswith(b"\n"):
            self._skip_line()
            raise TypedError(f"line {self._line_number} has more than {_LINE_AT_MOST:,} bytes")
        return data.removesuffix(b"\n").removesuffix(b"\r")

    def value(self, length: int) -> bytes:
        """Return a value, which a line end must follow.

        Raises:
            TypedError: it is too long to take, longer than announced, or cut off.
        """
        if length > self._value_at_most:
            raise TypedError(
                f"line {self._line_number}: a value of {length:,} bytes is more than the "
                f"{self._value_at_most:,} sent from here (--max-value)",
                length,
            )
        value = self._stream.read(length)
        self._line_number += value.count(b"\n") + 1
        if len(value) < length:
            raise TypedError(
                f"line {self._line_number}: the input ended after {len(value):,} of its value's "
                f"{length:,} bytes"
            )
        end = self._stream.readline(2)
        if end not in (b"\r\n", b"\n", b""):
            if not end.endswith(b"\n"):
                self._skip_line()
            raise TypedError(
                f"line {self._line_number}: the value is longer than {length:,} bytes; "
                "it was not sent"
            )
        return value

    def skip(self, length: int | None) -> None:
        """Read over a value and its line end."""
        if length is None:
            return
        while length > 0 and (piece := self._stream.read(min(length, _PIECE))):
            length -= len(piece)
            self._line_number += piece.count(b"\n")
        self._line_number += 1
        self._skip_line()

    def everything(self) -> bytes:
        """Return all there is.

        Raises:
            TypedError: it is too long to send.
        """
        value = self._stream.read(self._value_at_most + 1)
        if len(value) > self._value_at_most:
            raise TypedError(
                f"the value has more than the {self._value_at_most:,} bytes sent from here "
                "(--max-value)"
            )
        return value

    def password(self, user: str) -> bytes:
        """Refuse: nobody is there to ask.

        Raises:
            TypedError: always.
        """
        raise TypedError(f"there is no terminal to ask for the password of {user!r}; use --user")

    def _skip_line(self) -> None:
        while (piece := self._stream.readline(_PIECE)) and not piece.endswith(b"\n"):
            pass
