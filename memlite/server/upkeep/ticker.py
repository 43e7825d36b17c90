"""The once-a-second tick, and a timer for flushes that must not wait for it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from memlite.core.clock import Clock
from memlite.server.scheduler import Scheduler

__all__ = ["FlushTimer", "Ticker"]

# Longer delays are left to the ticker, because event loops limit the delay of a timer.
_TIMER_SECONDS = 86_400.0


class Ticker:
    """Advances the clock's second and runs periodic duties.

    Args:
        clock: the server's clock.
        scheduler: schedules the next tick.
        on_pause: called with the number of seconds for which the process was suspended.
        duties: called in order with the unix second.
    """

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        on_pause: Callable[[int], None],
        duties: Sequence[Callable[[int], None]],
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._on_pause = on_pause
        self._duties = duties
        self._next: asyncio.TimerHandle | None = None

    def tick(self) -> None:
        """Run all duties now, and again in a second."""
        clock = self._clock
        before = clock.second
        clock.tick()
        paused = clock.second - before - 1
        if paused > 0:
            self._on_pause(paused)
        for duty in self._duties:
            duty(clock.second)
        self._next = self._scheduler.call_later(1, self.tick)

    def stop(self) -> None:
        """Stop."""
        if self._next is not None:
            self._next.cancel()


class Flushing(Protocol):
    """An engine that supports delayed flushes.

    Attributes:
        flush_pending: unix time of a delayed flush, 0 if there is none.
    """

    @property
    def flush_pending(self) -> float: ...

    def flush_all(self, exptime: int) -> None:
        """Make all items absent: now, or at `exptime` if that is positive."""

    def tick(self) -> None:
        """Do periodic work."""


class FlushTimer:
    """Carries out a delayed ``flush_all`` on time rather than at the next tick.

    Args:
        engine: holds the items.
        clock: the server's clock.
        scheduler: provides the timer.
    """

    def __init__(self, engine: Flushing, clock: Clock, scheduler: Scheduler) -> None:
        self._engine = engine
        self._clock = clock
        self._scheduler = scheduler
        self._next: asyncio.TimerHandle | None = None

    def flush(self, exptime: int) -> None:
        """Make all items absent: now, or at `exptime` if that is positive."""
        engine = self._engine
        engine.flush_all(exptime)
        self.stop()
        delay = engine.flush_pending - self._clock.now()
        if engine.flush_pending and delay < _TIMER_SECONDS:
            # Slightly late, because a loop that rounds down would fire before the flush is due.
            self._next = self._scheduler.call_later(delay + 0.005, engine.tick)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
