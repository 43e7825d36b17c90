"""Work behind the scenes, in steps too short to be noticed."""

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from memlite.server.server import Server

__all__ = ["Sweeper"]

_STEP_SECONDS: Final = 0.0005
_PAUSE_SECONDS: Final = 0.005
_ITEMS_AT_ONCE: Final = 32  # between looks at the time


class Sweeper:
    """Has the engine free what was flushed and what has expired, half a millisecond at a time.

    Takes a tenth of one core while there is something to do, and nothing otherwise; a step in each
    round of the loop while somebody waits for room, or items give way to memory that lies unused.

    Args:
        server: whose engine it is.
    """

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._next: asyncio.TimerHandle | None = None
        self._waiting: deque[Callable[[], None]] = deque()

    def when_there_is_room(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once items take no more than they may, or none can go; one after another."""
        if not (self._waiting or self._server.table.over):
            go_on()
            return
        if not self._waiting:
            self.stop()  # the next step may be some time away
            self._server.loop.call_soon(self.wake)
        self._waiting.append(go_on)

    def wake(self) -> None:
        """See to what there is to do, if it does not do so already."""
        if self._next is None:
            self._step()

    def _step(self) -> None:
        self._next = None
        server = self._server
        sweep = server.engine.sweep
        deadline = perf_counter() + _STEP_SECONDS
        while more := sweep(_ITEMS_AT_ONCE):
            if perf_counter() > deadline:
                break
        if self._waiting and not (more and server.table.over):
            self._waiting.popleft()()
        if more or self._waiting:
            hurry = self._waiting or (server.footprint is not None and server.footprint.withheld)
            pause = 0.0 if hurry else _PAUSE_SECONDS
            self._next = server.loop.call_later(pause, self._step)

    def stop(self) -> None:
        """Do nothing more until it is woken."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
