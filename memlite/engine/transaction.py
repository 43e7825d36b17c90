"""One command's items, read before it and written after it: the table of an engine on a backend."""

from collections.abc import Callable, Iterable, Mapping

from memlite.backends.conversion import item_of
from memlite.backends.record import Record
from memlite.core.meta_flags import MetaFlags
from memlite.memory import FullItem, Item
from memlite.memory.item import MAIN
from memlite.memory.table import ItemTable

__all__ = ["Transaction"]


class Transaction:
    """Lets the engine carry out one command on items read for it, and collects its changes.

    Items that were read are never changed in place, except for their state: a backend may refer
    to them.

    Args:
        table: the table in which the backend keeps items, None if it keeps none.

    Attributes:
        get: returns the item of a key, or None, from those that were read; `find` is the same.
        changes: the item to store for each key; None for a key to delete.
        flush_at: when to flush, as for `Backend.flush`; None for no flush.
    """

    __slots__ = ("_items", "_table", "changes", "find", "flush_at", "get")

    def __init__(self, table: ItemTable | None = None) -> None:
        self._table = table
        self.begin({})

    def begin(self, read: Mapping[bytes, Item | Record]) -> None:
        """Start the next command with the items read for it, by key."""
        self._items: dict[bytes, Item] = {}
        for key, found in read.items():
            self._items[key] = item_of(found, FullItem) if isinstance(found, Record) else found
        self.get: Callable[[bytes], Item | None] = self._items.get
        self.find: Callable[[bytes], Item | None] = self.get
        self.changes: dict[bytes, FullItem | None] = {}
        self.flush_at: float | None = None

    def find_all(self, keys: list[bytes]) -> Iterable[Item | None]:
        """Yield the item of each key, or None."""
        return map(self.find, keys)

    def put(self, key: bytes, item: Item) -> None:
        """Store an item under a key that is absent."""
        if not isinstance(item, FullItem):
            item = FullItem(item.wire, item.state)  # which has room for a version
        self._items[key] = self.changes[key] = item

    def overwrite(
        self,
        key: bytes,
        item: Item,
        wire: bytes,
        expires: float,
        state: int,
        meta_flags: MetaFlags | None,
    ) -> Item:
        """Replace an item by one with a new value; return the new one."""
        new = FullItem(wire, state & ~MAIN, expires)  # its place in a queue is up to the backend
        if meta_flags is not None:
            new.meta_flags = meta_flags
        self._items[key] = self.changes[key] = new
        return new

    def update_metadata(
        self,
        key: bytes,
        item: Item,
        expires: float,
        meta_flags: MetaFlags | None,
        *,
        drop_version: bool = False,
    ) -> Item:
        """Replace an item by one with the same value and no version yet; return the new one."""
        new = self.changes.get(key)
        if new is not item or new is None:  # a second change in one command applies to the first
            new = FullItem.like(item)
            self._items[key] = self.changes[key] = new
        new.expires = expires
        new.meta_flags = meta_flags
        return new

    def delete(self, key: bytes) -> Item | None:
        """Remove a key; return its item, or None if none was read."""
        self.changes[key] = None
        return self._items.pop(key, None)

    def drop(self, key: bytes) -> Item | None:
        """Forget an expired item; the backend removes it when it sees fit."""
        return self._items.pop(key, None)

    def pop_flushed(self, key: bytes) -> Item | None:
        """Return and free the item that the last flush removed, if the backend had it in memory."""
        return None if self._table is None else self._table.pop_flushed(key)

    def flush(self, at: float) -> None:
        """Make all items absent, now (0) or at a unix time."""
        self.flush_at = at
