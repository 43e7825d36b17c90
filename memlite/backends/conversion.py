"""Records as items in memory, and back: the only place that converts between the two."""

from typing import TypeVar

from memlite.backends.record import Record
from memlite.memory.item import FullItem, Item

__all__ = ["item_of", "record_of"]

_Kind = TypeVar("_Kind", bound=FullItem)


def item_of(record: Record, kind: type[_Kind]) -> _Kind:
    """Return an item with the content of a record.

    Args:
        record: the content.
        kind: the class of the item: `FullItem`, or a subclass with attributes of its own.
    """
    key, value, flags, expires, version, accessed, fetched, meta_flags, _ = record
    return kind.of(key, value, flags, expires, version, accessed, meta_flags, fetched=fetched)


def record_of(key: bytes, item: Item) -> Record:
    """Return a record with the content of an item; its value is a copy."""
    value, flags, accessed, fetched = item.content()
    expires, version = item.expires, item.version
    return Record(key, value, flags, expires, version, accessed, fetched, item.meta_flags)
