"""Item-size classes, numbered as memcached's slab classes.

memlite has no slab allocator: its items are as large as they are. The classes exist so that
``stats items`` and ``stats slabs`` tell the same groups apart as memcached's, to the number.
"""

from bisect import bisect_left
from dataclasses import dataclass

from memlite.backends import Item
from memlite.backends.item import FULL
from memlite.protocol.limits import item_total

__all__ = ["Gone", "SizeClasses"]

_ALIGNMENT = 8
_MAX_CLASSES = 63
_CHUNK_MAX = 512 * 1024


# Where in a reply the key begins, and what is behind its first line, up to the line feed, beside
# the value.
_KEY_AT = len(b"VALUE ")
_BEHIND_HEAD = len(b"\n\r\nEND\r\n")


@dataclass(slots=True)
class Gone:
    """Counts of items of one class that had to go.

    Attributes:
        evicted: those that made room.
        evicted_nonzero: those of them that would have expired.
        evicted_time: seconds for which the last of them was not used.
        evicted_unfetched: those of them that were never read.
        reclaimed: those whose place was taken after they had expired.
        crawler_reclaimed: those that had expired, and were looked for.
    """

    evicted: int = 0
    evicted_nonzero: int = 0
    evicted_time: int = 0
    evicted_unfetched: int = 0
    reclaimed: int = 0
    crawler_reclaimed: int = 0

    def __bool__(self) -> bool:
        """Return whether there were any."""
        return bool(self.evicted or self.reclaimed or self.crawler_reclaimed)


class SizeClasses:
    """The chunk sizes memcached would use (``slabs.c``, ``slabs_init``), and counts by class.

    Args:
        factor: each class is that much larger than the one before (``-f``).
        chunk_size: bytes for key, value and flags in the smallest class (``-n``).
        item_size_max: the largest item in bytes (``-I``).
        cas: whether items carry a cas unique.

    Attributes:
        chunk_sizes: bytes, ascending; class 1 is the first.
        gone: items that had to go, by class; there is no class 0.
    """

    def __init__(
        self,
        *,
        factor: float = 1.25,
        chunk_size: int = 48,
        item_size_max: int = 1024 * 1024,
        cas: bool = True,
    ) -> None:
        # What `item_total` adds to the bytes of key and value, without flags and with them.
        self._beside = item_total(0, 0, 0, cas=cas)
        self._beside_flags = item_total(0, 1, 0, cas=cas)
        chunk_max = min(_CHUNK_MAX, item_size_max)
        self.page_size = max(item_size_max, 1024 * 1024)
        self.chunk_sizes: list[int] = []
        size = 48 + chunk_size
        while len(self.chunk_sizes) < _MAX_CLASSES - 1 and size < chunk_max / factor:
            size += -size % _ALIGNMENT
            self.chunk_sizes.append(size)
            size = int(size * factor)
        self._last = len(self.chunk_sizes)
        self.chunk_sizes.append(chunk_max)
        self.reset()

    def reset(self) -> None:
        """Set the counts to zero (``stats reset``)."""
        self.gone = [Gone() for _ in range(len(self.chunk_sizes) + 1)]

    def total(self, key_length: int, item: Item) -> int:
        """Return the bytes memcached would count for the item."""
        beside = self._beside_flags if item.flags else self._beside
        return beside + key_length + item.size

    def of_item(self, key_length: int, item: Item) -> int:
        """Return the item's class."""
        wire = item.wire
        flags_at = _KEY_AT + key_length
        # Of most items in one, as each that is evicted is asked this.
        if item.state & FULL or wire[flags_at : flags_at + 3] != b" 0 ":
            return self.of_total(self.total(key_length, item))
        size = len(wire) - wire.index(b"\n") - _BEHIND_HEAD
        return bisect_left(self.chunk_sizes, self._beside + key_length + size, 0, self._last) + 1

    def of_total(self, total: int) -> int:
        """Return the class of an item of `total` bytes; larger than a chunk is the last."""
        return bisect_left(self.chunk_sizes, total, 0, self._last) + 1
