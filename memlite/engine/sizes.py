"""Item-size classes, numbered as memcached's slab classes.

memlite has no slab allocator: its items are as large as they are. The classes exist so that
``stats items`` and ``stats slabs`` tell the same groups apart as memcached's, to the number.
"""

from bisect import bisect_left
from collections import Counter

from memlite.backends import Item
from memlite.protocol.limits import item_total

__all__ = ["SizeClasses"]

_ALIGNMENT = 8
_MAX_CLASSES = 63
_CHUNK_MAX = 512 * 1024


class SizeClasses:
    """The chunk sizes memcached would use (``slabs.c``, ``slabs_init``), and counts by class.

    Args:
        factor: each class is that much larger than the one before (``-f``).
        chunk_size: bytes for key, value and flags in the smallest class (``-n``).
        item_size_max: the largest item in bytes (``-I``).
        cas: whether items carry a cas unique.

    Attributes:
        chunk_sizes: bytes, ascending; class 1 is the first.
        evicted: evictions by class, and likewise the others.
    """

    def __init__(
        self,
        *,
        factor: float = 1.25,
        chunk_size: int = 48,
        item_size_max: int = 1024 * 1024,
        cas: bool = True,
    ) -> None:
        self._cas = cas
        chunk_max = min(_CHUNK_MAX, item_size_max)
        self.page_size = max(item_size_max, 1024 * 1024)
        self.chunk_sizes: list[int] = []
        size = 48 + chunk_size
        while len(self.chunk_sizes) < _MAX_CLASSES - 1 and size < chunk_max / factor:
            size += -size % _ALIGNMENT
            self.chunk_sizes.append(size)
            size = int(size * factor)
        self.chunk_sizes.append(chunk_max)
        self.reset()

    def reset(self) -> None:
        """Set the counts to zero (``stats reset``)."""
        self.evicted: Counter[int] = Counter()
        self.evicted_nonzero: Counter[int] = Counter()
        self.evicted_time: Counter[int] = Counter()
        self.evicted_unfetched: Counter[int] = Counter()
        self.reclaimed: Counter[int] = Counter()
        self.crawler_reclaimed: Counter[int] = Counter()

    def total(self, key: bytes, item: Item) -> int:
        """Return the bytes memcached would count for the item."""
        return item_total(len(key), item.flags, item.size, cas=self._cas)

    def of_item(self, key: bytes, item: Item) -> int:
        """Return the item's class."""
        return self.of_total(self.total(key, item))

    def of_total(self, total: int) -> int:
        """Return the class of an item of `total` bytes; larger than a chunk is the last."""
        return min(bisect_left(self.chunk_sizes, total), len(self.chunk_sizes) - 1) + 1
