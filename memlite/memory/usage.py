"""How using an item changes its state: a table lookup instead of arithmetic."""

from typing import Final

from memlite.memory.item import (
    FETCHED,
    FREQUENCY,
    FRESH_BITS,
    FULL,
    STATE_BITS,
    since_epoch,
)

__all__ = ["MASK", "Usage"]

MASK: Final = (1 << STATE_BITS) - 1
"""The bits of a state that index the tables."""
_STATES: Final = range(1 << STATE_BITS)


class Usage:
    """The next state of an item used now, by the flags in its present state.

    An item of state ``s`` that is read gets state ``read[s & MASK]``. The tables are updated in
    place once a second, so that a hit costs one list lookup and does not read the clock.

    Attributes:
        read: after a read.
        fast_read: after a read on the fast path; 0 for items that need more checks, and for all
            items while commands are observed.
        fast_store: after an overwrite on the fast path; 0 as in `fast_read`.
        full_store: after an overwrite of an item that remains a `FullItem`; 0 for all others, and
            for all items while commands are observed.
        used: after a use that is not a read, such as add for a key that exists.
        fresh: for an item that is stored now.
    """

    __slots__ = (
        "_second", "_watched", "fast_read", "fast_store", "fresh", "full_store", "read", "used",
    )  # fmt: skip

    def __init__(self, second: int = 0) -> None:
        self.read = [0 for _ in _STATES]
        self.fast_read = [0 for _ in _STATES]
        self.used = [0 for _ in _STATES]
        self.fast_store = [0 for _ in _STATES]
        self.full_store = [0 for _ in _STATES]
        self._watched = False
        self.tick(second)

    def tick(self, second: int) -> None:
        """Use `second`, in unix time, as the time of use from now on."""
        self._second = second
        self.fresh = fresh = since_epoch(second)
        for bits in _STATES:
            more = bits if bits & FREQUENCY == FREQUENCY else bits + 1
            self.used[bits] = fresh | more
            self.read[bits] = fresh | more | FETCHED
        self._set_fast()

    def watch(self, watched: bool) -> None:
        """Take all items off the fast path, or allow those that qualify back on it."""
        self._watched = watched
        self._set_fast()

    def _set_fast(self) -> None:
        for bits in _STATES:
            more = self._watched or bits & FULL
            self.fast_read[bits] = 0 if more else self.read[bits]
            stored = self.used[bits & (FRESH_BITS | FULL)]
            self.fast_store[bits] = 0 if more else stored
            self.full_store[bits] = stored if bits & FULL and not self._watched else 0
