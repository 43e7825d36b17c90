"""A process's cache of recent finds in a shared table: hits need no probing and no copy.

An entry is valid exactly while its slot has the same word, its record the same expiry, and the
table the same stamp: the flush epoch, the time of a delayed flush, and the number of segments ever
opened. While that number is the same, no record has been overwritten, so a slot with the same word
refers to the same record.
"""

import mmap
from typing import Final

from memlite.memory.shared.layout import EPOCH_AT, KEPT_AT

__all__ = ["STAMP", "Entry", "Near"]

STAMP: Final = slice(EPOCH_AT, KEPT_AT)
"""The place of the stamp in the header."""

Entry = tuple[int, int, int, int, float, bytes]
"""Slot, its word, place of the expiry in units of 8 bytes, the expiry's bits, the expiry, reply."""

_AT_MOST: Final = 4 * 1024 * 1024
_LARGEST: Final = 16 * 1024
# CPython's memory per entry besides line and reply: dicts, a tuple, numbers, headers.
_OVERHEAD: Final = 400


class Near:
    """Replies by request line, of at most 4 MB; a full cache is cleared.

    Attributes:
        hot: entries whose uses in this second need not be recorded any more: their items are known
            to have the highest count of uses.
        stamp: the stamp of all entries.
    """

    __slots__ = ("_known", "_size", "hot", "stamp")

    def __init__(self) -> None:
        self.hot: dict[bytes, Entry] = {}
        self._known: dict[bytes, Entry] = {}  # all entries, including `hot`
        self._size = 0
        self.stamp = b""

    def known(self, line: bytes, memory: mmap.mmap) -> Entry | None:
        """Return an entry; if the stamp has changed, forget all entries first."""
        stamp = memory[STAMP]
        if stamp != self.stamp:
            self.clear()
            self.stamp = stamp
        return self._known.get(line)

    def keep(self, line: bytes, entry: Entry) -> None:
        """Keep an entry that was found after `known` was called."""
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
