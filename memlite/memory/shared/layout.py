"""The layout of a mapping that holds a shared table; `_native.c` has the same in C.

All numbers are little endian and aligned to their size.

====================  ==================================================================
offset                content
====================  ==================================================================
0                     the header: `HEADER`, then from 128 the flush epoch, the time of a
                      delayed flush, the number of segments ever opened, and `KEPT`
``regions_at``        256 regions of 128 bytes, and one for the lock of the log: 64 bytes
                      for a mutex, then the last serial number, items, bytes, busy
``slots_at``          the slots of all regions, 8 bytes each
``states_at``         for each slot, when and how often its item was used: 4 bytes
``ghosts_at``         for each slot, the fingerprint of an evicted key: 2 bytes
``headers_at``        for each segment 128 bytes: generation, order, flush epoch; state, owner,
                      bytes used, queue; last expiry; at 64, bytes of dead records
``segments_at``       the segments, in which records follow each other
====================  ==================================================================
"""

import struct
from dataclasses import dataclass
from typing import Final

from memlite.core.errors import ConfigError

__all__ = [
    "COUNTERS",
    "DEAD",
    "EMPTY",
    "EPOCH_AT",
    "EVICTED",
    "EVICTING",
    "EXPIRY",
    "FLUSH_AT",
    "FREE",
    "GONE",
    "HEAD",
    "HEADER",
    "KEEP",
    "KEPT",
    "KEPT_AT",
    "LIVE",
    "MAGIC",
    "MAX_EVICTED",
    "META",
    "MET_EXPIRED",
    "MET_EXPIRED_UNFETCHED",
    "MET_FLUSHED",
    "MET_NONE",
    "NEARLY_EMPTY",
    "NEVER",
    "NOBODY",
    "OPEN",
    "PARKED",
    "PARKED_AT",
    "RECORD",
    "RECORD_SIZE",
    "REGIONS",
    "SEALED",
    "SEGMENT_HEADER",
    "STEPS_AT",
    "UNNAMED",
    "USED",
    "VERSION",
    "Layout",
    "record_size",
]

MAGIC: Final = b"memlite\0"
VERSION: Final = 3
"""`_native.c` has the same: a module compiled for another version is not used."""
REGIONS: Final = 256
EMPTY: Final = 0
GONE: Final = 1
"""A slot whose item was removed; probing goes on past it."""
PLACE_BITS: Final = 50
"""Bits of a slot that hold the place of a record, in units of 8 bytes; the rest hold part of its
hash."""
PLACE: Final = (1 << PLACE_BITS) - 1

FREE, OPEN, SEALED, EVICTING, PARKED = range(5)
UNNAMED, META, LIVE, KEEP, USED, DEAD = 1, 2, 16, 32, 64, 128
"""Kinds of records. `LIVE` is set while the index is rebuilt, `KEEP` and `USED` only in calls."""
EXPIRY: Final = 2048
"""Also only in calls: the new item takes over the expiry of the item that it replaces."""
MET_NONE, MET_EXPIRED, MET_EXPIRED_UNFETCHED, MET_FLUSHED = range(4)
"""What a command found where it stored or removed an item. `MET_NONE`: a live item or none."""

