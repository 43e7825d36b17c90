"""Authentication in the binary protocol: SASL, with the mechanism PLAIN (RFC 4616)."""

from struct import Struct
from typing import Final

from memlite.core.errors import ProtocolViolation
from memlite.core.version import SERVER_VERSION
from memlite.protocol.limits import Limits
from memlite.protocol.login import TOKEN_LENGTH, Attempt, Credentials, Farewell
from memlite.protocol.magic import MAGIC
from memlite.protocol.packets import HEADER, BinaryRequest, Opcode, Status, failure, reply

__all__ = ["MECHANISM", "SaslReader", "parse_plain"]

MECHANISM: Final = b"PLAIN"
_MECHANISM_LENGTH: Final = 32

# Magic, opcode, key length, extras length, total body length, opaque, cas unique.
_header = Struct(">BBHBxxxIIQ").unpack_from
_MAX_BODY_LENGTH: Final = TOKEN_LENGTH + _MECHANISM_LENGTH
_AUTHENTICATIONS: Final = (Opcode.SASL_AUTH, Opcode.SASL_STEP)
_ANSWERS: Final[dict[int, bytes]] = {
    Opcode.SASL_LIST_MECHS: MECHANISM,
    Opcode.VERSION: SERVER_VERSION.encode(),
}
_TOO_MANY: Final = b"Too many failures, try again later."


def parse_plain(message: bytes) -> Credentials | None:
    """Return the credentials in a PLAIN message.

    Returns:
        None if the message is malformed, or asks to act on behalf of another user.
    """
    parts = message.split(b"\0")
    if len(parts) != 3:
        return None
    acting_for, user, password = parts
    if not user or not password or acting_for not in (b"", user):
        return None
    return Credentials(user, password)


class SaslReader:
    """The `memlite.protocol.login.LoginReader` of the binary protocol.

    Apart from SASL commands it answers only VERSION.

    Args:
        limits: unused, since packets before authentication are shorter than any limit.

    Attributes:
        in_token: see `LoginReader`.
    """

    __slots__ = ("_buffer", "_plain_chosen", "in_token")

    def __init__(self, limits: Limits) -> None:
        self._buffer = bytearray()
        self._plain_chosen = False  # whether a SASL_STEP with the PLAIN message may follow
        self.in_token = False

    @property
    def unfinished(self) -> bool:
        """Whether there is input that `next` has not yet consumed."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""
        self._buffer += data

    def rest(self) -> bytes:
        """Return the input that `next` has not consumed, and clear the buffer."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def next(self) -> Attempt | Farewell | bytes | None:
        """Parse the next request; see `LoginReader`."""
        buffer = self._buffer
        if buffer and buffer[0] != MAGIC:
            raise ProtocolViolation("not a binary request, unauthenticated")
        if len(buffer) < HEADER:
            return None
        _, opcode, key_size, extras_size, body, opaque, cas = _header(buffer)
        request = BinaryRequest(opcode, b"", opaque, cas)
        status = _fault(opcode, key_size, extras_size, body)
        if status is not None:
            return Farewell(failure(request, status))
        value_at, end = HEADER + key_size, HEADER + body
        self.in_token = len(buffer) < end
        if self.in_token:
            return None
        name, message = bytes(buffer[HEADER:value_at]), bytes(buffer[value_at:end])
        del buffer[:end]
        if opcode in _ANSWERS:
            return reply(request, value=_ANSWERS[opcode])
        if key_size > _MECHANISM_LENGTH:
            return failure(request, Status.INVALID)
        return self._attempt(request, name, message)

    def _attempt(self, request: BinaryRequest, name: bytes, message: bytes) -> Attempt | bytes:
        begins = request.opcode == Opcode.SASL_AUTH
        known = name.upper() == MECHANISM if begins else self._plain_chosen
        self._plain_chosen = begins and known and not message
        if self._plain_chosen:
            return failure(request, Status.AUTH_CONTINUE)
        return Attempt(
            parse_plain(message) if known else None,
            reply(request, value=b"Authenticated"),
            failure(request, Status.AUTH_ERROR),
            failure(request, Status.AUTH_ERROR, _TOO_MANY),
        )


def _fault(opcode: int, key_size: int, extras_size: int, body: int) -> Status | None:
    """Return the status of a packet that ends the connection, None for an acceptable packet."""
    if body < key_size + extras_size:
        return Status.UNKNOWN_COMMAND
    if opcode in _ANSWERS:
        return Status.INVALID if body else None
    if opcode not in _AUTHENTICATIONS:
        return Status.AUTH_ERROR
    return Status.INVALID if extras_size or not key_size or body > _MAX_BODY_LENGTH else None
