"""Background work on items, in steps too short to add noticeable latency."""

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from memlite.memory import ItemTable
from memlite.server.scheduler import Scheduler

if TYPE_CHECKING:
    import asyncio

__all__ = ["Sweeper"]

_STEP_SECONDS: Final = 0.0005
_PAUSE_SECONDS: Final = 0.005
_ITEMS_AT_ONCE: Final = 32  # between checks of the clock


class Sweeper:
    """Lets the engine free flushed and expired items, half a millisecond at a time.

    Uses a tenth of one core while there is work, and nothing otherwise. While a value is waiting
    for room, or items must make way for unused memory, it runs a step in each iteration of the
    event loop.

    Args:
        sweep: the engine's method of that name.
        table: reports whether items exceed their limit.
        scheduler: runs the steps.

    Attributes:
        urgent: returns whether items must make way for unused memory.
    """

    def __init__(
        self, sweep: Callable[[int], bool], table: ItemTable, scheduler: Scheduler
    ) -> None:
        self._sweep = sweep
        self._table = table
        self._scheduler = scheduler
        self._next: asyncio.TimerHandle | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self.urgent: Callable[[], bool] = lambda: False

    def when_there_is_room(self, function: Callable[[], None]) -> None:
        """Call `function` once items are within their limit or none can be evicted.

        Functions are called in order, one per step.
        """
        if not (self._waiting or self._table.over):
            function()
            return
        if not self._waiting:
            self.stop()  # the next step may be scheduled too late
            self._scheduler.call_soon(self.wake)
        self._waiting.append(function)

    def wake(self) -> None:
        """Start working, unless work is already scheduled."""
        if self._next is None:
            self._step()

    def _step(self) -> None:
        self._next = None
        sweep = self._sweep
        deadline = perf_counter() + _STEP_SECONDS
        while more := sweep(_ITEMS_AT_ONCE):
            if perf_counter() > deadline:
                break
        if self._waiting and not (more and self._table.over):
            self._waiting.popleft()()
        if more or self._waiting:
            pause = 0.0 if self._waiting or self.urgent() else _PAUSE_SECONDS
            self._next = self._scheduler.call_later(pause, self._step)

    def stop(self) -> None:
        """Stop until the next `wake`."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
