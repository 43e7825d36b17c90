"""The binary protocol's packets: opcodes and statuses, requests as objects, replies as bytes.

Source: "BinaryProtocolRevamped" on docs.memcached.org; where it is silent, memcached 1.6's
behaviour.
"""

import enum
from collections.abc import Iterable
from struct import Struct
from typing import Final

from memlite.protocol.magic import MAGIC_OF_REPLIES

__all__ = [
    "DO_NOT_CREATE",
    "HEADER",
    "QUIET",
    "WITH_KEY",
    "BinaryRequest",
    "Opcode",
    "Status",
    "describe_reply",
    "failure",
    "hit_head",
    "miss",
    "opcode_name",
    "pack_hit",
    "pack_number",
    "pack_reply",
    "pack_success",
    "reply",
    "stat_packets",
]

HEADER: Final = 24
"""Bytes of a packet before its extras, key and value."""


class Opcode(enum.IntEnum):
    """The commands. The quiet ones, which end in Q, send no reply in the expected case."""

    GET = 0x00
    SET = 0x01
    ADD = 0x02
    REPLACE = 0x03
    DELETE = 0x04
    INCREMENT = 0x05
    DECREMENT = 0x06
    QUIT = 0x07
    FLUSH = 0x08
    GETQ = 0x09
    NOOP = 0x0A
    VERSION = 0x0B
    GETK = 0x0C
    GETKQ = 0x0D
    APPEND = 0x0E
    PREPEND = 0x0F
    STAT = 0x10
    SETQ = 0x11
    ADDQ = 0x12
    REPLACEQ = 0x13
    DELETEQ = 0x14
    INCREMENTQ = 0x15
    DECREMENTQ = 0x16
    QUITQ = 0x17
    FLUSHQ = 0x18
    APPENDQ = 0x19
    PREPENDQ = 0x1A
    VERBOSITY = 0x1B
    TOUCH = 0x1C
    GAT = 0x1D
    GATQ = 0x1E
    SASL_LIST_MECHS = 0x20
    SASL_AUTH = 0x21
    SASL_STEP = 0x22
    GATK = 0x23
    GATKQ = 0x24


QUIET: Final = frozenset(int(one) for one in Opcode if one.name.endswith("Q"))
"""The opcodes of quiet commands: the get family does not answer misses, the others successes."""

WITH_KEY: Final = frozenset(map(int, (Opcode.GETK, Opcode.GETKQ, Opcode.GATK, Opcode.GATKQ)))
"""The opcodes of retrievals whose replies include the key."""

DO_NOT_CREATE: Final = 0xFFFFFFFF
"""As the exptime of increment and decrement: an absent item is not created."""


class Status(enum.IntEnum):
    """The status of a reply."""

    SUCCESS = 0x00
    NOT_FOUND = 0x01
    EXISTS = 0x02
    TOO_LARGE = 0x03
    INVALID = 0x04
    NOT_STORED = 0x05
    NON_NUMERIC = 0x06
    AUTH_ERROR = 0x20
    AUTH_CONTINUE = 0x21
    UNKNOWN_COMMAND = 0x81
    OUT_OF_MEMORY = 0x82
    INTERNAL_ERROR = 0x84


_TEXTS: Final = {
    Status.NOT_FOUND: b"Not found",
    Status.EXISTS: b"Data exists for key.",
    Status.TOO_LARGE: b"Too large.",
    Status.INVALID: b"Invalid arguments",
    Status.NOT_STORED: b"Not stored.",
    Status.NON_NUMERIC: b"Non-numeric server-side value for incr or decr",
    Status.AUTH_ERROR: b"Auth failure.",
    Status.AUTH_CONTINUE: b"",
    Status.UNKNOWN_COMMAND: b"Unknown command",
    Status.OUT_OF_MEMORY: b"Out of memory",
    Status.INTERNAL_ERROR: b"Internal error",
}


