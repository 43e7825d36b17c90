"""One command's items, read before and written after it: the table of an engine over a backend."""

from collections.abc import Callable, Iterable, Mapping

from memlite.backends import FullItem, Item, Marks
from memlite.backends.item import MAIN

__all__ = ["Transaction"]


class Transaction:
    """Lets the engine carry out one command, and remembers what it wants changed.

    Items that were read are never changed in place: a backend may hold on to them.

    Attributes:
        get: returns a key's item or None, of those read; `find` is the same.
        changes: what is to be stored by key; None for what is to be deleted.
        flush_at: when to flush, as `Backend.flush` takes it; None for not at all.
    """

    __slots__ = ("_items", "changes", "find", "flush_at", "get")

    def __init__(self) -> None:
        self.begin({})

    def begin(self, items: Mapping[bytes, Item]) -> None:
        """Start the next command, for which `items` were read."""
        self._items = dict(items)
        self.get: Callable[[bytes], Item | None] = self._items.get
        self.find: Callable[[bytes], Item | None] = self.get
        self.changes: dict[bytes, FullItem | None] = {}
        self.flush_at: float | None = None

    def find_all(self, keys: list[bytes]) -> Iterable[Item | None]:
        """Yield the item or None of each key, of those read."""
        return map(self.find, keys)

    def put(self, key: bytes, item: Item) -> None:
        """Store under a key that is absent."""
        if not isinstance(item, FullItem):
            item = FullItem(item.wire, item.state)  # as backends take them
        self._items[key] = self.changes[key] = item

    def renew(
        self, key: bytes, item: Item, wire: bytes, expires: float, state: int, marks: Marks | None
    ) -> Item:
        """Replace an item by one with a new value, and return that."""
        new = FullItem(wire, state & ~MAIN, expires)  # where it is put is the backend's business
        if marks is not None:
            new.marks = marks
        self._items[key] = self.changes[key] = new
        return new

    def alter(
        self,
        key: bytes,
        item: Item,
        expires: float,
        marks: Marks | None,
        *,
        renumber: bool = False,
    ) -> Item:
        """Replace an item by one with the same value and no version yet, and return that."""
        new = self.changes.get(key)
        if new is not item or new is None:  # or once more in one command: one is to be stored
            new = FullItem.like(item)
            self._items[key] = self.changes[key] = new
        new.expires = expires
        new.marks = marks
        return new

    def delete(self, key: bytes) -> Item | None:
        """Remove a key; return its item, or None when none was read."""
        self.changes[key] = None
        return self._items.pop(key, None)

    def drop(self, key: bytes) -> Item | None:
        """Forget an expired item; the backend gets rid of it in its own time."""
        return self._items.pop(key, None)

    def pop_flushed(self, key: bytes) -> Item | None:
        """Return None: a backend does not say what it has flushed."""
        return None

    def flush(self, at: float) -> None:
        """Make everything absent, now (0) or at a unix time."""
        self.flush_at = at
