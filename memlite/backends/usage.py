"""What using an item makes of its state: a look at a table instead of arithmetic."""

from typing import Final

from memlite.backends.item import (
    FETCHED,
    FREQUENCY,
    FRESH_BITS,
    FULL,
    STATE_BITS,
    since_epoch,
)

__all__ = ["MASK", "Usage"]

MASK: Final = (1 << STATE_BITS) - 1
"""The bits of a state that are looked up."""
_STATES: Final = range(1 << STATE_BITS)


class Usage:
    """The states that items come to by being used now, by the bits of the one they are in.

    For an item of state ``s`` that is read, the next is ``read[s & MASK]``. Made anew once a
    second, in place, so that a hit costs one look into a list and no look at the clock.

    Attributes:
        read: after a read.
        straight: the same, but 0 for those of which there is more to look at, and for all of them
            while somebody watches.
        stored: after being stored anew, but 0 as in `straight`.
        seen: after what counts as use without being a read (add of a key that is there).
        fresh: of an item that is stored now.
    """

    __slots__ = ("_second", "_watched", "fresh", "read", "seen", "stored", "straight")

    def __init__(self, second: int = 0) -> None:
        self.read = [0 for _ in _STATES]
        self.straight = [0 for _ in _STATES]
        self.seen = [0 for _ in _STATES]
        self.stored = [0 for _ in _STATES]
        self._watched = False
        self.tick(second)

    def tick(self, second: int) -> None:
        """Take `second`, in unix time, for the time of use from now on."""
        self._second = second
        self.fresh = fresh = since_epoch(second)
        for bits in _STATES:
            more = bits if bits & FREQUENCY == FREQUENCY else bits + 1
            self.seen[bits] = fresh | more
            self.read[bits] = fresh | more | FETCHED
        self._set_straight()

    def watch(self, watched: bool) -> None:
        """Let there be more to look at of all items, or no longer."""
        self._watched = watched
        self._set_straight()

    def _set_straight(self) -> None:
        for bits in _STATES:
            more = self._watched or bits & FULL
            self.straight[bits] = 0 if more else self.read[bits]
            self.stored[bits] = 0 if more else self.seen[bits & FRESH_BITS]
