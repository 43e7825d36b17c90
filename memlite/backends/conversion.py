"""Records as items in memory, and back: the only place that converts between the two."""

from typing import TypeVar

from memlite.backends.record import Record
from memlite.core.meta_flags import MetaFlags
from memlite.memory.item import EPOCH, FETCHED, STATE_BITS, FullItem, Item, wire_form

__all__ = ["item_of", "record_of"]

_Kind = TypeVar("_Kind", bound=FullItem)


def item_of(record: Record, kind: type[_Kind]) -> _Kind:
    """Return an item with the content of a record.

    Args:
        record: the content.
        kind: the class of the item: `FullItem`, or a subclass with attributes of its own.
    """
    key, value, flags, expires, version, accessed, fetched, meta_flags, _ = record
    if b" " in key or b"\n" in key:  # as in `nameable`
        key = b""
        meta_flags = meta_flags or MetaFlags(binary=True)
    state = (accessed - EPOCH) << STATE_BITS
    item = kind(wire_form(key, flags, value), state | FETCHED if fetched else state, expires)
    item.extra = version if meta_flags is None else (version, meta_flags)
    return item


def record_of(key: bytes, item: Item) -> Record:
    """Return a record with the content of an item; its value is a copy."""
    value, flags, accessed, fetched = item.content()
    expires, version = item.expires, item.version
    return Record(key, value, flags, expires, version, accessed, fetched, item.meta_flags)
