"""What the process takes of memory, held against what its items may take (``-m``)."""

import os
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from memlite.server.allocator import give_back
from memlite.server.collector import drop_free_lists

if TYPE_CHECKING:
    from memlite.engine import MemoryEngine
    from memlite.server.server import Server

__all__ = ["Footprint", "resident"]

# How far the process may grow beyond its limit before items make room: a share of the limit, and
# what small limits need for what is loaded later.
_SPARE_SHARE: Final = 12
_LEAST_SPARE: Final = 4 * 1024 * 1024
# An idle connection takes 2 KiB, one with TLS 20 to 48.
_PER_CONNECTION: Final = 4 * 1024
_PER_TLS_CONNECTION: Final = 64 * 1024

# The share beyond the limit from which memory is given back and items are made anew.
_HELP_SHIFT: Final = 5

# Each byte too much takes eight from items, for as long as it is too much: half of the limit is
# withheld when the process has grown to 1.13 of it.
_GAIN: Final = 8
# More is withheld bit by bit, with each measuring: what passes soon evicts little.
_AT_ONCE: Final = 1024 * 1024

# The heap is given back when this share of the time since has been longer than that took.
_TRIM_SHARE: Final = 1 / 200
# Shares of the limit: unused memory that items are made anew for, and what makes that worth while.
_WASTE_SHIFT: Final = 3
_USEFUL_SHIFT: Final = 6
# Seconds from the end of one pass to the next: at least, for each item, of which a pass takes some
# 5 us, and as many times that after passes that freed little.
_LEAST_PAUSE: Final = 0.3
_PAUSE_PER_ITEM: Final = 1e-4
_LONGEST_PAUSES: Final = 16

_STATM: Final = "/proc/self/statm"


class _Resident:
    """Reads how much memory the process has."""

    def __init__(self) -> None:
        # Held open: there may be no file to spare when it is read.
        self._file = os.open(_STATM, os.O_RDONLY)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def __call__(self) -> int:
        return int(os.pread(self._file, 100, 0).split()[1]) * self._page


def resident() -> Callable[[], int] | None:
    """Return what tells the process's resident memory, in bytes; None where nothing does."""
    try:
        return _Resident()
    except OSError:
        return None


class Footprint:
    """Sees to it that the process does not outgrow ``-m``, whatever sizes items come in.

    The table counts what its objects take, not what lies unused between them. That is little
    while sizes keep to their mix. After a cache of small values has become one of large ones, or
    the other way round, it may be as much as the objects: Python's arenas and the heap keep their
    places for sizes that come no more. So the heap is given back, and what is small is made anew,
    so that it lies together (`ItemTable.compact`); and until that has helped, items make room.

    Args:
        server: whose table it is.
        engine: the one that works on the table.
        resident: tells the process's memory, bytes; see `resident`.
        now: tells the time, seconds.

    Attributes:
        withheld: bytes of the limit that items do not get for now.
    """

    def __init__(
        self,
        server: "Server",
        engine: "MemoryEngine",
        resident: Callable[[], int],
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._server = server
        self._engine = engine
        self._resident = resident
        self._now = now
        self._before = resident()
        self._next_trim = self._next_pass = 0.0
        self._pauses = 1  # as many times the shortest there are before the next pass
        self._passing = False
        self._waste = 0  # when the last pass began, and then when it ended
        self.withheld = 0

    def _grown(self) -> int:
        """Return by how much it has grown, without what connections take."""
        server = self._server
        each = _PER_CONNECTION if server.tls is None else _PER_TLS_CONNECTION
        return self._resident() - self._before - each * len(server.connections) - server.promised

    def excess(self) -> int:
        """Do what helps, and return the bytes that items are not to take; see `withheld`."""
        limit = self._server.table.limit
        spare = max(limit // _SPARE_SHARE, _LEAST_SPARE)
        grown = self._grown()
        if grown > limit + (limit >> _HELP_SHIFT):
            grown = self._give_back(grown)
            self._have_compacted(grown)
        over = grown - limit - spare
        self.withheld = min(max(0, _GAIN * over), limit // 2, self.withheld + _AT_ONCE)
        return self.withheld

    def _give_back(self, grown: int) -> int:
        """Return free memory to the system, unless it was a moment ago; return what is left."""
        begin = self._now()
        if begin < self._next_trim:
            return grown
        before = self._resident()
        give_back()
        self._next_trim = begin + (self._now() - begin) / _TRIM_SHARE
        return grown - before + self._resident()

    def _have_compacted(self, grown: int) -> None:
        """Begin a pass that makes items anew, where that promises to free something.

        After one that freed little the next is twice as far away, until there is more to free.
        """
        server, table, now = self._server, self._server.table, self._now()
        waste = grown - table.used - table.overhead
        if self._engine.compacting:
            return
        pause = max(_LEAST_PAUSE, _PAUSE_PER_ITEM * len(table))
        if self._passing:
            self._passing = False
            useful = waste < self._waste - (table.limit >> _USEFUL_SHIFT)
            self._pauses = 1 if useful else min(2 * self._pauses, _LONGEST_PAUSES)
            self._next_pass = now + self._pauses * pause
            self._waste = waste
        elif waste > self._waste + (table.limit >> _HELP_SHIFT):
            self._pauses = 1
            self._next_pass = min(self._next_pass, now + pause)
        if waste > table.limit >> _WASTE_SHIFT and now >= self._next_pass:
            self._waste = waste
            self._passing = True
            # One small object that is not an item's is enough to hold a mebibyte.
            server.hotkeys.compact()
            drop_free_lists()
            self._engine.compact()
            # Not now: whoever has an item stored may still hold one.
            server.loop.call_soon(server.sweeper.wake)
