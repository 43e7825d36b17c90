"""Item-size classes, numbered as memcached's slab classes.

memlite has no slab allocator. The classes exist so that ``stats items`` and ``stats slabs`` show
the same groups, with the same numbers, as memcached.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from memlite.memory import Item
from memlite.memory.item import END, FULL
from memlite.protocol.limits import item_total

__all__ = ["EvictionCounts", "SizeClasses"]

_ALIGNMENT = 8
_MAX_CLASSES = 63
_MAX_CHUNK = 512 * 1024
_KEY_AT: Final = len(b"VALUE ")
_NO_FLAGS: Final = b" 0 "
_AROUND_VALUE: Final = len(b"\n\r\n") + END  # bytes after the header line that are not the value


@dataclass(slots=True)
class EvictionCounts:
    """Counts of evicted and reclaimed items of one size class.

    Attributes:
        evicted: items evicted before they expired.
        evicted_nonzero: evicted items that had an expiry.
        evicted_time: seconds since the last use of the item evicted last.
        evicted_unfetched: evicted items that were never read.
        reclaimed: expired items that were replaced or evicted.
        crawler_reclaimed: expired items that the crawler removed.
    """

    evicted: int = 0
    evicted_nonzero: int = 0
    evicted_time: int = 0
    evicted_unfetched: int = 0
    reclaimed: int = 0
    crawler_reclaimed: int = 0

    def __bool__(self) -> bool:
        """Return whether anything was counted."""
        return bool(self.evicted or self.reclaimed or self.crawler_reclaimed)


class SizeClasses:
    """The chunk sizes memcached would use (``slabs.c``, ``slabs_init``), and counts by class.

    Args:
        factor: ratio between the sizes of one class and the one before (``-f``).
        chunk_size: bytes for key, value and flags in the smallest class (``-n``).
        item_size_max: the largest item in bytes (``-I``).
        cas: whether items carry a cas unique.

    Attributes:
        chunk_sizes: bytes, ascending; class 1 is the first.
        evictions: the counts of each class; index 0 is unused.
        page_size: bytes of a slab page.
    """

    # Slots, because code in C reads some of them with every eviction.
    __slots__ = (
        "_last",
        "_overhead",
        "_overhead_flags",
        "chunk_sizes",
        "evictions",
        "page_size",
    )  # fmt: skip

    def __init__(
        self,
        *,
        factor: float = 1.25,
        chunk_size: int = 48,
        item_size_max: int = 1024 * 1024,
        cas: bool = True,
    ) -> None:
        # The bytes that `item_total` adds to those of key and value, without and with flags.
        self._overhead = item_total(0, 0, 0, cas=cas)
        self._overhead_flags = item_total(0, 1, 0, cas=cas)
        chunk_max = min(_MAX_CHUNK, item_size_max)
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
        self.evictions = [EvictionCounts() for _ in range(len(self.chunk_sizes) + 1)]

    def total(self, key_length: int, item: Item) -> int:
        """Return the bytes memcached would count for the item."""
        overhead = self._overhead_flags if item.flags else self._overhead
        return overhead + key_length + item.size

    def of_item(self, key_length: int, item: Item) -> int:
        """Return the item's class."""
        # Called for every eviction: a plain item without flags needs no further call.
        wire = item.wire
        flags_at = _KEY_AT + key_length
        if item.state & FULL or wire[flags_at : flags_at + len(_NO_FLAGS)] != _NO_FLAGS:
            return self.of_total(self.total(key_length, item))
        size = len(wire) - wire.index(b"\n") - _AROUND_VALUE
        return bisect_left(self.chunk_sizes, self._overhead + key_length + size, 0, self._last) + 1

    def of_total(self, total: int) -> int:
        """Return the class of an item of `total` bytes; the last one if it exceeds a chunk."""
        return bisect_left(self.chunk_sizes, total, 0, self._last) + 1
