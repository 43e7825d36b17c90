"""The engine served from memory alone: all items are in one table."""

from memlite.backends import Item, ItemTable
from memlite.clock import Clock
from memlite.engine import semantics
from memlite.engine.meta import MetaEngine
from memlite.engine.sizes import SizeClasses
from memlite.stats import Counters

__all__ = ["MemoryEngine"]

_RECLAIMED_PER_TICK = 10_000


class MemoryEngine(MetaEngine):
    """Carries out commands on a table that holds every item.

    Args:
        items: the table; its evictions are counted here.
        clock: as for `Engine`, and likewise the others.
        counters: see there.
        item_size: see there.
        cas: see there.
        sizes: see there.
    """

    def __init__(
        self,
        items: ItemTable,
        clock: Clock,
        counters: Counters,
        *,
        item_size: int = 1024 * 1024,
        cas: bool = True,
        sizes: SizeClasses | None = None,
    ) -> None:
        super().__init__(items, clock, counters, item_size=item_size, cas=cas, sizes=sizes)
        self._items = items
        self._version = 0
        self._flush_at = 0.0
        items.on_evict = self.count_eviction

    def unique(self, item: Item) -> int:
        """Return the cas unique that gets shows for an item; 0 for all with ``-C``.

        It is given out here, when somebody asks for it. Nobody can tell: what was never shown is
        what no cas can have, and a number takes 32 bytes of memory.
        """
        if self.cas_enabled and not item.version:
            marks = item.marks
            if marks is None or marks.unique is None:
                self._version += 1
                self._items.number(item, self._version)
        return super().unique(item)

    def flush_all(self, exptime: int) -> None:
        """Make all items absent, now or, for a positive `exptime`, then.

        A later call replaces an earlier one that is still waiting.
        """
        self._flush_at = 0.0
        if exptime > 0:
            self._flush_at = semantics.expiry(exptime, self.clock.now())
            self.tick()
        else:
            self._items.flush()

    def tick(self) -> None:
        """Do what is due: a delayed flush, and freeing some of what was flushed."""
        if self._flush_at and self._flush_at <= self.clock.now():
            self._flush_at = 0.0
            self._items.flush()
        self._items.reclaim(_RECLAIMED_PER_TICK)

    @property
    def flush_pending(self) -> float:
        """The unix time of a delayed flush, 0 when there is none."""
        return self._flush_at

    def crawl(self) -> None:
        """Remove every expired item (``lru_crawler crawl``)."""
        now = self.clock.now()
        counters = self.counters
        counters.lru_crawler_starts += 1
        counters.crawler_items_checked += len(self._items)
        expired = [
            (key, item) for key, item in self._items.scan() if item.expires and item.expires <= now
        ]
        for key, item in expired:
            self.sizes.crawler_reclaimed[self.sizes.of_item(key, item)] += 1
            self._drop_expired(key, item)
        counters.crawler_reclaimed += len(expired)
