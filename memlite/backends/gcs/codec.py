"""Items as objects: their names and their content.

An object is a header and the value behind it, so that one request reads everything. The header is,
big-endian:

====== ===== ======================================================================
offset bytes
====== ===== ======================================================================
0      4     ``mlit``
4      1     version of this layout: 1, or 2 with marks
5      1     number of nonces
6      4     CRC-32 of all that follows
10     4     the client's flags
14     8     unix time at which the item expires, a double; 0 for never
22     8     unix second at which it was stored
30     8     epoch in which it was stored, see `memlite.backends.gcs.epoch`
38     8     birth: the nonce of the write that created it, or stored it unconditionally
46     8 × n nonces of the last writes, the newest first
====== ===== ======================================================================

In version 2 there follow nine bytes of `memlite.backends.Marks`: bits (1 stale, 2 won, 4 binary,
8 with a unique) and the cas unique that a client gave it. Only items with marks are written so:
servers of before read the others.
"""

import struct
import zlib
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import NamedTuple, Self

from memlite.backends.item import FullItem, Item, Marks

__all__ = [
    "NONCE_BYTES",
    "BucketItem",
    "DamagedError",
    "Trail",
    "decode",
    "encode",
    "key_of",
    "name_of",
]

NONCE_BYTES = 8
_RING = 8
_WRITER_BYTES = 4
_MAGIC = b"mlit"
_VERSION = 1
_MARKED_VERSION = 2
_MARKS = struct.Struct(">BQ")
_STALE, _WON, _BINARY, _UNIQUE = 1, 2, 4, 8
_HEADER = struct.Struct(">4sBBIIdQQ8s")
# What the checksum does not cover: magic, version, number of nonces and itself.
_START = struct.Struct(">4sBBI")
_REST = struct.Struct(">IdQQ8s")
_TRAIL = _HEADER.size - NONCE_BYTES


class DamagedError(Exception):
    """The content is not an item's, or not what was written."""


class Trail(NamedTuple):
    """Who wrote an object, for those that did not hear whether they did.

    A nonce stands for one write, whoever repeats it how often; its first four bytes are the
    writer's.

    Attributes:
        birth: the nonce of the write that did not build on the object before it.
        nonces: those of the last writes, the newest first.
    """

    birth: bytes
    nonces: tuple[bytes, ...]

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return that of which the bytes are birth and nonces."""
        birth, *nonces = (data[at : at + NONCE_BYTES] for at in range(0, len(data), NONCE_BYTES))
        return cls(birth, tuple(nonces))

    @classmethod
    def begin(cls, nonce: bytes) -> Self:
        """Return that of an object that builds on no other."""
        return cls(nonce, (nonce,))

    def followed_by(self, nonce: bytes, unsettled: set[bytes]) -> "Trail":
        """Return that of the write `nonce` which builds on the object with this trail.

        Earlier nonces of the same writer make room, unless they are `unsettled`: nobody will look
        for them any more. So the ring holds the last writes of eight servers, however many
        writes each of them makes.
        """
        writer = nonce[:_WRITER_BYTES]
        others = (n for n in self.nonces if n[:_WRITER_BYTES] != writer or n in unsettled)
        return Trail(self.birth, (nonce, *others)[:_RING])

    def may_have_lost(self, before: "Trail | None") -> bool:
        """Return whether a nonce put in since `before` may have been pushed out of the ring."""
        known = () if before is None else before.nonces
        return len(self.nonces) == _RING and not set(known).intersection(self.nonces)


class BucketItem(FullItem):
    """An item as it was read from the bucket.

    Attributes:
        epoch: in which it was stored.
        as_of: the epoch in which it was read.
    """

    __slots__ = ("_trail", "as_of", "epoch")

    memory = 96

    as_of: int
    epoch: int
    _trail: bytes

    @property
    def trail(self) -> Trail:
        """Who wrote it."""
        return Trail.parse(self._trail)


def encode(item: Item, epoch: int, trail: Trail) -> bytes:
    """Return the content of an item's object."""
    rest = _REST.pack(item.flags, item.expires, max(0, item.accessed), epoch, trail.birth)
    rest += b"".join(trail.nonces)
    version = _VERSION
    if item.marks is not None:
        version = _MARKED_VERSION
        rest += _pack_marks(item.marks)
    value = item.value
    crc = zlib.crc32(value, zlib.crc32(rest))
    return b"".join((_START.pack(_MAGIC, version, len(trail.nonces), crc), rest, value))


def _pack_marks(marks: Marks) -> bytes:
    bits = _STALE * marks.stale + _WON * marks.won + _BINARY * marks.binary
    if marks.unique is None:
        return _MARKS.pack(bits, 0)
    return _MARKS.pack(bits + _UNIQUE, marks.unique)


def _unpack_marks(body: bytes, at: int) -> Marks:
    bits, unique = _MARKS.unpack_from(body, at)
    return Marks(
        bool(bits & _STALE),
        bool(bits & _WON),
        bool(bits & _BINARY),
        unique if bits & _UNIQUE else None,
    )


def decode(key: bytes, body: bytes, generation: int) -> BucketItem:
    """Return the item of an object's content; `as_of` remains to be set.

    Args:
        key: the item's.
        body: the content.
        generation: the object's.

    Raises:
        DamagedError: the content is no item's.
    """
    try:
        magic, version, count, crc, flags, expires, stored, epoch, _ = _HEADER.unpack_from(body)
    except struct.error:
        raise DamagedError from None
    end = begin = _HEADER.size + NONCE_BYTES * count
    marks = None
    if version == _MARKED_VERSION:
        begin += _MARKS.size
    if (
        magic != _MAGIC
        or version not in (_VERSION, _MARKED_VERSION)
        or not count
        or begin > len(body)
        or zlib.crc32(memoryview(body)[_START.size :]) != crc
    ):
        raise DamagedError
    if begin > end:
        marks = _unpack_marks(body, end)
    item = BucketItem.of(key, body[begin:], flags, expires, generation, stored, marks)
    item.epoch = epoch
    item._trail = body[_TRAIL:end]  # taken apart when it is asked for
    return item


def name_of(key: bytes) -> str:
    """Return the name of a key's object, behind the prefix: any bytes as safe characters.

    Two digits of a hash go before it: a bucket is divided by names where it is busy, and keys
    that are counted up would all be in one part
    (https://cloud.google.com/storage/docs/request-rate#naming-convention).
    """
    return f"{zlib.crc32(key) & 255:02x}-{urlsafe_b64encode(key).rstrip(b'=').decode()}"


def key_of(name: str) -> bytes | None:
    """Return the key that `name_of` made a name of; None if it made no such name."""
    text = name[3:]
    try:
        key = b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (Base64Error, ValueError):
        return None
    return key if key and name_of(key) == name else None
