"""What one process has found in a shared table lately: its replies need no probing and no copy.

An entry holds exactly while its slot has the same word, its record the same expiry, and the table
the same stamp: the flush epoch, the time of a delayed flush, and the number of segments that were
ever opened. While the last is the same, no memory of a record was written over, so a slot with the
same word refers to the same record.
"""

import mmap
from typing import Final

from memlite.memory.shared.layout import EPOCH_AT, KEPT_AT

__all__ = ["STAMP", "Entry", "Near"]

STAMP: Final = slice(EPOCH_AT, KEPT_AT)
"""Where the stamp is in the header."""

Entry = tuple[int, int, int, int, float, bytes]
"""Slot, its word, place of the expiry in units of 8 bytes, its bits, the expiry, the reply."""

_AT_MOST: Final = 4 * 1024 * 1024
_LARGEST: Final = 16 * 1024
# What CPython takes for an entry besides its line and reply: dicts, a tuple, numbers, headers.
_OVERHEAD: Final = 400


class Near:
    """Replies by request line, of at most 4 MB; all are forgotten when it is full.

    Attributes:
        hot: entries whose use in this second needs no further note: their items are known to have
            been used as often as is counted.
        stamp: that of all entries.
    """

    __slots__ = ("_known", "_size", "hot", "stamp")

    def __init__(self) -> None:
        self.hot: dict[bytes, Entry] = {}
        self._known: dict[bytes, Entry] = {}  # all, those of `hot` too
        self._size = 0
        self.stamp = b""

    def known(self, line: bytes, memory: mmap.mmap) -> Entry | None:
        """Return an entry, after all are forgotten if the stamp has changed."""
        stamp = memory[STAMP]
        if stamp != self.stamp:
            self.clear()
            self.stamp = stamp
        return self._known.get(line)

    def keep(self, line: bytes, entry: Entry) -> None:
        """Keep what was found since `known` was called."""
        size = len(entry[5]) + len(line) + _OVERHEAD
        if size > _LARGEST:
            return
        before = self._known.get(line)
        if before is not None:
            self._size -= len(before[5]) + len(line) + _OVERHEAD
        if self._size + size > _AT_MOST:
            self.clear()
        self._known[line] = entry
        self._size += size

    def clear(self) -> None:
        """Forget everything."""
        self.hot.clear()
        self._known.clear()
        self._size = 0
