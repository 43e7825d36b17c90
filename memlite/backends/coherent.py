"""A near cache that is coherent with those of other processes."""

from memlite.backends.agreement import Agreement
from memlite.backends.base import Backend, Unknown
from memlite.backends.conversion import item_of
from memlite.backends.nearcache import Copy, NearCache
from memlite.backends.record import Record
from memlite.core.clock import Clock
from memlite.memory.item import Item, key_of

__all__ = ["CoherentNearCache"]


class _MarkedCopy(Copy):
    """A copy of a record that was read or written.

    Attributes:
        mark: the key's mark under which it was kept; see `Agreement`.
        place: where that mark is.
    """

    __slots__ = ("mark", "place")

    object_size = 96 + 3 * 32  # including `until`, `mark` and `place`

    mark: int
    place: int


class CoherentNearCache(NearCache):
    """Like `NearCache`, with its guarantees extended to all near caches that share an agreement.

    Changes made through any of them are visible at once through all, and once a read has shown a
    state, no later read through any of them shows an older one. Each has copies of its own, and
    announces a state before it shows, stores or removes it.

    Args:
        inner: the slow backend, which keeps nothing in memory and makes a request for each read.
        size: bytes of memory for the copies.
        ttl: seconds for which a copy may be served.
        clock: determines the age of copies; shared by all of them.
        agreement: the state that they share.
    """

    def __init__(
        self, inner: Backend, size: int, *, ttl: float, clock: Clock, agreement: Agreement
    ) -> None:
        super().__init__(inner, size, ttl=ttl, clock=clock)
        self._agreement = agreement
        self._mark_at = agreement.mark_at
        self._generation = agreement.generation

    def peek_cached_item(self, line: bytes) -> Item | Record | Unknown | None:
        """Return the copy if it is recent enough, and still the last state shown."""
        copy = self.table.get_by_line(line)
        if isinstance(copy, _MarkedCopy):
            now = self._clock.now()
            current = copy.mark == self._mark_at(copy.place)
            if current and copy.until > now and not self._agreement.is_due(now):
                self._hits += 1
                return copy
            self.table.delete(key_of(line))
        self._forget_if_others_have()
        return super().peek_cached_item(line)

    def tick(self) -> None:
        """Free copies that may no longer be served; see also `NearCache`."""
        self._forget_if_others_have()
        super().tick()

    def _forget_if_others_have(self) -> None:
        agreement = self._agreement
        agreement.forget_if_due(self._clock.now())
        if agreement.generation != self._generation:
            self._generation = agreement.generation
            self._forget_all()

    def _mark(self, key: bytes) -> int:
        return self._agreement.mark(key)

    def _agree(self, key: bytes, found: Record | None, mark: int) -> int | None:
        return self._agreement.agree(key, found, mark)

    def _copy_of(self, record: Record, mark: int) -> Copy:
        copy = item_of(record, _MarkedCopy)
        copy.mark, copy.place = mark, self._agreement.place(record.key)
        return copy

    def _flush_copies(self, at: float) -> None:
        self._agreement.flush(at)

    def _forget_everywhere(self) -> None:
        self._agreement.forget_all()
        self._forget_if_others_have()
