"""An injectable clock: tests and ``debugtime`` advance it instead of sleeping."""

import time
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Unix time that never goes back, except by `advance`.

    Follows the monotonic clock from the wall time at which it was created, as memcached does:
    a step of the wall clock neither expires items nor keeps them alive.

    Args:
        monotonic: returns seconds that never decrease, from any origin.
        wall: returns unix time in seconds; called once.

    Attributes:
        started: unix time at which the clock was created, in seconds.
        second: whole unix seconds as of the last `tick`. Use it where a second of staleness does
            not matter (ages, idle times): reading an attribute costs a tenth of a call.
    """

    __slots__ = ("_listeners", "_monotonic", "_offset", "second", "started")

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self.started = wall()
        self._offset = self.started - monotonic()
        self.second = int(self.started)
        self._listeners: list[Callable[[int], None]] = []

    def now(self) -> float:
        """Return the unix time in seconds, at the monotonic clock's resolution."""
        return self._monotonic() + self._offset

    def tick(self) -> None:
        """Update `second`. The server calls it once a second."""
        self.second = int(self.now())
        for listener in self._listeners:
            listener(self.second)

    def on_tick(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the current second at each tick from now on."""
        self._listeners.append(listener)

    def copy(self) -> "Clock":
        """Return a clock that shows the same time, with no listeners, for another process."""
        new = Clock(self._monotonic)
        new.started, new._offset = self.started, self._offset
        return new

    def advance(self, seconds: float) -> None:
        """Move the clock by `seconds`, which may be negative, for ``debugtime``."""
        self._offset += seconds
        self.tick()
