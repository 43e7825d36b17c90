"""Binary packets for tests: builders for requests, and a parser for replies."""

import struct
from dataclasses import dataclass

from memlite.protocol.packets import Opcode, Status

HEADER = struct.Struct(">BBHBBHIIQ")


def packet(
    opcode: int,
    key: bytes = b"",
    extras: bytes = b"",
    value: bytes = b"",
    *,
    cas: int = 0,
    opaque: int = 0xDEADBEEF,
    magic: int = 0x80,
    key_size: int | None = None,
    body: int | None = None,
) -> bytes:
    """Build a request; `key_size` and `body` may be inconsistent with the contents."""
    length = len(extras) + len(key) + len(value)
    head = HEADER.pack(
        magic,
        opcode,
        len(key) if key_size is None else key_size,
        len(extras),
        0,
        0,
        length if body is None else body,
        opaque,
        cas,
    )
    return head + extras + key + value


def store(
    opcode: int, key: bytes, value: bytes, flags: int = 0, exptime: int = 0, **fields: int
) -> bytes:
    return packet(opcode, key, struct.pack(">II", flags, exptime), value, **fields)


def count(
    opcode: int, key: bytes, delta: int, initial: int = 0, exptime: int = 0, **fields: int
) -> bytes:
    return packet(opcode, key, struct.pack(">QQI", delta, initial, exptime), **fields)


def touch(opcode: int, key: bytes, exptime: int, **fields: int) -> bytes:
    return packet(opcode, key, struct.pack(">I", exptime), **fields)


NOOP = packet(Opcode.NOOP)


@dataclass(frozen=True)
class Reply:
    """A parsed reply."""

    opcode: int
    status: int = Status.SUCCESS
    extras: bytes = b""
    key: bytes = b""
    value: bytes = b""
    opaque: int = 0xDEADBEEF
    cas: int = 0

    @property
    def number(self) -> int:
        return int.from_bytes(self.value)


def replies(data: bytes) -> list[Reply]:
    """Parse a stream of replies, which must end with a complete reply."""
    found = []
    while data:
        assert len(data) >= HEADER.size, data
        magic, opcode, key_size, extras_size, kind, status, body, opaque, cas = HEADER.unpack_from(
            data
        )
        assert (magic, kind) == (0x81, 0), data[:100]
        assert len(data) >= HEADER.size + body, data[:100]
        key_at = HEADER.size + extras_size
        value_at, end = key_at + key_size, HEADER.size + body
        found.append(
            Reply(
                opcode,
                status,
                data[HEADER.size : key_at],
                data[key_at:value_at],
                data[value_at:end],
                opaque,
                cas,
            )
        )
        data = data[end:]
    return found
