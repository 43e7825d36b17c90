"""A dict of items, bounded in bytes, which gives used items a second chance.

Synchronous: nothing in it waits. The memory engine works on one directly; backends that keep
items in memory beside something slower hold them in one.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator

from memlite.backends.base import RENEWED, SPENT, UNUSED, USED, Item
from memlite.errors import OutOfMemoryError

__all__ = ["ITEM_OVERHEAD", "ItemTable"]

# Bytes an item costs beside its key and its wire form, on 64-bit CPython 3.11: two bytes headers
# (2 × 33, and 2 × 8 of rounding), the Item (96), its version (32), and its share of the
# OrderedDict (a node of 56 and, between two doublings of the table, about 64 of slots).
ITEM_OVERHEAD = 330


# Used items that an eviction may pass over: bounds the time one store can take.
_CHANCES_AT_ONCE = 64


class ItemTable:
    """Items in the order they were stored; the oldest makes room, unless it was used since.

    A used item goes to the end instead, once for all its uses (second chance, or CLOCK). Unlike
    least-recently-used order this costs a hit one store into the item, and no move.

    Args:
        limit: bytes that keys, values and their overhead may take (``-m``).
        evict: whether to evict when full; otherwise storing raises (``-M``).
        on_evict: called with each evicted key and item.

    Attributes:
        on_evict: as above.
        limit: as above; lower it with `shrink`.
        used: bytes accounted for.
        get: returns a key's item or None; whether it has expired is the caller's to judge.
    """

    def __init__(
        self,
        limit: int,
        *,
        evict: bool = True,
        on_evict: Callable[[bytes, Item], None] = lambda key, item: None,
    ) -> None:
        self.limit = limit
        self.used = 0
        self.on_evict = on_evict
        self._evict = evict
        self._items: OrderedDict[bytes, Item] = OrderedDict()
        # What flush left behind: absent for everybody, freed a few at a time.
        self._flushed: OrderedDict[bytes, Item] = OrderedDict()
        self._garbage: list[OrderedDict[bytes, Item]] = []  # of flushes before the last
        self._bind()

    def _bind(self) -> None:
        # Bound once: an attribute that is a C method costs no Python frame on the hot path.
        self.get: Callable[[bytes], Item | None] = self._items.get

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        """Return True: an empty table is one all the same (``table or …``)."""
        return True

    def put(self, key: bytes, item: Item) -> None:
        """Store `item` under a key that is absent, evicting what it displaces.

        Raises:
            OutOfMemoryError: it does not fit and nothing may be evicted.
        """
        cost = len(key) + len(item.wire) + ITEM_OVERHEAD
        used = self.used + cost
        if used > self.limit:
            used -= self._make_room(used - self.limit, key, cost)
        self.used = used
        self._items[key] = item
        if self._flushed:
            # New items and flushed ones together never take more than the limit.
            self._free(len(self._items) + len(self._flushed), 2 * cost)

    def renew(self, key: bytes, item: Item, wire: bytes) -> Item:
        """Give a stored item a new wire form, evicting what it displaces.

        Returns:
            The item, of which the caller sets the rest.

        Raises:
            OutOfMemoryError: it does not fit and nothing may be evicted; the item is unchanged.
        """
        used = self.used + len(wire) - len(item.wire)
        if used > self.limit:
            cost = len(key) + len(wire) + ITEM_OVERHEAD
            used -= self._make_room(used - self.limit, key, cost)
        self.used = used
        item.wire = wire
        item.uses = RENEWED
        return item

    def alter(self, key: bytes, item: Item) -> Item:
        """Return a stored item, for all but its value to be changed in place."""
        return item

    def restore(self, key: bytes, item: Item | None) -> None:
        """Bring a key back to what it was, whether or not that fits; None for absent."""
        self.delete(key)
        if item is not None:
            self.used += self._cost(key, item)
            self._items[key] = item

    def _make_room(self, excess: int, key: bytes, cost: int) -> int:
        """Evict at least `excess` bytes, sparing `key`; return how many it was."""
        if not self._evict or cost > self.limit:
            raise OutOfMemoryError
        own = self._items.pop(key, None)
        freed = 0
        while freed < excess:
            victim, evicted = self._pop_oldest()
            freed += self._cost(victim, evicted)
            self.on_evict(victim, evicted)
        if own is not None:
            self._items[key] = own
        return freed

    def _pop_oldest(self) -> tuple[bytes, Item]:
        """Take out the oldest item that was not touched since it was stored or last passed over."""
        items = self._items
        for _ in range(_CHANCES_AT_ONCE):
            key, item = items.popitem(last=False)
            if item.uses < RENEWED:
                return key, item
            item.uses = SPENT if item.uses == USED else UNUSED
            items[key] = item
        return items.popitem(last=False)

    def delete(self, key: bytes) -> Item | None:
        """Remove a key; return its item, or None when there was none."""
        item = self._items.pop(key, None)
        if item is not None:
            self.used -= self._cost(key, item)
        return item

    drop = delete
    """For what has expired, which a table may keep or not: nobody sees it any more."""

    def flush(self) -> None:
        """Make every item absent at once; `reclaim` frees them."""
        if self._flushed:
            self._garbage.append(self._flushed)
        self._flushed = self._items
        self._items = OrderedDict()
        self.used = 0
        self._bind()

    def pop_flushed(self, key: bytes) -> Item | None:
        """Return and free what the last flush took from `key`, or None."""
        return self._flushed.pop(key, None) if self._flushed else None

    def reclaim(self, at_most: int) -> int:
        """Free up to `at_most` flushed items; return how many were freed."""
        return self._free(at_most, sys.maxsize)

    def _free(self, at_most: int, size: int) -> int:
        """Free flushed items: up to a number, or until `size` bytes are free."""
        flushed = self._garbage[-1] if self._garbage else self._flushed
        count = 0
        while flushed and count < at_most and size > 0:
            size -= self._cost(*flushed.popitem())
            count += 1
        if self._garbage and not flushed:
            self._garbage.pop()
        return count

    def shrink(self, limit: int) -> None:
        """Set the limit, evicting down to it when that is allowed."""
        self.limit = limit
        if self._evict:
            while self.used > limit:
                victim, item = self._pop_oldest()
                self.used -= self._cost(victim, item)
                self.on_evict(victim, item)

    def list_keys(self) -> list[bytes]:
        """Return every key, oldest first."""
        # The dict's own order, which is the same as nothing moves an item but by taking it out:
        # an OrderedDict goes from link to link, and takes a third of a second for a million keys.
        return list(dict.keys(self._items))

    def scan(self) -> Iterator[tuple[bytes, Item]]:
        """Yield every key and item, oldest first; nothing may be stored meanwhile."""
        yield from self._items.items()

    def scan_recent(self) -> Iterator[tuple[bytes, Item]]:
        """Yield every key and item, newest first; nothing may be stored meanwhile."""
        yield from reversed(self._items.items())

    @staticmethod
    def _cost(key: bytes, item: Item) -> int:
        return len(key) + len(item.wire) + ITEM_OVERHEAD
