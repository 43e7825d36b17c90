"""Authentication as the first exchange on a connection, without I/O.

A login is a request and a check of its reply. `memlite.client.transport.open_transport` carries it
out; code with its own socket can do so as well.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final, Protocol

from memlite.core.errors import MemliteError

__all__ = ["Login", "LoginRefusedError", "SaslPlainLogin", "TextLogin"]

_MAX_LINE_LENGTH: Final = 1000
_MAX_PACKET_LENGTH: Final = 4096
_HEADER: Final = 24
_SASL_AUTH: Final = 0x21
_MECHANISM: Final = b"PLAIN"
_pack_header = Struct(">BBHBxHIIQ").pack
_unpack_header = Struct(">BBHBxHIIQ").unpack_from
_REQUEST: Final = 0x80
_RESPONSE: Final = 0x81


class LoginRefusedError(MemliteError, ConnectionError):
    """The server did not accept a login.

    Attributes:
        user: the name that was sent.
        reply: the server's reason; empty if it closed the connection.
    """

    def __init__(self, user: bytes, reply: bytes) -> None:
        said = reply.decode("latin-1") or "connection closed"
        super().__init__(f"authentication as {user.decode('utf-8', 'replace')}: {said}")
        self.user = user
        self.reply = reply


class Login(Protocol):
    """A login as a value: the bytes to send, and the check of the reply."""

    @property
    def request(self) -> bytes:
        """The bytes to send."""

    def complete(self, received: bytes) -> bool:
        """Return whether `received` contains the whole reply, or more than any reply has."""

    def check(self, reply: bytes) -> None:
        """Check the server's reply.

        Args:
            reply: all that was received; empty if the server closed the connection.

        Raises:
            LoginRefusedError: the server does not accept the login.
            ConnectionError: the server does not accept the connection.
        """


@dataclass(frozen=True, slots=True)
class TextLogin:
    """A login of the text protocol: a ``set`` whose value is the name and the password.

    Implements `Login`.

    Attributes:
        user: the name, without spaces.
        password: the password; not shown.
    """

    user: bytes
    password: bytes = field(repr=False)

    @property
    def request(self) -> bytes:
        """The bytes to send."""
        token = self.user + b" " + self.password
        return b"set login 0 0 %d\r\n%b\r\n" % (len(token), token)

    def complete(self, received: bytes) -> bool:
        """Return whether `received` contains a line."""
        return b"\n" in received or len(received) > _MAX_LINE_LENGTH

    def check(self, reply: bytes) -> None:
        """Check the server's reply, a line; see `Login`."""
        line = reply[:_MAX_LINE_LENGTH].partition(b"\n")[0].strip()
        if line != b"STORED":
            raise LoginRefusedError(self.user, line)


@dataclass(frozen=True, slots=True)
class SaslPlainLogin:
    """A login of the binary protocol: SASL with the mechanism PLAIN.

    Implements `Login`.

    Attributes:
        user: the name.
        password: the password; not shown.
    """

    user: bytes
    password: bytes = field(repr=False)

    @property
    def request(self) -> bytes:
        """The bytes to send."""
        message = b"\0%b\0%b" % (self.user, self.password)
        size = len(_MECHANISM) + len(message)
        head = _pack_header(_REQUEST, _SASL_AUTH, len(_MECHANISM), 0, 0, size, 0, 0)
        return head + _MECHANISM + message

    def complete(self, received: bytes) -> bool:
        """Return whether `received` contains a packet."""
        if received[:1] not in (b"", b"\x81") or len(received) > _MAX_PACKET_LENGTH:
            return True
        return len(received) >= _HEADER and len(received) >= _HEADER + _unpack_header(received)[5]

    def check(self, reply: bytes) -> None:
        """Check the server's reply, a packet; see `Login`."""
        if len(reply) < _HEADER:
            raise LoginRefusedError(self.user, reply)
        magic, opcode, _, _, status, body, _, _ = _unpack_header(reply)
        if (magic, opcode, status) != (_RESPONSE, _SASL_AUTH, 0):
            text = reply[_HEADER : _HEADER + body] if magic == _RESPONSE else reply[:_HEADER]
            raise LoginRefusedError(self.user, text or b"status 0x%02x" % status)
