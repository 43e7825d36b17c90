"""A circuit breaker: what does not answer is not asked by everybody all the time."""

import logging
import time
from collections.abc import Callable

__all__ = ["Breaker"]

_log = logging.getLogger("memlite")


class Breaker:
    """Opens when nothing succeeds any more, and closes with the first success.

    It opens after `failures` in a row that took `patience` seconds or longer: many at once, as
    when connections are cut, are not enough, and neither are a few. While it is open one request
    every `pause` seconds goes through as a probe; the others are to fail at once.

    Args:
        name: what it protects, for the log.
        failures: how many.
        patience: seconds from the first to the last of them.
        pause: seconds between probes.
        clock: seconds that never decrease.

    Attributes:
        is_open: whether requests are to fail.
        times_opened: how often it opened.
    """

    def __init__(
        self,
        name: str,
        *,
        failures: int = 10,
        patience: float = 1.0,
        pause: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_open = False
        self.times_opened = 0
        self._name = name
        self._limit = failures
        self._patience = patience
        self._pause = pause
        self._clock = clock
        self._failures = 0
        self._since = 0.0
        self._next_probe = 0.0

    def lets_through(self) -> bool:
        """Return whether a request may be made; its outcome is to be reported."""
        if not self.is_open:
            return True
        now = self._clock()
        if now < self._next_probe:
            return False
        # The next one does not wait for the outcome of this, which may be a timeout.
        self._next_probe = now + self._pause
        return True

    def succeeded(self) -> None:
        """Report a request that was answered."""
        if self._failures:
            self._failures = 0
            if self.is_open:
                self.is_open = False
                _log.warning("%s is back after %.1f s", self._name, self._clock() - self._since)

    def failed(self) -> None:
        """Report a request that was not answered, or with an error of the server's."""
        now = self._clock()
        if not self._failures:
            self._since = now
        self._failures += 1
        overdue = self._failures >= self._limit and now - self._since >= self._patience
        if overdue and not self.is_open:
            self.is_open = True
            self.times_opened += 1
            self._next_probe = now + self._pause
            _log.warning(
                "%s is unavailable: %d requests failed in %.1f s; commands are refused",
                self._name,
                self._failures,
                now - self._since,
            )
