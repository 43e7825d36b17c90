"""Records as objects in a bucket: names and content.

An object is a header followed by the value, so that one request reads everything. The header is
big-endian:

====== ===== ======================================================================
offset bytes
====== ===== ======================================================================
0      4     ``mlit``
4      1     version of this layout: 1, or 2 with meta_flags
5      1     number of nonces
6      4     CRC-32 of all that follows
10     4     the client's flags
14     8     unix time at which the item expires, a double; 0 for never
22     8     unix second at which it was stored
30     8     epoch in which it was stored, see `memlite.backends.remote.epoch`
38     8     birth: the nonce of the write that created it, or stored it unconditionally
46     8 × n nonces of the last writes, the newest first
====== ===== ======================================================================

A tombstone marks a key that was deleted. It is an empty record that expired half a second after the
unix epoch, when no other record does: clients' expiries are whole seconds.

Version 2 appends nine bytes of `memlite.backends.MetaFlags`: bits (1 stale, 2 won, 4 binary,
8 unique given) and the cas unique that a client assigned. Items without meta flags are still
written as version 1, which older servers can read.
"""

import struct
import zlib
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import NamedTuple, Self

from memlite.backends.record import Record
from memlite.core.meta_flags import MetaFlags

__all__ = [
    "NONCE_BYTES",
    "TOMBSTONE_EXPIRES",
    "DamagedError",
    "Origin",
    "Trail",
    "decode",
    "encode",
    "key_of",
    "name_of",
]

NONCE_BYTES = 8
TOMBSTONE_EXPIRES = 0.5
"""The expiry of tombstones, unix time in seconds."""

_RING = 8
_WRITER_BYTES = 4
_MAGIC = b"mlit"
_VERSION = 1
_META_VERSION = 2
_META_FLAGS = struct.Struct(">BQ")
_STALE, _WON, _BINARY, _UNIQUE = 1, 2, 4, 8
_HEADER = struct.Struct(">4sBBIIdQQ8s")
# The part not covered by the checksum: magic, version, number of nonces, and the checksum.
_START = struct.Struct(">4sBBI")
_START_OF_REST = struct.Struct(">IdQQ")
_TRAIL = _HEADER.size - NONCE_BYTES


class DamagedError(Exception):
    """The content is not that of a record, or differs from what was written."""


class Trail(NamedTuple):
    """The recent writes of an object, for writers whose acknowledgement was lost.

    A nonce identifies one write, including its retries; its first four bytes identify the writer.

    Attributes:
        birth: the nonce of the last write that did not depend on an earlier object.
        nonces: the nonces of the last writes, newest first.
    """

    birth: bytes
    nonces: tuple[bytes, ...]

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the trail whose birth and nonces these bytes contain."""
        birth, *nonces = (data[at : at + NONCE_BYTES] for at in range(0, len(data), NONCE_BYTES))
        return cls(birth, tuple(nonces))

    @property
    def data(self) -> bytes:
        """The bytes that `parse` takes."""
        return self.birth + b"".join(self.nonces)

    def followed_by(self, nonce: bytes, unsettled: set[bytes]) -> "Trail":
        """Return the trail after the write `nonce`, which replaces the object with this trail.

        Earlier nonces of the same writer are dropped unless they are `unsettled`, as the writer
        will no longer look for them. The ring therefore holds the last writes of eight servers, no
        matter how many writes each of them makes.
        """
        writer = nonce[:_WRITER_BYTES]
        others = (n for n in self.nonces if n[:_WRITER_BYTES] != writer or n in unsettled)
        return Trail(self.birth, (nonce, *others)[:_RING])

    def may_have_lost(self, before: "Trail | None") -> bool:
        """Return whether a nonce added since `before` may have been pushed out of the ring."""
        known = () if before is None else before.nonces
        return len(self.nonces) == _RING and not set(known).intersection(self.nonces)


class Origin(NamedTuple):
    """The origin of a record; the token of records from a bucket.

    Attributes:
        epoch: the epoch in which the record was stored.
        trail_data: birth and nonces, parsed only when needed.
        as_of: the epoch in which it was read.
    """

    epoch: int
    trail_data: bytes
    as_of: int = 0

    @property
    def trail(self) -> Trail:
        """The writes that led to this state."""
        return Trail.parse(self.trail_data)


def encode(record: Record, epoch: int, trail: Trail) -> bytes:
    """Return the content of a record's object."""
    rest = _START_OF_REST.pack(record.flags, record.expires, max(0, record.accessed), epoch)
    rest += trail.data
    version = _VERSION
    if record.meta_flags is not None:
        version = _META_VERSION
        rest += _pack_meta_flags(record.meta_flags)
    crc = zlib.crc32(record.value, zlib.crc32(rest))
    return b"".join((_START.pack(_MAGIC, version, len(trail.nonces), crc), rest, record.value))


def _pack_meta_flags(meta_flags: MetaFlags) -> bytes:
    bits = _STALE * meta_flags.stale + _WON * meta_flags.won + _BINARY * meta_flags.binary
    if meta_flags.unique is None:
        return _META_FLAGS.pack(bits, 0)
    return _META_FLAGS.pack(bits + _UNIQUE, meta_flags.unique)


def _unpack_meta_flags(body: bytes, at: int) -> MetaFlags:
    bits, unique = _META_FLAGS.unpack_from(body, at)
    return MetaFlags(
        bool(bits & _STALE),
        bool(bits & _WON),
        bool(bits & _BINARY),
        unique if bits & _UNIQUE else None,
    )


def decode(key: bytes, body: bytes, generation: int) -> tuple[Record, Origin]:
    """Return the record in an object's content, and its origin (without `as_of`).

    Args:
        key: the key of the record.
        body: the content.
        generation: the object's generation, which becomes the version.

    Raises:
        DamagedError: the content is not that of a record.
    """
    try:
        magic, version, count, crc, flags, expires, stored, epoch, _ = _HEADER.unpack_from(body)
    except struct.error:
        raise DamagedError from None
    end = begin = _HEADER.size + NONCE_BYTES * count
    meta_flags = None
    if version == _META_VERSION:
        begin += _META_FLAGS.size
    if (
        magic != _MAGIC
        or version not in (_VERSION, _META_VERSION)
        or not count
        or begin > len(body)
        or zlib.crc32(memoryview(body)[_START.size :]) != crc
    ):
        raise DamagedError
    if begin > end:
        meta_flags = _unpack_meta_flags(body, end)
    value = body[begin:]
    record = Record(key, value, flags, expires, generation, stored, meta_flags=meta_flags)
    return record, Origin(epoch, body[_TRAIL:end])


def name_of(key: bytes) -> str:
    """Return the name of a key's object, without the prefix: any bytes as safe characters.

    It begins with two digits of a hash, because a bucket distributes load by name ranges, and
    keys that are numbered consecutively would all fall into one range
    (https://cloud.google.com/storage/docs/request-rate#naming-convention).
    """
    return f"{zlib.crc32(key) & 255:02x}-{urlsafe_b64encode(key).rstrip(b'=').decode()}"


def key_of(name: str) -> bytes | None:
    """Return the key for which `name_of` returns `name`; None if there is none."""
    text = name[3:]
    try:
        key = b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (Base64Error, ValueError):
        return None
    return key if key and name_of(key) == name else None
