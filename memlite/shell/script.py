"""Read commands from a pipe or a file, with values framed by their length as on the wire."""

from typing import BinaryIO

from memlite.shell.typed import TypedError

__all__ = ["ScriptSource"]

# The length of the longest get line memlite accepts.
_MAX_LINE_LENGTH = 4 * 1024 * 1024
_CHUNK_SIZE = 64 * 1024


class ScriptSource:
    """Reads commands from a stream of bytes.

    Args:
        stream: a stream of lines that end in LF or CRLF.
        value_at_most: the longest value to accept, in bytes.
    """

    def __init__(self, stream: BinaryIO, value_at_most: int) -> None:
        self._stream = stream
        self._value_at_most = value_at_most
        self._line_number = 0

    def line(self) -> bytes | None:
        """Return the next line; None at the end of the stream.

        Raises:
            TypedError: the line is too long; it was skipped.
        """
        data = self._stream.readline(_MAX_LINE_LENGTH)
        if not data:
            return None
        self._line_number += 1
        if len(data) == _MAX_LINE_LENGTH and not data.endswith(b"\n"):
            self._skip_line()
            raise TypedError(f"line {self._line_number} is longer than {_MAX_LINE_LENGTH:,} bytes")
        return data.removesuffix(b"\n").removesuffix(b"\r")

    def value(self, length: int) -> bytes:
        """Return a value, which must be followed by a line ending.

        Raises:
            TypedError: the value exceeds the limit, is longer than announced, or is truncated.
        """
        if length > self._value_at_most:
            raise TypedError(
                f"line {self._line_number}: a value of {length:,} bytes exceeds the limit of "
                f"{self._value_at_most:,} (--max-value)",
                length,
            )
        value = self._stream.read(length)
        self._line_number += value.count(b"\n") + 1
        if len(value) < length:
            raise TypedError(
                f"line {self._line_number}: the input ended after {len(value):,} of the value's "
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
        """Skip a value and its line ending."""
        if length is None:
            return
        while length > 0 and (chunk := self._stream.read(min(length, _CHUNK_SIZE))):
            length -= len(chunk)
            self._line_number += chunk.count(b"\n")
        self._line_number += 1
        self._skip_line()

    def everything(self) -> bytes:
        """Return the whole stream as one value.

        Raises:
            TypedError: it exceeds the limit.
        """
        value = self._stream.read(self._value_at_most + 1)
        if len(value) > self._value_at_most:
            raise TypedError(
                f"the value exceeds the limit of {self._value_at_most:,} bytes (--max-value)"
            )
        return value

    def password(self, user: str) -> bytes:
        """Refuse, because there is no terminal to prompt on.

        Raises:
            TypedError: always.
        """
        raise TypedError(f"no terminal to prompt for the password of {user!r}; use --user")

    def _skip_line(self) -> None:
        while (chunk := self._stream.readline(_CHUNK_SIZE)) and not chunk.endswith(b"\n"):
            pass
