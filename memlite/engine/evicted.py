"""Reports of a shared table on the items that it evicts, while they are watched."""

from collections.abc import Iterator

from memlite.memory import FullItem, Item
from memlite.memory.item import EPOCH, STATE_BITS
from memlite.memory.shared import Mapping
from memlite.memory.shared.layout import EVICTED

__all__ = ["Evicted"]


class _EvictedItem(FullItem):
    """An item without its value.

    Args:
        head: its reply, up to the value.
        size: bytes of the value.
        state: see `Item`.
        expires: see `Item`.
    """

    __slots__ = ("_size",)

    def __init__(self, head: bytes, size: int, state: int, expires: float) -> None:
        super().__init__(head, state, expires)
        self._size = size

    @property
    def size(self) -> int:
        """Bytes of the value."""
        return self._size


class Evicted:
    """Collects evicted items, a whole segment of them at once, until they are taken.

    Args:
        mapping: the table.
    """

    def __init__(self, mapping: Mapping) -> None:
        self._table = mapping.table
        self._shift = mapping.origin - EPOCH << STATE_BITS
        self._known = 0

    def follow(self, wanted: bool) -> None:
        """Start or stop collecting."""
        if wanted != (self._table.evicted is not None):
            self._table.evicted = [] if wanted else None
            self._known = self._table.evictions

    def __len__(self) -> int:
        """Return how many items there are to take."""
        return len(self._table.evicted or ())

    @property
    def missed(self) -> int:
        """How many items were not collected since the last call, as there were too many."""
        count = self._table.evictions - self._known - len(self)
        self._known += count
        return count

    def take(self, at_most: int) -> Iterator[tuple[bytes, Item]]:
        """Yield the keys and items evicted first; the items have no values."""
        told = self._table.evicted or []
        taken = told[:at_most]
        del told[:at_most]
        self._known += len(taken)
        return map(self._item, taken)

    def _item(self, told: bytes) -> tuple[bytes, Item]:
        expires, state, length, key = EVICTED.unpack_from(told)
        reply = told[EVICTED.size + key :]
        begin = reply.index(b"\n") + 1
        size = length - begin - len(b"\r\nEND\r\n")
        key_at = EVICTED.size
        item = _EvictedItem(reply[:begin], size, state + self._shift, expires)
        return told[key_at : key_at + key], item
