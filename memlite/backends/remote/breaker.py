"""A circuit breaker: requests to a service that does not respond fail at once."""

import logging
import time
from collections.abc import Callable

from memlite.core.logs import failure

__all__ = ["Breaker"]

_log = logging.getLogger("memlite")


class Breaker:
    """Opens after a series of failures, and closes with the first success.

    It opens after `failures` consecutive failures over at least `patience` seconds. Many failures
    at one moment, as when connections are cut, are not enough, and neither are a few. While it is
    open, one request every `pause` seconds is allowed as a probe; all others should fail at once.

    Args:
        name: name of the service, for the log.
        failures: number of consecutive failures.
        patience: seconds between the first and the last of them.
        pause: seconds between probes.
        clock: returns seconds, never decreasing.

    Attributes:
        is_open: whether requests should fail.
        times_opened: how often it opened.
        recent_failures: number of failures since the last success.
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
        self.recent_failures = 0
        self._name = name
        self._limit = failures
        self._patience = patience
        self._pause = pause
        self._clock = clock
        self._since = 0.0
        self._next_probe = 0.0

    def lets_through(self) -> bool:
        """Return whether a request may be made; if so, its outcome has to be reported."""
        if not self.is_open:
            return True
        now = self._clock()
        if now < self._next_probe:
            return False
        # The next probe does not wait for the outcome of this one, which may time out.
        self._next_probe = now + self._pause
        return True

    def succeeded(self) -> None:
        """Report a request that was answered; not necessary without `recent_failures`."""
        self.recent_failures = 0
        if self.is_open:
            self.is_open = False
            _log.warning(
                "%s is available again after %.1f s",
                self._name,
                self._clock() - self._since,
                extra=failure("store_available", store=self._name),
            )

    def failed(self) -> None:
        """Report a request without a response, or with a server error."""
        now = self._clock()
        if not self.recent_failures:
            self._since = now
        self.recent_failures += 1
        overdue = self.recent_failures >= self._limit and now - self._since >= self._patience
        if overdue and not self.is_open:
            self.is_open = True
            self.times_opened += 1
            self._next_probe = now + self._pause
            _log.warning(
                "%s is unavailable: %d requests failed in %.1f s; commands are refused",
                self._name,
                self.recent_failures,
                now - self._since,
                extra=failure("store_unavailable", store=self._name),
            )
