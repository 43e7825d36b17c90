"""The engine for items in memory: all of them are in one table."""

from memlite.core.build import mypyc_attr
from memlite.core.clock import Clock
from memlite.engine import semantics
from memlite.engine.plain import PlainEngine
from memlite.engine.sizes import SizeClasses
from memlite.memory import FullItem, Item, ItemTable
from memlite.memory.item import FRESH_BITS, FULL, wire_form
from memlite.telemetry.counters import Counters

__all__ = ["MemoryEngine"]


# Seconds between two crawls for expired items. The interval doubles after a crawl that found none.
_INTERVAL = 60
_LONGEST = 15 * 60
# Seconds before a delayed flush at which commands start checking whether it is due: more than a
# tick.
_FLUSH_AHEAD = 3.0
# Beyond this, a client could use up the 64 bits of cas uniques.
_MAX_NOTED = 2**63


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryEngine(PlainEngine):
    """Carries out commands on a table that holds every item.

    Args:
        items: the table, whose evictions the engine counts.
        clock: see `Engine`.
        counters: see `Engine`.
        item_size: see `Engine`.
        cas: see `Engine`.
        sizes: see `Engine`.

    Attributes:
        crawls: whether it crawls for expired items periodically (``lru_crawler enable``).
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
        self._flush_at = 0.0
        self.crawls = True
        self._crawling = False
        self._compacting = False
        self._found = 0
        self._interval = _INTERVAL
        self._next_crawl = clock.second + _INTERVAL
        items.on_evict = self.count_evictions

    def with_unique(self, item: Item, compared: int = 0) -> Item:
        """Return the stored item, after assigning its cas unique if it has none.

        A unique is assigned only when a client requests it, as it takes 48 bytes of memory. Clients
        cannot tell the difference: the unique that they compare was not shown for this item, so it
        does not become the item's. They may have guessed it, or have it from before a restart.
        """
        if item.version or not self.cas_enabled:
            return item
        if not isinstance(item, FullItem):
            stored = self._items.get(item.key)  # it may be another object by now, with a unique
            if stored is None:
                return item
            item = stored
        meta_flags = item.meta_flags
        if not item.version and (meta_flags is None or meta_flags.unique is None):
            self._version += 1
            if self._version == compared:
                self._version += 1
            item = self._items.set_version(item, self._version)
        return item

    def set_for_unique(self, key: bytes, flags: int, exptime: int, value: bytes) -> Item | None:
        """Store like `set`, and return the item; see `MetaEngine`."""
        find = self._items.get_by_line
        item = find(b"get %b\r\n" % key)
        if (
            isinstance(item, FullItem)
            and not (self.observed or exptime or item.expires)
            and self.cas_enabled
            and isinstance(item.extra, int)
            and item.extra
        ):
            wire = wire_form(key, flags, value)
            if len(wire) == len(item.wire):
                # It takes as much memory as before, and remains the same object.
                item.wire = wire
                item.state = self.usage.used[item.state & FRESH_BITS | FULL]
                self._version += 1
                item.extra = self._version
                counters = self.counters
                counters.cmd_set += 1
                counters.total_items += 1
                return item
        return super().set_for_unique(key, flags, exptime, value)

    def _note_unique(self, unique: int) -> None:
        """Assign only cas uniques above `unique` from now on.

        An item that is moved here keeps its cas unique. The key's next unique must differ from any
        that a client has seen before, at the node that the item comes from.
        """
        if unique <= _MAX_NOTED:
            self.number_uniques_from(unique)

    def number_uniques_from(self, number: int) -> None:
        """Assign cas uniques above a number from now on, unless they are higher already."""
        self._version = max(self._version, number)

    def flush_all(self, exptime: int) -> None:
        """Invalidate all items, now or, for a positive `exptime`, at that time.

        A later call replaces an earlier one that is still pending.
        """
        self._flush_at = 0.0
        self._items.flush_when(None)
        if exptime > 0:
            self._flush_at = semantics.expiry(exptime, self.clock.now())
            self.tick()
        else:
            self._items.flush()

    def tick(self) -> None:
        """Carry out a due delayed flush, and start a due crawl."""
        if self._flush_due():
            self._items.flush()
        elif self._flush_at and self._flush_at < self.clock.now() + _FLUSH_AHEAD:
            # A command that arrives when it is due may be served before any timer.
            self._items.flush_when(self._flush_due)
        if self.crawls and self.clock.second >= self._next_crawl:
            self.crawl()

    def _flush_due(self) -> bool:
        """Return whether a delayed flush is due; if so, it is no longer pending."""
        if not self._flush_at or self._flush_at > self.clock.now():
            return False
        self._flush_at = 0.0
        return True

    @property
    def flush_pending(self) -> float:
        """The unix time of a delayed flush, 0 if there is none."""
        return self._flush_at

    def crawl(self) -> None:
        """Start a search for expired items; `sweep` does the work (``lru_crawler crawl``)."""
        if not self._crawling:
            self._crawling = True
            self._found = 0
            self.counters.lru_crawler_starts += 1

    @property
    def crawling(self) -> bool:
        """Whether a crawl is in progress."""
        return self._crawling

    def compact(self) -> None:
        """Start to compact memory; `sweep` does the work. See `ItemTable.compact`."""
        self._compacting = True

    @property
    def compacting(self) -> bool:
        """Whether compaction is in progress."""
        return self._compacting

    def sweep(self, at_most: int) -> bool:
        """Free flushed items, then expired ones, then compact; `at_most` items of each.

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
            return True  # compaction measures the overhead, which may leave less room for items
        return self._crawling or self._compacting

    def _look(self, key: bytes, item: Item) -> None:
        counters = self.counters
        counters.crawler_items_checked += 1
        if item.expires and item.expires <= self.clock.now():
            self._found += 1
            counters.crawler_reclaimed += 1
            self.sizes.evictions[self.sizes.of_item(len(key), item)].crawler_reclaimed += 1
            self._drop_expired(key, item)
