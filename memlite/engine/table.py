"""What the engine works on."""

from collections.abc import Iterable
from typing import Protocol

from memlite.backends import Item, Marks

__all__ = ["Table"]


class Table(Protocol):
    """Items by key, at hand without waiting.

    Served from memory it is all of them (`memlite.backends.ItemTable`); before a backend that
    must be asked, those of one command (`memlite.engine.transaction.Transaction`).
    """

    def get(self, key: bytes) -> Item | None:
        """Return a key's item or None; whether it has expired is the engine's to judge."""

    def find(self, key: bytes) -> Item | None:
        """Return the same of an item that is about to be used."""

    def find_all(self, keys: list[bytes]) -> Iterable[Item | None]:
        """Yield the same of each key, one after the other."""

    def put(self, key: bytes, item: Item) -> None:
        """Store under a key that is absent. Raises OutOfMemoryError."""

    def renew(
        self, key: bytes, item: Item, wire: bytes, expires: float, state: int, marks: Marks | None
    ) -> Item:
        """Give a stored item a new value and no version; return what is stored now."""

    def alter(
        self,
        key: bytes,
        item: Item,
        expires: float,
        marks: Marks | None,
        *,
        renumber: bool = False,
    ) -> Item:
        """Give a stored item all but a new value; return what is stored now."""

    def delete(self, key: bytes) -> Item | None:
        """Remove a key; return its item, or None when there was none."""

    def drop(self, key: bytes) -> Item | None:
        """Forget an expired item."""

    def pop_flushed(self, key: bytes) -> Item | None:
        """Return and free what the last flush took from a key, or None."""
