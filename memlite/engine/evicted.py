"""What a shared table tells of the items that it evicts, while somebody watches."""

from collections.abc import Iterator

from memlite.memory import FullItem, Item
from memlite.memory.item import EPOCH, STATE_BITS
from memlite.memory.shared import Mapping
from memlite.memory.shared.layout import EVICTED

__all__ = ["Evicted"]


class _EvictedItem(FullItem):
    """An item without its value.

    Args:
        head: its reply, as far as the value.
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
    """Collects evicted items, a whole segment of them at once, for whoever takes them in time.

    Args:
        mapping: the table.
    """

    def __init__(self, mapping: Mapping) -> None:
        self._table = mapping.table
        self._shift = mapping.origin - EPOCH << STATE_BITS
        self._known = 0

    def follow(self, wanted: bool) -> None:
        """Begin to collect, or end it."""
        if wanted != (self._table.evicted is not None):
            self._table.evicted = [] if wanted else None
            self._known = self._table.evictions

    def __len__(self) -> int:
        """Return how many there are to take."""
        return len(self._table.evicted or ())

    @property
    def missed(self) -> int:
        """How many were too many to be collected, since the last call."""
        count = self._table.evictions - self._known - len(self)
        self._known += count
        return count

    def take(self, at_most: int) -> Iterator[tuple[bytes, Item]]:
        """Yield the key and the item of those evicted first; the items have no values."""
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
