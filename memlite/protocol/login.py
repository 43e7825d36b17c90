"""Authentication in text (``doc/protocol.txt`` of memcached, "Authentication"): what precedes it.

A client says who it is with a set of any key, whose value is ``<user> <password>``; until that was
right, nothing else is a command.
"""

from typing import Final, NamedTuple, Protocol

from memlite.errors import ProtocolViolation
from memlite.protocol import replies
from memlite.protocol.limits import Limits
from memlite.protocol.numbers import unsigned

__all__ = ["TOKEN_LENGTH", "Attempt", "Credentials", "Farewell", "LoginReader", "TextLoginReader"]

TOKEN_LENGTH: Final = 16_384
"""Bytes of user and password together, as in memcached."""

# memcached takes anything shorter, its "\r" counted, for junk; that is also how quit gets through.
_SHORTEST_LINE: Final = 6
_SHORTEST_READ: Final = 3
_BINARY_MAGIC: Final = 0x80
_U32: Final = 2**32
_CRLF: Final = b"\r\n"


class Credentials(NamedTuple):
    """What a client says of itself.

    Attributes:
        user: its name.
        password: never to be shown.
    """

    user: bytes
    password: bytes

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"


class Attempt(NamedTuple):
    """Somebody wants to be let in.

    Attributes:
        credentials: who; None if they were not given as they should be.
        success: the reply to who is let in.
        failure: the reply to who is not.
        too_many: the reply to one too many of those.
    """

    credentials: Credentials | None
    success: bytes
    failure: bytes
    too_many: bytes


class Farewell(NamedTuple):
    """A reply that is the last: the connection is to be closed behind it.

    Attributes:
        reply: that.
    """

    reply: bytes


class LoginReader(Protocol):
    """Reads what a client sends before it has authenticated.

    Attributes:
        in_token: whether a half of what says who it is was there.
    """

    in_token: bool

    @property
    def unfinished(self) -> bool:
        """Whether something has arrived that `next` has not looked at, or not in full."""

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""

    def rest(self) -> bytes:
        """Return what came behind the last that `next` returned, and forget it."""

    def next(self) -> Attempt | Farewell | bytes | None:
        """Return what comes next.

        Returns:
            An attempt to be looked at, the reply to something else, or None when more is needed.

        Raises:
            ProtocolViolation: it is no client that speaks; the connection must be cut.
        """


class TextLoginReader:
    """Reads it in the text protocol.

    Implements `LoginReader`.

    Args:
        limits: how long a line may be.

    Attributes:
        in_token: whether the line was there, and the value is not.
    """

    __slots__ = ("_buffer", "_line_length", "_missing", "in_token")

    def __init__(self, limits: Limits) -> None:
        self._line_length = limits.line_length
        self._buffer = bytearray()
        self._missing = 0  # bytes of the token, with the line's end
        self.in_token = False

    @property
    def unfinished(self) -> bool:
        """Whether something has arrived that `next` has not looked at, or not in full."""
        return self.in_token or bool(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""
        self._buffer += data

    def rest(self) -> bytes:
        """Return what came behind the last that `next` returned, and forget it."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def next(self) -> Attempt | bytes | None:
        """Return what comes next; see `LoginReader`."""
        if not self.in_token:
            line = self._line()
            if line is None:
                return None
            refusal = self._begin(line)
            if refusal is not None:
                return refusal
        if len(self._buffer) < self._missing:
            return None
        token = bytes(self._buffer[: self._missing])
        del self._buffer[: self._missing]
        self.in_token = False
        if not token.endswith(_CRLF):
            return replies.BAD_TERMINATION
        user, space, password = token[: -len(_CRLF)].partition(b" ")
        if not space:
            return replies.BAD_TOKEN
        return Attempt(
            Credentials(user, password),
            replies.STORED,
            replies.AUTHENTICATION_FAILURE,
            replies.TOO_MANY_FAILURES,
        )

    def _line(self) -> bytes | None:
        buffer = self._buffer
        if buffer[:1] == bytes([_BINARY_MAGIC]):
            raise ProtocolViolation("the binary protocol, where authentication is in text")
        if len(buffer) < _SHORTEST_READ:
            return None
        newline = buffer.find(b"\n")
        if newline < 0:
            if len(buffer) > self._line_length:
                raise ProtocolViolation("a line without an end, unauthenticated")
            return None
        if newline < _SHORTEST_LINE:
            raise ProtocolViolation("a line too short to authenticate with")
        line = bytes(buffer[:newline])
        del buffer[: newline + 1]
        return line.removesuffix(b"\r")

    def _begin(self, line: bytes) -> bytes | None:
        """Take the line before a token; return the reply if it is another."""
        words = [word for word in line.split(b" ") if word]
        size = unsigned(words[4], _U32) if len(words) > 4 and line.startswith(b"set") else None
        if size is None:
            return replies.UNAUTHENTICATED
        if size > TOKEN_LENGTH:
            return replies.TOKEN_TOO_LONG
        self._missing = size + len(_CRLF)
        self.in_token = True
        return None
