"""One command's items, read before and written after it: the table of an engine over a backend."""

from collections.abc import Callable, Mapping

from memlite.backends import Item

__all__ = ["Transaction"]


class Transaction:
    """Lets the engine carry out one command, and remembers what it wants changed.

    Items that were read are never changed in place: a backend may hold on to them.

    Attributes:
        get: returns a key's item or None, of those read.
        changes: what is to be stored by key; None for what is to be deleted.
        flush_at: when to flush, as `Backend.flush` takes it; None for not at all.
    """

    __slots__ = ("_items", "changes", "flush_at", "get")

    def __init__(self) -> None:
        self.begin({})

    def begin(self, items: Mapping[bytes, Item]) -> None:
        """Start the next command, for which `items` were read."""
        self._items = dict(items)
        self.get: Callable[[bytes], Item | None] = self._items.get
        self.changes: dict[bytes, Item | None] = {}
        self.flush_at: float | None = None

    def put(self, key: bytes, item: Item) -> None:
        """Store under a key that is absent."""
        self._items[key] = self.changes[key] = item

    def renew(self, key: bytes, item: Item, wire: bytes) -> Item:
        """Replace an item; return the new one, for the rest to be set."""
        new = Item.like(item)
        new.wire = wire
        self._items[key] = self.changes[key] = new
        return new

    def alter(self, key: bytes, item: Item) -> Item:
        """Return what takes an item's place with the same value, for the rest to be set."""
        if self.changes.get(key) is item:  # once more in one command: there is one to be stored
            return item
        new = Item.like(item)
        self._items[key] = self.changes[key] = new
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
