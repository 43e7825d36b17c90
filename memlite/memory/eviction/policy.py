"""The interface of eviction policies, and the cost of items."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final

from memlite.memory.index import Index
from memlite.memory.item import (
    FULL,
    META_FLAGS_SIZE,
    NUMBER_SIZE,
    SMALL_OBJECT,
    FullItem,
    Item,
    line_of,
)

__all__ = ["PLACE", "Policy", "cost", "weigh"]

PLACE = 8
"""Bytes that an item's place in a queue takes."""
_PLAIN: Final = Item.object_size + PLACE


def cost(key: bytes, item: Item) -> int:
    """Return the bytes of memory that an item takes: key, value, objects, place in a queue."""
    return weigh(line_of(key), item)


def weigh(line: bytes, item: Item) -> int:
    """Return the cost of an item that is indexed by `line`."""
    # `allocated` of both, inlined, as this is computed for every store and eviction.
    size = (len(item.wire) + 48) & -16
    if size > SMALL_OBJECT:
        size += (size >> 5) * 3
    size += (len(line) + 48) & -16
    if not item.state & FULL:
        return size + _PLAIN
    assert isinstance(item, FullItem)  # noqa: S101 - its state says so; a check takes longer
    size += item.object_size + PLACE
    if item.expires:
        size += NUMBER_SIZE
    if item.extra:
        size += NUMBER_SIZE if isinstance(item.extra, int) else NUMBER_SIZE + META_FLAGS_SIZE
    return size


class Policy(ABC):
    """Chooses the items to evict; it identifies them by their lines, see `line_of`.

    The table reports what happens to items, except for hits, which are recorded in `Item.state` or
    go through `find`.

    Args:
        items: the index of the table, which adds items after `admit`, and removes them after
            `evict` and before `remove`.

    Attributes:
        find: returns the item of a line, which is about to be used, or None.
    """

    __slots__ = ("_items", "find")

    def __init__(self, items: Index) -> None:
        self._items = items
        self.find: Callable[[bytes], Item | None] = items.get

    def follow(self) -> None:
        """Adapt to a new `get` of the index."""
        self.find = self._items.get

    def find_all(self, lines: list[bytes]) -> Iterable[Item | None]:
        """Return the result of `find` for each line."""
        return map(self.find, lines)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of places, including those of removed items."""

    @abstractmethod
    def admit(self, line: bytes, item: Item, size: int) -> None:
        """Add an item of `size` bytes whose key was absent."""

    @abstractmethod
    def resize(self, item: Item, more: int) -> None:
        """Account for an item that takes `more` bytes than before."""

    @abstractmethod
    def remove(self, line: bytes, item: Item, size: int) -> None:
        """Forget an item that was removed."""

    @abstractmethod
    def evict(self, size: int, at_most: int) -> list[tuple[bytes, Item, int]]:
        """Choose items to evict, and forget them.

        Args:
            size: bytes that they must cost together, at least.
            at_most: number of items, 1 or more.

        Returns:
            Line, item and cost of each; less than `size` only if there are no more items.
        """

    @abstractmethod
    def walk(self, at_most: int, look: Callable[[bytes, Item], None]) -> int:
        """Visit some items, and all of them over many calls.

        Args:
            at_most: number of places to pass.
            look: called with each line and its item, which it may remove from the table.

        Returns:
            How many places were passed; fewer than `at_most` once all items have been visited,
            after which the next call starts over.
        """

    @abstractmethod
    def lines(self) -> list[bytes]:
        """Return the lines of all items, and of removed ones with a place, roughly oldest first."""

    def move(self, at_most: int, copy: Callable[[bytes, Item], bytes]) -> int:
        """Replace some items by copies, and all of them over many calls.

        Args:
            at_most: number of places to pass.
            copy: called with a line and its item; replaces the item in the table by a copy, and
                returns a copy of the line.

        Returns:
            See `walk`. A policy that cannot replace the lines in its order passes nothing.
        """
        return 0

    def recall(self, line: bytes, item: Item) -> None:  # noqa: B027 - it may have no memory
        """Record whether a key was evicted recently; called before making room and `admit`."""

    def adapt(self, limit: int) -> int:
        """Adapt to a limit of `limit` bytes for items; return the bytes that the policy takes."""
        return 0

    @abstractmethod
    def dissolve(self) -> None:
        """Free a place or two; called after all items were removed at once."""
