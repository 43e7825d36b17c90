"""Least recently used, to compare with."""

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, cast

from memlite.backends.eviction.policy import Policy, weigh
from memlite.backends.index import Index
from memlite.backends.item import Item

__all__ = ["Lru"]

# Items with which an order that has outgrown a lower limit is made anew.
_REMADE_WITH: Final = 10_000
# Bytes of it for each item from which it is when items are.
_SPARSE: Final = 512


class Lru(Policy):
    """All items in the order of their last use, each use a move to the end.

    Costs a hit a call and an item some 130 bytes more than S3-FIFO does, and others have to wait
    when the order grows, or is made anew: 30 ms with 350,000 items, twice as long with as many.
    """

    def __init__(self, items: Index) -> None:
        super().__init__(items)
        self._order: OrderedDict[bytes, None] = OrderedDict()
        self._to_show: list[bytes] = []
        self._next = 0  # the part of the index to show then
        self.find = self._find

    def __len__(self) -> int:
        return len(self._order)

    def follow(self) -> None:
        """Do nothing: it asks the index each time."""

    def _find(self, line: bytes) -> Item | None:
        item = self._items.get(line)
        if item is not None:
            self._order.move_to_end(line)
        return item

    def adapt(self, limit: int) -> int:
        """Return what the order takes; it is made anew where it has outgrown a lower limit."""
        if sys.getsizeof(self._order) > limit and len(self._order) <= _REMADE_WITH:
            self._order = OrderedDict(self._order)
        return sys.getsizeof(self._order)

    def admit(self, line: bytes, item: Item, size: int) -> None:
        """Put an item at the end."""
        self._order[line] = None

    def resize(self, item: Item, more: int) -> None:
        """Do nothing: what counts is the order."""

    def remove(self, line: bytes, item: Item, size: int) -> None:
        """Forget an item."""
        del self._order[line]

    def evict(self, size: int, at_most: int) -> list[tuple[bytes, Item, int]]:
        """Choose the items that were not used for longest."""
        gone: list[tuple[bytes, Item, int]] = []
        while size > 0 and self._order and len(gone) < at_most:
            line, _ = self._order.popitem(last=False)
            item = cast("Item", self._items.get(line))
            weight = weigh(line, item)
            gone.append((line, item, weight))
            size -= weight
        return gone

    def walk(self, at_most: int, look: Callable[[bytes, Item], None]) -> int:
        """Show items, part by part of the index: an order that changes cannot be walked through."""
        for passed in range(at_most):
            while not self._to_show:
                if self._next >= self._items.parts:
                    self._next = 0
                    return passed
                self._to_show = self._items.lines(self._next)
                self._next += 1
            line = self._to_show.pop()
            item = self._items.get(line)
            if item is not None:
                look(line, item)
        return at_most

    def lines(self) -> list[bytes]:
        """Return the lines of all items, in the order in which they came."""
        return list(dict.keys(self._order))

    def move(self, at_most: int, renew: Callable[[bytes, Item], bytes]) -> int:
        """Make the order anew where it has outgrown its items; it cannot take in other lines."""
        if sys.getsizeof(self._order) > _SPARSE * len(self._order):
            self._order = OrderedDict(self._order)
        return 0

    def dissolve(self) -> None:
        """Free a place."""
        if self._order:
            self._order.popitem()