class BinaryRequest:
    """A request packet.

    Attributes:
        opcode: any byte; see `Opcode` for the known commands.
        key: 0 to 250 arbitrary bytes.
        opaque: a number that the reply repeats.
        cas: the cas unique the item must have, 0 for any.
        numbers: the numbers in the extras, in order.
        value: the bytes after the key.
    """

    __slots__ = ("cas", "key", "numbers", "opaque", "opcode", "value")

    def __init__(self, opcode: int, key: bytes, opaque: int, cas: int) -> None:
        self.opcode = opcode
        self.key = key
        self.opaque = opaque
        self.cas = cas
        self.numbers: tuple[int, ...] = ()
        self.value = b""

    @property
    def quiet(self) -> bool:
        """Whether the expected outcome is not answered; see `QUIET`."""
        return self.opcode in QUIET

    def __str__(self) -> str:
        """Return the request on one line, in printable ASCII, with the value's length only."""
        words = [opcode_name(self.opcode)]
        if self.key:
            words.append(self.key.decode("latin-1").encode("unicode_escape").decode("ascii"))
        words += map(str, self.numbers)
        if self.cas:
            words.append(f"cas={self.cas}")
        if self.value:
            words.append(f"{len(self.value)} bytes")
        return " ".join(words)


def opcode_name(opcode: int) -> str:
    """Return an opcode's name, or its number if it has none."""
    return Opcode(opcode).name if opcode in _OPCODES else f"opcode 0x{opcode:02x}"


_OPCODES: Final = frozenset(Opcode)

# Replies

_FLAGS_SIZE: Final = 4
# Magic, opcode, key length, extras length, status, total body length, opaque, cas unique.
pack_reply = Struct(">BBHBxHIIQ").pack
pack_hit = Struct(">BBHBxHIIQI").pack  # and the flags of an item
# These omit fields that are zero: a success without a body, and a success with a number.
pack_success = Struct(">BB10xIQ").pack  # magic, opcode, opaque, cas unique
pack_number = Struct(">BB6xIIQQ").pack  # with the length of the body before the opaque


def reply(request: BinaryRequest, value: bytes = b"", cas: int = 0) -> bytes:
    """Return the reply to a command that succeeded."""
    head = pack_reply(MAGIC_OF_REPLIES, request.opcode, 0, 0, 0, len(value), request.opaque, cas)
    return head + value if value else head


def hit_head(request: BinaryRequest, flags: int, key: bytes, size: int, cas: int) -> bytes:
    """Return the part of a reply before an item's value: header, flags and, if wanted, the key.

    Args:
        request: the request.
        flags: the client flags.
        key: the key, empty to leave it out.
        size: the size of the value that follows, in bytes.
        cas: the item's cas unique.
    """
    length = len(key)
    head = pack_hit(
        MAGIC_OF_REPLIES,
        request.opcode,
        length,
        _FLAGS_SIZE,
        0,
        _FLAGS_SIZE + length + size,
        request.opaque,
        cas,
        flags,
    )
    return head + key if key else head


def miss(request: BinaryRequest) -> bytes:
    """Return the reply to a retrieval or touch without an item: none if it is quiet."""
    if request.opcode in QUIET:
        return b""
    if request.opcode not in WITH_KEY:
        return failure(request, Status.NOT_FOUND)
    opcode, opaque, size = request.opcode, request.opaque, len(request.key)
    head = pack_reply(MAGIC_OF_REPLIES, opcode, size, 0, Status.NOT_FOUND, size, opaque, 0)
    return head + request.key


def failure(request: BinaryRequest, status: Status, text: bytes = b"") -> bytes:
    """Return an error reply, with `text` or, if that is empty, the usual text of the status."""
    opcode, opaque = request.opcode, request.opaque
    text = text or _TEXTS[status]
    return pack_reply(MAGIC_OF_REPLIES, opcode, 0, 0, status, len(text), opaque, 0) + text


def stat_packets(request: BinaryRequest, stats: Iterable[tuple[str, object]]) -> bytes:
    """Return a packet for each pair, and the empty packet that ends them."""
    opcode, opaque = request.opcode, request.opaque
    parts: list[bytes] = []
    for pair in stats:
        name, value = (
            part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogateescape")
            for part in pair
        )
        size, total = len(name), len(name) + len(value)
        parts += (pack_reply(MAGIC_OF_REPLIES, opcode, size, 0, 0, total, opaque, 0), name, value)
    parts.append(reply(request))
    return b"".join(parts)


def describe_reply(packet: bytes) -> str:
    """Describe a reply for the log, given its first bytes."""
    status = int.from_bytes(packet[6:8])
    words = [opcode_name(packet[1])]
    words.append(Status(status).name if status in _STATUSES else f"status 0x{status:02x}")
    size = int.from_bytes(packet[8:12])
    return " ".join([*words, f"{size} bytes"])


_STATUSES: Final = frozenset(Status)
