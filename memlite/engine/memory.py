"""The engine served from memory alone: all items are in one table."""

from memlite.backends import FullItem, Item, ItemTable
from memlite.backends.usage import MASK
from memlite.clock import Clock
from memlite.engine import semantics
from memlite.engine.meta import MetaEngine
from memlite.engine.sizes import SizeClasses
from memlite.stats import Counters

__all__ = ["MemoryEngine"]


# Seconds from the end of one round of looking for expired items to the next. After a round that
# found none it is twice as long.
_INTERVAL = 60
_LONGEST = 15 * 60


class MemoryEngine(MetaEngine):
    """Carries out commands on a table that holds every item.

    Args:
        items: the table; its evictions are counted here.
        clock: as for `Engine`, and likewise the others.
        counters: see there.
        item_size: see there.
        cas: see there.
        sizes: see there.

    Attributes:
        crawls: whether expired items are looked for now and then (``lru_crawler enable``).
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
        self._straight = self.usage.straight
        self._stored = self.usage.stored
        self._version = 0
        self._flush_at = 0.0
        self.crawls = True
        self._crawling = False
        self._compacting = False
        self._found = 0
        self._interval = _INTERVAL
        self._next_crawl = clock.second + _INTERVAL
        items.on_evict = self.count_evictions

    def hit(self, line: bytes) -> bytes | None:
        r"""Return the whole reply to ``get <key>\r\n`` if that can be had at once; see `Engine`."""
        asked = self._items.asked  # called by way of a local: faster than as if it were a method
        item = asked(line)
        if item is None:
            return None
        state = self._straight[item.state & MASK]
        if state:
            item.state = state
        elif not self.look_closer(item):
            return None
        self.counters.hits += 1
        return item.wire

    def set_framed(self, key: bytes, exptime: int, wire: bytes) -> None:
        """Store like `set`; see `Engine`."""
        asked = self._items.asked
        old = asked(b"get %b\r\n" % key)
        # What most sets do, to overwrite with as many bytes, without any further call.
        if old is not None and not exptime and len(wire) == len(old.wire):
            state = self._stored[old.state & MASK]
            if state:
                old.wire = wire
                old.state = state
                counters = self.counters
                counters.cmd_set += 1
                counters.total_items += 1
                return
        self._set_framed(key, old, exptime, wire)

    def numbered(self, item: Item) -> Item:
        """Return the item that is stored for `item` once that has its cas unique.

        It is given out here, when somebody asks for it. Nobody can tell: what was never shown is
        what no cas can have, and a number takes 48 bytes of memory.
        """
        if item.version or not self.cas_enabled:
            return item
        if not isinstance(item, FullItem):
            stored = self._items.get(item.key)  # perhaps it is another by now, which has one
            if stored is None:
                return item
            item = stored
        marks = item.marks
        if not item.version and (marks is None or marks.unique is None):
            self._version += 1
            item = self._items.number(item, self._version)
        return item

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
        """Do what is due: a delayed flush, and to look for expired items."""
        if self._flush_at and self._flush_at <= self.clock.now():
            self._flush_at = 0.0
            self._items.flush()
        if self.crawls and self.clock.second >= self._next_crawl:
            self.crawl()

    @property
    def flush_pending(self) -> float:
        """The unix time of a delayed flush, 0 when there is none."""
        return self._flush_at

    def crawl(self) -> None:
        """Begin to look for expired items, with `sweep` (``lru_crawler crawl``)."""
        if not self._crawling:
            self._crawling = True
            self._found = 0
            self.counters.lru_crawler_starts += 1

    @property
    def crawling(self) -> bool:
        """Whether expired items are being looked for."""
        return self._crawling

    def compact(self) -> None:
        """Begin to make what is small anew, with `sweep`, so that it lies together."""
        self._compacting = True

    @property
    def compacting(self) -> bool:
        """Whether that is under way."""
        return self._compacting

    def sweep(self, at_most: int) -> bool:
        """Free what was flushed, then what has expired, then compact, `at_most` items of each.

        Returns:
            Whether there is more to do.
        """
        items = self._items
        if items.reclaim(at_most):
            return True
        if self._crawling and items.walk(at_most, self._look) < at_most:
            self._crawling = False
            self._interval = _INTERVAL if self._found else min(2 * self._interval, _LONGEST)
            self._next_crawl = self.clock.second + self._interval
        elif self._compacting and not self._crawling:
            self._compacting = items.compact(at_most)
            return True  # it measures, and that may show that there is less room for items
        return self._crawling or self._compacting

    def _look(self, key: bytes, item: Item) -> None:
        counters = self.counters
        counters.crawler_items_checked += 1
        if item.expires and item.expires <= self.clock.now():
            self._found += 1
            counters.crawler_reclaimed += 1
            self.sizes.gone[self.sizes.of_item(len(key), item)].crawler_reclaimed += 1
            self._drop_expired(key, item)
