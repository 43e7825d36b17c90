"""Rate limiting."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Pace"]

# The most seconds' worth of items to make up for after a pause.
_MAX_BEHIND: Final = 1.0


class Pace:
    """Limits the number of items per second.

    Args:
        rate: items per second; 0 for no limit.
        clock: returns seconds that never decrease.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds: Final = 1 / rate if rate else 0.0
        self._clock: Final = clock
        self._due = clock()

    async def wait(self, items: int) -> None:
        """Wait until this number of items may pass."""
        now = self._clock()
        self._due = max(self._due, now - _MAX_BEHIND)
        if self._due > now:
            await asyncio.sleep(self._due - now)
        self._due += items * self._seconds
