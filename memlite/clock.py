"""The time, injectable: tests and ``debugtime`` move it instead of sleeping."""

import time
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Unix time that goes back for nobody but `advance`.

    Follows the monotonic clock from the wall time at which it was made, as memcached does:
    a step of the wall clock neither expires items nor keeps them alive.

    Args:
        monotonic: seconds that never decrease; its origin does not matter.
        wall: unix time in seconds, read once.

    Attributes:
        started: unix time at which the clock was made, in seconds.
        second: whole unix seconds, as of the last `tick`. For what may be a second stale
            (ages, idle times): reading an attribute costs a tenth of a call.
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
        """Return the unix time in seconds, exact to the monotonic clock's resolution."""
        return self._monotonic() + self._offset

    def tick(self) -> None:
        """Bring `second` up to date. The server calls it once a second."""
        self.second = int(self.now())
        for listener in self._listeners:
            listener(self.second)

    def on_tick(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the second, at each tick from now on."""
        self._listeners.append(listener)

    def advance(self, seconds: float) -> None:
        """Move the clock, back if `seconds` is negative (``debugtime``, as in memcached-debug)."""
        self._offset += seconds
        self.tick()
