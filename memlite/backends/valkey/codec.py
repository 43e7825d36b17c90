r"""Records as strings in Valkey: names and content.

The name of an item is the prefix, a colon and the key. Its content is a line of eight fields
followed by the value, so that one command reads everything, and ``valkey-cli`` shows it::

    m1 5f2e01a9c0ffee42 0 1796052600 1796049000 3 - -\nhello

====== =================================================================================
field
====== =================================================================================
1      ``m1``, this layout
2      the version, 16 hexadecimal digits
3      the client's flags
4      unix time at which the item expires, in seconds; 0 for never
5      unix second at which it was stored
6      epoch in which it was stored, see `memlite.backends.remote.epoch`
7      meta flags: ``s`` stale, ``w`` won, ``b`` binary, ``u`` and a number: the cas unique
       that a client assigned; ``-`` for none
8      the versions that this one has replaced on condition, newest first and at most eight,
       separated by commas; ``-`` for none
====== =================================================================================
"""

import re
from typing import NamedTuple

from memlite.backends.record import Record
from memlite.backends.remote.epoch import Epoch
from memlite.core.meta_flags import MetaFlags

__all__ = ["VERSION_AT", "DamagedError", "Origin", "decode", "encode", "versions_in"]

VERSION_AT = (3, 18)
"""Offsets of the first and the last digit of the version in the content."""

_LAYOUT = b"m1"
_FIELDS = 8
_LONG_AGO = 1.0
# An upper limit: a value without a line break must not be searched to its end.
_MAX_HEAD_LENGTH = 400
_TRAIL_BYTES = 8 * 17 - 1
_META = re.compile(rb"(s?)(w?)(b?)(?:u(\d{1,20}))?")


class DamagedError(Exception):
    """The content is not that of a record."""


class Origin(NamedTuple):
    """The origin of a record; the token of records from a store.

    Attributes:
        epoch: the epoch in which the record was stored.
        trail: the versions before this one, as stored.
        as_of: the epoch in which it was read.
    """

    epoch: int
    trail: bytes
    as_of: int

    def followed(self, version: int) -> bytes:
        """Return the trail of the state with the given version that replaces this one."""
        if self.trail == b"-":
            return b"%016x" % version
        return b"%016x,%b" % (version, self.trail[: _TRAIL_BYTES - 17])


def versions_in(trail: bytes) -> list[int]:
    """Return the versions of a trail, newest first."""
    return [] if trail == b"-" else [int(text, 16) for text in trail.split(b",")]


def encode(record: Record, version: int, epoch: int, trail: bytes = b"-") -> bytes:
    """Return the content of a record."""
    expires = record.expires
    head = b"m1 %016x %d %b %d %d %b %b\n" % (
        version,
        record.flags,
        b"0" if not expires else repr(expires).encode().removesuffix(b".0"),
        record.accessed,
        epoch,
        b"-" if record.meta_flags is None else _meta_text(record.meta_flags),
        trail,
    )
    return head + record.value


def decode(key: bytes, content: bytes, epoch: Epoch) -> Record:
    """Return the record in the content, with its `Origin` as the token.

    Args:
        key: its key.
        content: the content.
        epoch: determines whether it was flushed; if so, the record has expired.

    Raises:
        DamagedError: the content is not that of a record.
    """
    end = content.find(b"\n", 0, _MAX_HEAD_LENGTH)
    fields = content[:end].split(b" ")
    if end < 0 or len(fields) != _FIELDS or fields[0] != _LAYOUT:
        raise DamagedError
    _, version, flags, expires, stored, stored_in, meta, trail = fields
    try:
        # The record is created with all fields at once: `_replace` costs as much as all the rest.
        until = 0.0 if expires == b"0" else float(expires)
        numbers = int(flags), int(version, 16), int(stored), int(stored_in)
        meta_flags = None if meta == b"-" else _meta_flags(meta)
    except ValueError:
        raise DamagedError from None
    client_flags, number, accessed, stored_in_epoch = numbers
    as_of = epoch.known
    if as_of < stored_in_epoch:
        as_of = epoch.now(stored_in_epoch)
    if stored_in_epoch < as_of:
        until = _LONG_AGO
    origin = Origin(stored_in_epoch, trail, as_of)
    value = content[end + 1 :]
    return Record(key, value, client_flags, until, number, accessed, False, meta_flags, origin)


def _meta_text(meta: MetaFlags) -> bytes:
    unique = b"" if meta.unique is None else b"u%d" % meta.unique
    letters = b"s" * meta.stale + b"w" * meta.won + b"b" * meta.binary
    return letters + unique or b"-"


def _meta_flags(text: bytes) -> MetaFlags:
    found = _META.fullmatch(text)
    if found is None:
        raise ValueError
    stale, won, binary, unique = found.groups()
    return MetaFlags(bool(stale), bool(won), bool(binary), None if unique is None else int(unique))
