"""Authentication in the text protocol (memcached's ``doc/protocol.txt``, "Authentication").

A client authenticates with a set of any key whose value is ``<user> <password>``. Until that has
succeeded, no other command is accepted.
"""

from typing import Final, NamedTuple, Protocol

from memlite.core.errors import ProtocolViolation
from memlite.protocol import replies
from memlite.protocol.limits import Limits
from memlite.protocol.numbers import unsigned

__all__ = ["TOKEN_LENGTH", "Attempt", "Credentials", "Farewell", "LoginReader", "TextLoginReader"]

TOKEN_LENGTH: Final = 16_384
"""The longest user name and password together, in bytes, as in memcached."""

# Any shorter line, its "\r" included, ends the connection, as in memcached. That is how quit works
# before authentication.
_SHORTEST_LINE: Final = 6
_SHORTEST_READ: Final = 3
_BINARY_MAGIC: Final = 0x80
_U32: Final = 2**32
_CRLF: Final = b"\r\n"


class Credentials(NamedTuple):
    """A user name and password.

    Attributes:
        user: the user's name.
        password: the password, which is left out of the repr.
    """

    user: bytes
    password: bytes

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"


class Attempt(NamedTuple):
    """An attempt to authenticate.

    Attributes:
        credentials: the user name and password; None if they are malformed.
        success: the reply if authentication succeeds.
        failure: the reply if it fails.
        too_many: the reply if the client has failed too often to be given another chance.
    """

    credentials: Credentials | None
    success: bytes
    failure: bytes
    too_many: bytes


class Farewell(NamedTuple):
    """A final reply, after which the connection is closed.

    Attributes:
        reply: the reply.
    """

    reply: bytes


class LoginReader(Protocol):
    """Parses the input of a client that has not authenticated.

    Attributes:
        in_token: whether the credentials have partly arrived.
    """

    in_token: bool

    @property
    def unfinished(self) -> bool:
        """Whether there is input that `next` has not yet consumed."""

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""

    def rest(self) -> bytes:
        """Return the input that `next` has not consumed, and clear the buffer."""

    def next(self) -> Attempt | Farewell | bytes | None:
        """Parse the next request.

        Returns:
            An attempt to authenticate, the reply to any other request, or None if more input is
            needed.

        Raises:
            ProtocolViolation: the peer is not a client; the connection must be closed.
        """


class TextLoginReader:
    """The `LoginReader` of the text protocol.

    Args:
        limits: limit the length of a line.

    Attributes:
        in_token: whether the line has arrived and its value is incomplete.
    """

    __slots__ = ("_buffer", "_line_length", "_missing", "in_token")

    def __init__(self, limits: Limits) -> None:
        self._line_length = limits.line_length
        self._buffer = bytearray()
        self._missing = 0  # bytes of the token still to arrive, including the line ending
        self.in_token = False

    @property
    def unfinished(self) -> bool:
        """Whether there is input that `next` has not yet consumed."""
        return self.in_token or bool(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""
        self._buffer += data

    def rest(self) -> bytes:
        """Return the input that `next` has not consumed, and clear the buffer."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def next(self) -> Attempt | bytes | None:
        """Parse the next request; see `LoginReader`."""
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
            raise ProtocolViolation("a binary request where authentication is in text")
        if len(buffer) < _SHORTEST_READ:
            return None
        newline = buffer.find(b"\n")
        if newline < 0:
            if len(buffer) > self._line_length:
                raise ProtocolViolation("an unterminated line, unauthenticated")
            return None
        if newline < _SHORTEST_LINE:
            raise ProtocolViolation("a line too short for authentication")
        line = bytes(buffer[:newline])
        del buffer[: newline + 1]
        return line.removesuffix(b"\r")

    def _begin(self, line: bytes) -> bytes | None:
        """Parse the line before a token; return the error reply if it is any other line."""
        words = [word for word in line.split(b" ") if word]
        size = unsigned(words[4], _U32) if len(words) > 4 and line.startswith(b"set") else None
        if size is None:
            return replies.UNAUTHENTICATED
        if size > TOKEN_LENGTH:
            return replies.TOKEN_TOO_LONG
        self._missing = size + len(_CRLF)
        self.in_token = True
        return None
