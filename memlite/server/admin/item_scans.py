"""Statistics that scan every item: ``stats items``, ``slabs``, ``sizes`` and ``cachedump``.

Each is a `Scan`, so that a million items can be processed in small steps.
"""

from collections.abc import Mapping
from typing import Final

from memlite.core.clock import Clock
from memlite.engine.sizes import SizeClasses
from memlite.memory import ItemTable
from memlite.server.admin.incremental_reply import Scan
from memlite.telemetry.snapshot import ItemClassStats, SlabClassStats, SlabStats

__all__ = ["ItemScans"]

_SIZE_BUCKET: Final = 32
_ITEMS_PER_TURN: Final = 100
_CACHEDUMP_BYTES: Final = 2 * 1024 * 1024


class ItemScans:
    """Computes statistics from the items in a table.

    Args:
        table: holds the items.
        sizes: the size classes they are counted in.
        clock: determines which items have expired.
        track_sizes: whether sizes may be requested (``-o track_sizes``).
    """

    def __init__(
        self, *, table: ItemTable, sizes: SizeClasses, clock: Clock, track_sizes: bool
    ) -> None:
        self._table = table
        self._sizes = sizes
        self._clock = clock
        self._track_sizes = track_sizes

    def items(self) -> Scan[list[ItemClassStats]]:
        """Return the size classes that have items, or had items evicted or reclaimed."""
        classes = self._sizes
        number: dict[int, int] = {}
        charged: dict[int, int] = {}
        oldest: dict[int, int] = {}
        for place, (key, item) in enumerate(self._table.survey()):
            if not place % _ITEMS_PER_TURN:
                yield
            total = classes.total(len(key), item)
            class_id = classes.of_total(total)
            number[class_id] = number.get(class_id, 0) + 1
            charged[class_id] = charged.get(class_id, 0) + total
            oldest[class_id] = min(oldest.get(class_id, item.accessed), item.accessed)
        now = int(self._clock.now())
        return [
            ItemClassStats(
                class_id=class_id,
                items=number.get(class_id, 0),
                bytes=charged.get(class_id, 0),
                age=now - oldest.get(class_id, now),
                evicted=gone.evicted,
                evicted_nonzero=gone.evicted_nonzero,
                evicted_time=gone.evicted_time,
                evicted_unfetched=gone.evicted_unfetched,
                reclaimed=gone.reclaimed,
                crawler_reclaimed=gone.crawler_reclaimed,
            )
            for class_id, gone in enumerate(classes.evictions)
            if gone or class_id in number
        ]

    def slabs(self) -> Scan[SlabStats]:
        """Return the size classes that have items, and the slabs that these would occupy."""
        classes = self._sizes
        used: dict[int, int] = {}
        for place, (key, item) in enumerate(self._table.survey()):
            if not place % _ITEMS_PER_TURN:
                yield
            class_id = classes.of_item(len(key), item)
            used[class_id] = used.get(class_id, 0) + 1
        found = []
        for class_id in sorted(used):
            chunk_size = classes.chunk_sizes[class_id - 1]
            found.append(
                SlabClassStats(
                    class_id=class_id,
                    items=used[class_id],
                    chunk_size=chunk_size,
                    chunks_per_page=classes.page_size // chunk_size,
                )
            )
        return SlabStats(tuple(found), self._table.used)

    def sizes(self) -> Scan[Mapping[int, int] | None]:
        """Return the number of items by size, rounded up to 32 bytes; None if not tracked."""
        if not self._track_sizes:
            return None
        histogram: dict[int, int] = {}
        for place, (key, item) in enumerate(self._table.survey()):
            if not place % _ITEMS_PER_TURN:
                yield
            bucket = -(-self._sizes.total(len(key), item) // _SIZE_BUCKET) * _SIZE_BUCKET
            histogram[bucket] = histogram.get(bucket, 0) + 1
        return histogram

    def cachedump(self, class_id: int, limit: int) -> Scan[list[bytes]]:
        r"""Return ``ITEM <key> [<bytes> b; <unix time> s]\r\n`` lines, the last used item first.

        Args:
            class_id: the requested size class.
            limit: the most lines; 0 for as many as fit into 2 MB, which is the limit in any case.
        """
        now = self._clock.now()
        lines: list[bytes] = []
        size = 0
        for place, (key, item) in enumerate(self._table.survey(newest_first=True)):
            if not place % _ITEMS_PER_TURN:
                yield
            if self._sizes.of_item(len(key), item) != class_id or (
                item.expires and item.expires <= now
            ):
                continue
            if item.meta_flags is not None and item.meta_flags.binary:
                continue  # the key may contain a line break
            line = b"ITEM %b [%d b; %d s]\r\n" % (key, item.size, int(item.expires))
            size += len(line)
            if size > _CACHEDUMP_BYTES or (limit and len(lines) == limit):
                break
            lines.append(line)
        return lines
