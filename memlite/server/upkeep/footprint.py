"""Keeps the memory of the whole process in line with the limit for items (``-m``)."""

import os
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from memlite.memory import ItemTable
from memlite.server.upkeep.allocator import give_back
from memlite.server.upkeep.collector import collect_young, drop_free_lists

__all__ = ["PER_CONNECTION", "PER_TLS_CONNECTION", "Compactor", "Footprint", "resident"]

# How far the process may exceed its limit before items are evicted for it: this fraction (one in so
# many) of the limit, and at least the bytes that a small server needs for modules loaded later.
_SPARE_SHARE: Final = 12
_LEAST_SPARE: Final = 4 * 1024 * 1024
PER_CONNECTION: Final = 4 * 1024
"""Bytes to allow for a connection; an idle one takes 2 KiB."""
PER_TLS_CONNECTION: Final = 64 * 1024
"""The same with TLS, where a connection takes 20 to 48 KiB."""

# The excess over the limit (limit >> shift) at which memory is trimmed and items are compacted.
_HELP_SHIFT: Final = 5

# Each byte of excess takes eight bytes from items while it lasts: half of the limit is withheld
# when the process has grown to 1.13 times its limit.
_GAIN: Final = 8
# The most bytes by which the withheld amount grows per measurement, so that a short peak evicts
# little.
_AT_ONCE: Final = 1024 * 1024

# Trimming the heap may take this share of the time.
_TRIM_SHARE: Final = 1 / 200
# Fractions of the limit (limit >> shift): the unused memory that triggers compaction, and the
# memory a pass must free to count as useful.
_WASTE_SHIFT: Final = 3
_USEFUL_SHIFT: Final = 6
# The pause in seconds between two passes of compaction: the minimum, the pause per item (a pass
# takes some 5 us per item), and the factor it may grow to after passes that freed little.
_LEAST_PAUSE: Final = 0.3
_PAUSE_PER_ITEM: Final = 1e-4
_MAX_PAUSES: Final = 16

_STATM: Final = "/proc/self/statm"


class _Resident:
    """Reads the resident memory of the process."""

    def __init__(self) -> None:
        # Kept open, because the process may run out of file descriptors.
        self._file = os.open(_STATM, os.O_RDONLY)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def __call__(self) -> int:
        return int(os.pread(self._file, 100, 0).split()[1]) * self._page


def resident() -> Callable[[], int] | None:
    """Return a function that reads the process's resident memory in bytes, None if unsupported."""
    try:
        return _Resident()
    except OSError:
        return None


class Compactor(Protocol):
    """An engine that can compact its items by copying small objects next to each other.

    Attributes:
        compacting: whether a pass of compaction is in progress.
    """

    @property
    def compacting(self) -> bool: ...  # noqa: D102 - see the class

    def compact(self) -> None:
        """Start a pass of compaction."""


class Footprint:
    """Keeps the process from outgrowing ``-m``, regardless of the sizes of its items.

    The table accounts for its objects, but not for fragmentation. That is low while the mix of
    sizes is stable. When a cache of small values turns into one of large values, or vice versa, the
    unused memory may amount to as much as the objects: Python's arenas and the heap retain space
    for sizes that are no longer in use. So the heap is trimmed and small objects are compacted
    (`ItemTable.compact`). Until that takes effect, items are evicted to make room.

    Args:
        table: holds the items.
        engine: works on the table.
        resident: returns the process's memory in bytes; see `resident`.
        elsewhere: returns the bytes taken by connections and by values that are arriving.
        before_pass: called before each pass of compaction to move other long-lived objects: a
            single small object can pin a mebibyte.
        sweep_soon: schedules the sweeper, to run after the caller has returned, since the caller
            may hold a reference to an item.
        now: returns the time in seconds.

    Attributes:
        withheld: bytes of the limit that are currently withheld from items.
    """

    def __init__(
        self,
        table: ItemTable,
        engine: Compactor,
        *,
        resident: Callable[[], int],
        elsewhere: Callable[[], int],
        before_pass: Callable[[], None],
        sweep_soon: Callable[[], None],
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._table = table
        self._engine = engine
        self._resident = resident
        self._elsewhere = elsewhere
        self._before_pass = before_pass
        self._sweep_soon = sweep_soon
        self._now = now
        self._before = resident()
        self._next_trim = self._next_pass = 0.0
        self._pauses = 1  # the pause before the next pass, in multiples of the shortest
        self._pass_started = False
        self._waste = 0  # unused bytes at the start of the last pass, then at its end
        self.withheld = 0

    def on_measure(self) -> int:
        """Do periodic work after some new items; return the bytes to withhold from items."""
        collect_young()
        if self._table.over:
            self._sweep_soon()
        return self.excess()

    def _grown(self) -> int:
        """Return the growth of the process since the start, without memory used elsewhere."""
        return self._resident() - self._before - self._elsewhere()

    def excess(self) -> int:
        """Trim and compact if necessary; return the bytes to withhold from items."""
        limit = self._table.limit
        spare = max(limit // _SPARE_SHARE, _LEAST_SPARE)
        grown = self._grown()
        if grown > limit + (limit >> _HELP_SHIFT):
            grown = self._trim(grown)
            self._compact_if_useful(grown)
        over = grown - limit - spare
        self.withheld = min(max(0, _GAIN * over), limit // 2, self.withheld + _AT_ONCE)
        return self.withheld

    def _trim(self, grown: int) -> int:
        """Return free memory to the system, unless done recently; return the remaining growth."""
        begin = self._now()
        if begin < self._next_trim:
            return grown
        before = self._resident()
        give_back()
        self._next_trim = begin + (self._now() - begin) / _TRIM_SHARE
        return grown - before + self._resident()

    def _compact_if_useful(self, grown: int) -> None:
        """Start a pass of compaction if it is likely to free memory.

        After a pass that freed little, the pause doubles until there is more to free.
        """
        table, now = self._table, self._now()
        waste = grown - table.used - table.overhead
        if self._engine.compacting:
            return
        pause = max(_LEAST_PAUSE, _PAUSE_PER_ITEM * len(table))
        if self._pass_started:
            self._pass_started = False
            useful = waste < self._waste - (table.limit >> _USEFUL_SHIFT)
            self._pauses = 1 if useful else min(2 * self._pauses, _MAX_PAUSES)
            self._next_pass = now + self._pauses * pause
            self._waste = waste
        elif waste > self._waste + (table.limit >> _HELP_SHIFT):
            self._pauses = 1
            self._next_pass = min(self._next_pass, now + pause)
        if waste > table.limit >> _WASTE_SHIFT and now >= self._next_pass:
            self._waste = waste
            self._pass_started = True
            self._before_pass()
            drop_free_lists()
            self._engine.compact()
            self._sweep_soon()