HEADER: Final = struct.Struct("<8sIIQIIIIQQQQQQ")
EPOCH_AT: Final = 128
FLUSH_AT: Final = 136
ORDER_AT: Final = 144
KEPT_AT: Final = 152
KEPT: Final = struct.Struct("<QddQI")
"""For a table in a file: 1 if it was closed cleanly, the server's and the system's unix time then,
the unix second from which uses are counted, and a checksum."""
PARKED_AT: Final = 192
"""How many segments are parked, without memory; how many should be; and the limit that requires it
(``cache_memlimit``)."""
STEPS_AT: Final = 216
"""4 bytes each: the segment being evicted step by step, plus one, or 0; the offset reached; how
many bytes of used items may still be kept; whether all are kept; whether a change of
segments is under way."""
RECORD: Final = struct.Struct("<IIQdIHBB")
"""Length of the reply, hash, cas unique, expiry, second of the store, bytes after the reply,
length of the key, kind."""
RECORD_SIZE: Final = RECORD.size
EVICTED: Final = struct.Struct("<dIII")
"""The report of an evicted item: expiry, state, length of the reply, length of the key; then the
key, and the beginning of the reply, at least up to its value (`HEAD` bytes)."""
MAX_EVICTED: Final = 65536
"""The most reports of evicted items that wait to be collected."""
HEAD: Final = 300
_REGION_SIZE: Final = 128
REGION_FIELDS: Final = 64
"""Offset of a region's numbers, after its mutex: serial, items, bytes, busy."""
_PAGE: Final = 4096
# Bytes of memory per slot. The smallest records take less: if most are small, segments are evicted
# to free slots.
_PER_SLOT: Final = 160
_SLOT_SIZE: Final = 8 + 4 + 2
SEGMENT_HEADER: Final = 128
COUNTERS: Final = 16
"""Counters of dead bytes per segment: one per worker, if there are no more workers than that."""
NEVER: Final = 0xFFFFFFFFFFFFFFFF
"""The last expiry of a segment that has an item without expiry."""
NEARLY_EMPTY: Final = 16
"""A segment is reused at once if items take at most 1/`NEARLY_EMPTY` of it."""
NOBODY: Final = 0xFFFFFFFF
"""The owner of the segment that the main queue fills. While a segment is evicted, its owner field
names the segment that its items move into; `NOBODY` if that is the main queue's."""
# An upper bound for the parts of a record that `item_total` omits: its header, the reply's words.
_MORE: Final = 512


def record_size(length: int, extra: int) -> int:
    """Return the size of a record in bytes."""
    return RECORD_SIZE + length + extra + 7 & ~7


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of all parts of a mapping.

    Attributes:
        size: bytes of the mapping.
        slots: slots in each region.
        segments: the number of segments.
        segment_size: bytes of each.
        regions_at: where the regions begin; likewise the others.
    """

    size: int
    slots: int
    segments: int
    segment_size: int
    regions_at: int
    slots_at: int
    states_at: int
    ghosts_at: int
    headers_at: int
    segments_at: int

    @classmethod
    def of(cls, size: int, item_size: int, workers: int) -> "Layout":
        """Divide a mapping.

        Args:
            size: bytes of the mapping (``-m``), for everything.
            item_size: bytes of the largest item (``-I``).
            workers: how many processes write; each has an open segment.

        Raises:
            ConfigError: there is too little memory for that.
        """
        segment_size = _round_up(item_size + _MORE, _PAGE)
        slots = max(16, size // _PER_SLOT // REGIONS)
        slots_at = _round_up(_PAGE + (REGIONS + 1) * _REGION_SIZE, _PAGE)
        states_at = slots_at + 8 * slots * REGIONS
        ghosts_at = states_at + 4 * slots * REGIONS
        headers_at = _round_up(slots_at + _SLOT_SIZE * slots * REGIONS, 64)
        segments = (size - headers_at - _PAGE) // (segment_size + SEGMENT_HEADER)
        if segments < workers + 3:
            least = headers_at + _PAGE + (workers + 3) * (segment_size + SEGMENT_HEADER)
            raise ConfigError(
                f"-t: {workers} workers and items of {item_size} bytes (-I) need at least -m "
                f"{-(-least // 1024 // 1024) + 1}"
            )
        segments_at = _round_up(headers_at + segments * SEGMENT_HEADER, _PAGE)
        return cls(
            size, slots, segments, segment_size, _PAGE, slots_at, states_at, ghosts_at,
            headers_at, segments_at,
        )  # fmt: skip

    @classmethod
    def read(cls, memory: memoryview) -> "Layout":
        """Return the layout of a mapping.

        Raises:
            ConfigError: it has no layout, or a different one.
        """
        magic, version, regions, size, slots, segments, segment_size, _, *places = (
            HEADER.unpack_from(memory)
        )
        if magic != MAGIC or version != VERSION or regions != REGIONS or size != len(memory):
            raise ConfigError("not a table, or one with a different layout")
        return cls(size, slots, segments, segment_size, *places)

    def header(self) -> bytes:
        """Return the header of a mapping."""
        return HEADER.pack(
            MAGIC, VERSION, REGIONS, self.size, self.slots, self.segments,
            self.segment_size, 0, self.regions_at, self.slots_at, self.states_at,
            self.ghosts_at, self.headers_at, self.segments_at,
        )  # fmt: skip

    def write(self, memory: memoryview) -> None:
        """Write the header of a mapping that is all zeros."""
        memory[: HEADER.size] = self.header()


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
