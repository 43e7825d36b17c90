"""What processes that act as one server agree on, if each of them asks the store itself.

The numbers are in shared memory; their owner makes them before it forks. Whoever reads a single
number takes no lock.
"""

import mmap
from typing import Final

from memlite.backends.record import Record
from memlite.core.locks import Locks

__all__ = ["Agreement", "SharedEpoch"]

_GENERATION: Final = 0
_FIRST: Final = 2  # after the generation, which takes as much room as a key


class Agreement:
    """Tells near caches of one server which of their copies may be shown.

    Each key has a mark that only grows; keys may share one. A copy has the mark under which it was
    kept, and may be shown while that is the key's mark. A state that has been read, stored or
    removed is made known with `agree` before anybody is told of it. If copies may be of another
    state, that changes the mark, so there are none any more. A state that was read before the last
    change of the mark may be an old one, and no copy of it may be kept, unless it is the one that
    the copies are of.

    Args:
        size: bytes of memory it may take.

    Attributes:
        size: bytes of memory it takes.
    """

    def __init__(self, size: int) -> None:
        self._mask = (1 << max(size // 16, 1).bit_length() - 1) - 1
        self.size = 16 * (self._mask + 1)
        # Mark and state of each; a state is a hash of what identifies it, 0 for none.
        self._cells = memoryview(mmap.mmap(-1, self.size + 8 * _FIRST)).cast("q")
        self._flush_at = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self._locks = Locks()

    @property
    def generation(self) -> int:
        """How often all copies were forgotten."""
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
        """Make known that a key is in a state.

        Args:
            key: the key.
            found: the state; None if there is no record, or if it is unknown which.
            mark: that of the key, before the request began by which this was found out.

        Returns:
            The mark under which a copy may be kept; None if none may.
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
            cells[place + 1] = 0  # in case this process is killed before the next line but one
            cells[place] += 1
            if not (state and current):
                return None
            cells[place + 1] = state
            return cells[place] + generation

    def forget_all(self) -> None:
        """Have no copy shown that exists now."""
        with self._locks.hold(_GENERATION):
            self._cells[_GENERATION] += 1

    def flush(self, at: float) -> None:
        """Have all copies forgotten at a unix time, in place of another; 0 for never."""
        self._flush_at[0] = at

    def is_due(self, now: float) -> bool:
        """Return whether it is time to forget all copies."""
        return 0 < self._flush_at[0] <= now

    def forget_if_due(self, now: float) -> None:
        """Forget all copies if it is time."""
        if self.is_due(now):
            self.forget_all()
            self._flush_at[0] = 0.0


class SharedEpoch:
    """The epoch that a server has shown, and a later one that is to come; see `Epoch`."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._numbers = memoryview(memory)[:16].cast("q")  # the epoch, and the later one
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
        """Take notice that it is at least `number`."""
        if number > self._numbers[0]:
            with self._locks.hold(0):
                self._numbers[0] = max(number, self._numbers[0])

    def expect(self, at: float, then: int) -> None:
        """Take notice that it will be at least `then` at a unix time."""
        with self._locks.hold(0):
            if then > self._numbers[1]:
                self._at[0] = 0.0  # nobody must see one with the other's
                self._numbers[1] = then
                self._at[0] = at
