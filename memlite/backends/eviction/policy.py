"""What a policy is: it tells which item makes room next."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final

from memlite.backends.index import Index
from memlite.backends.item import FULL, PYTHONS_OWN, Item, allocated, line_of

__all__ = ["PLACE", "Policy", "cost", "weigh"]

PLACE = 8
"""Bytes of a key's place in a queue."""
_PLAIN: Final = Item.memory + PLACE


def cost(key: bytes, item: Item) -> int:
    """Return the bytes of memory that go when the item does: key, value, objects, place."""
    return weigh(line_of(key), item)


def weigh(line: bytes, item: Item) -> int:
    """Return the same for an item that is found under `line`."""
    if item.state & FULL:
        return allocated(len(line)) + item.held + PLACE
    # The same in one, as each item that goes is asked this.
    size = (len(item.wire) + 48) & -16
    if size > PYTHONS_OWN:
        size += (size >> 5) * 3
    return ((len(line) + 48) & -16) + size + _PLAIN


class Policy(ABC):
    """Chooses the items that make room; it knows them by their lines, see `line_of`.

    It is told what becomes of items, except for hits: those leave their trace in `Item.state`, or
    pass by `find`.

    Args:
        items: the table's; it adds them after `admit`, and removes them after `evict` and before
            `remove`.

    Attributes:
        find: looks up an item that is about to be used; that it was not found is None.
    """

    def __init__(self, items: Index) -> None:
        self._items = items
        self.find: Callable[[bytes], Item | None] = items.get

    def follow(self) -> None:
        """Take note that the index has another `get`."""
        self.find = self._items.get

    def find_all(self, lines: list[bytes]) -> Iterable[Item | None]:
        """Look up items that are about to be used."""
        return map(self.find, lines)

    @abstractmethod
    def __len__(self) -> int:
        """Return how many places there are, also those that items have left."""

    @abstractmethod
    def admit(self, line: bytes, item: Item, size: int) -> None:
        """Take in an item of `size` bytes, stored under a key that is absent."""

    @abstractmethod
    def resize(self, item: Item, more: int) -> None:
        """Note that an item takes `more` bytes than before."""

    @abstractmethod
    def remove(self, line: bytes, item: Item, size: int) -> None:
        """Forget an item that is gone."""

    @abstractmethod
    def evict(self, size: int, at_most: int) -> list[tuple[bytes, Item, int]]:
        """Choose items that make room, and forget them.

        Args:
            size: bytes that they are to cost together; one more when it does not come out even.
            at_most: items, 1 or more.

        Returns:
            The line of each, the item, and what it costs; fewer when there are no more.
        """

    @abstractmethod
    def walk(self, at_most: int, look: Callable[[bytes, Item], None]) -> int:
        """Show items, all of them in the course of many calls.

        Args:
            at_most: items to show.
            look: is given a key and its item, which it may remove from the table.

        Returns:
            How many places were passed; fewer than `at_most` when all items have been shown, and
            the next call begins again.
        """

    @abstractmethod
    def lines(self) -> list[bytes]:
        """Return the lines of all items and of places left, about in the order they came in."""

    def move(self, at_most: int, renew: Callable[[bytes, Item], bytes]) -> int:
        """Have items made anew, all of them in the course of many calls.

        Args:
            at_most: items to pass.
            renew: is given a line and its item, puts another like it in its place, and returns
                the line that it is found under now, another object of the same bytes.

        Returns:
            As `walk` does. A policy whose order cannot take in other lines passes nothing.
        """
        return 0

    def recall(self, line: bytes, item: Item) -> None:  # noqa: B027 - it may have no memory
        """Look whether a key was here lately; before room is made for its item, and `admit`."""

    def adapt(self, limit: int) -> int:
        """Take in that items may take `limit` bytes; return what the policy itself takes."""
        return 0

    @abstractmethod
    def dissolve(self) -> None:
        """Free a place or two, after all items have gone at once."""
