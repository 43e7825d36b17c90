"""Periodic and background maintenance of a running server: memory, expiry, the clock."""

from collections.abc import Callable, Sequence
from typing import Protocol

from memlite.core.clock import Clock
from memlite.engine import MemoryEngine
from memlite.memory import ItemTable
from memlite.server.scheduler import Scheduler
from memlite.server.upkeep.footprint import Footprint, resident
from memlite.server.upkeep.sweeper import Sweeper
from memlite.server.upkeep.ticker import Flushing, FlushTimer, Ticker

__all__ = ["Maintained", "Upkeep"]


class Maintained(Flushing, Protocol):
    """An engine whose items are maintained in the background."""

    def sweep(self, at_most: int) -> bool:
        """Free up to `at_most` flushed or expired items; return whether there are more."""


class Upkeep:
    """Starts and stops the sweeper, the ticker and the monitoring of the process's memory.

    Args:
        engine: carries out commands.
        table: the items in memory.
        clock: the server's clock.
        scheduler: schedules all maintenance.
        elsewhere: returns the bytes of memory not used by items.
        before_pass: called before each pass of compaction.
        on_pause: called with the number of seconds for which the process was suspended.
        duties: called once a second with the unix second, after the engine and the sweeper.
        owns_process: whether the process's memory belongs to the server; False for a server in
            another program, whose growth says nothing about items.

    Attributes:
        flush_timer: carries out ``flush_all``.
        footprint: monitors the process's memory; None if the table does not hold all items, or if
            the memory cannot be measured.
        sweeper: frees items in the background.
        ticker: runs duties once a second.
    """

    def __init__(
        self,
        engine: Maintained,
        table: ItemTable,
        clock: Clock,
        scheduler: Scheduler,
        *,
        elsewhere: Callable[[], int],
        before_pass: Callable[[], None],
        on_pause: Callable[[int], None],
        duties: Sequence[Callable[[int], None]],
        owns_process: bool,
    ) -> None:
        self._engine = engine
        self._owns_process = owns_process
        self._table = table
        self._clock = clock
        self._scheduler = scheduler
        self._elsewhere = elsewhere
        self._before_pass = before_pass
        self.footprint: Footprint | None = None
        self.sweeper = Sweeper(engine.sweep, table, scheduler)
        self.sweeper.urgent = lambda: bool(self.withheld)
        self.flush_timer = FlushTimer(engine, clock, scheduler)
        self.ticker = Ticker(clock, scheduler, on_pause, [self._tick, *duties])

    @property
    def withheld(self) -> int:
        """Bytes of ``-m`` that are currently withheld from items; see `Footprint`."""
        return self.footprint.withheld if self.footprint is not None else 0

    def start(self) -> None:
        """Begin."""
        if self._owns_process:
            self.watch_memory()
        self.ticker.tick()

    def watch_memory(self) -> None:
        """Monitor the process's memory, if the table holds all items and it can be measured."""
        engine, measure = self._engine, resident()
        if isinstance(engine, MemoryEngine) and measure is not None:
            self.footprint = Footprint(
                self._table,
                engine,
                resident=measure,
                elsewhere=self._elsewhere,
                before_pass=self._before_pass,
                sweep_soon=self.sweep_soon,
            )
            self._table.excess = self.footprint.on_measure

    def stop(self) -> None:
        """Stop."""
        self.ticker.stop()
        self.sweeper.stop()
        self.flush_timer.stop()

    def sweep_soon(self) -> None:
        """Run the sweeper in the next iteration of the event loop."""
        self._scheduler.call_soon(self.sweeper.wake)

    def advance_clock(self, seconds: float) -> None:
        """Move the clock and do the work due at the new time (``debugtime``)."""
        self._clock.advance(seconds)
        self._engine.tick()
        self.sweeper.wake()

    def _tick(self, second: int) -> None:
        self._engine.tick()
        if self.footprint is not None:
            self._table.measure()  # the table itself does this only when keys are added
        self.sweeper.wake()
