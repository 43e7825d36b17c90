"""State shared by processes that act as one server, if each of them accesses the store itself.

The numbers are in shared memory, which its owner creates before it forks. Reading a single number
takes no lock.
"""

import mmap
from typing import Final

from memlite.backends.record import Record
from memlite.core.locks import Locks

__all__ = ["Agreement", "SharedEpoch"]

_GENERATION: Final = 0
_FIRST: Final = 2  # after the generation, which takes as much room as a key


class Agreement:
    """Tells the near caches of one server which of their copies may be served.

    Each key has a mark that only grows; keys may share one. A copy carries the mark under which it
    was kept, and may be served while that is still the key's mark. A state that has been read,
    stored or removed is announced with `agree` before any client sees it. If existing copies may be
    of another state, this changes the mark and so invalidates them. A state that was read before
    the last change of the mark may be outdated. No copy of it may be kept, unless the existing
    copies are of the same state.

    Args:
        size: bytes of memory that it may take.

    Attributes:
        size: bytes of memory it takes.
    """

    def __init__(self, size: int) -> None:
        self._mask = (1 << max(size // 16, 1).bit_length() - 1) - 1
        self.size = 16 * (self._mask + 1)
        # The mark and state of each key; a state is a hash of its identity, 0 for none.
        self._cells = memoryview(mmap.mmap(-1, self.size + 8 * _FIRST)).cast("q")
        self._flush_at = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self._locks = Locks()

    @property
    def generation(self) -> int:
        """How often all copies were invalidated."""
        return self._cells[_GENERATION]

    def mark(self, key: bytes) -> int:
        """Return the mark of a key."""
        return self.mark_at(self.place(key))

    def place(self, key: bytes) -> int:
        """Return where the mark of a key is, for `mark_at`."""
        return _FIRST + 2 * (hash(key) & self._mask)

    def mark_at(self, place: int) -> int:
        """Return the mark at a place."""
        cells = self._cells
        return cells[place] + cells[_GENERATION]

    def agree(self, key: bytes, found: Record | None, mark: int) -> int | None:
        """Announce that a key is in a state.

        Args:
            key: the key.
            found: the state; None if there is no record, or if the state is unknown.
            mark: the key's mark before the request that found the state.

        Returns:
            The mark under which a copy may be kept; None if no copy may be kept.
        """
        cells, place = self._cells, self.place(key)
        with self._locks.hold(place):
            generation = cells[_GENERATION]
            state = 0
            if found is not None:
                state = hash((key, found.version, found.expires, generation)) or 1
                if cells[place + 1] == state:
                    return cells[place] + generation
            current = cells[place] + generation == mark
            cells[place + 1] = 0  # in case this process is killed before it sets the state
            cells[place] += 1
            if not (state and current):
                return None
            cells[place + 1] = state
            return cells[place] + generation

    def forget_all(self) -> None:
        """Invalidate all existing copies."""
        with self._locks.hold(_GENERATION):
            self._cells[_GENERATION] += 1

    def flush(self, at: float) -> None:
        """Set the unix time at which to invalidate all copies, replacing another; 0 for never."""
        self._flush_at[0] = at

    def is_due(self, now: float) -> bool:
        """Return whether the scheduled invalidation is due."""
        return 0 < self._flush_at[0] <= now

    def forget_if_due(self, now: float) -> None:
        """Invalidate all copies if that is due."""
        if self.is_due(now):
            self.forget_all()
            self._flush_at[0] = 0.0


class SharedEpoch:
    """The epoch that a server has shown, and a scheduled later one; see `Epoch`."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._numbers = memoryview(memory)[:16].cast("q")  # the epoch, and the scheduled one
        self._at = memoryview(memory)[16:24].cast("d")
        self._locks = Locks()

    def number(self, now: float) -> int:
        """Return the epoch at a unix time."""
        at = self._at[0]
        number, then = self._numbers
        if 0 < at <= now and self._at[0] == at:
            return max(number, then)
        return number

    def learn(self, number: int) -> None:
        """Note that the epoch is at least `number`."""
        if number > self._numbers[0]:
            with self._locks.hold(0):
                self._numbers[0] = max(number, self._numbers[0])

    def expect(self, at: float, then: int) -> None:
        """Note that the epoch will be at least `then` at a unix time."""
        with self._locks.hold(0):
            if then > self._numbers[1]:
                self._at[0] = 0.0  # no process may pair the old time with the new number
                self._numbers[1] = then
                self._at[0] = at
