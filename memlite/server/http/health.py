"""Whether the server or proxy should get requests."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

from memlite.core.errors import MemliteError

__all__ = ["Health"]

_PROBE_SECONDS: Final = 2.0
_BETWEEN_PROBES: Final = 1.0


class Health:
    """Says what keeps the server from serving.

    Args:
        troubles: returns what is known to keep it, in a few words each.
        unavailable: returns whether the store is taken for unavailable.
        probe: asks the store for something. It is called only while the store is taken for
            unavailable, as nobody else might ask it: whoever heeds the answer sends no requests.
        clock: returns seconds, never decreasing.
    """

    def __init__(
        self,
        troubles: Callable[[], tuple[str, ...]],
        unavailable: Callable[[], bool] = lambda: False,
        probe: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._troubles = troubles
        self._unavailable = unavailable
        self._probe = probe
        self._clock = clock
        self._next_probe = 0.0

    async def troubles(self) -> tuple[str, ...]:
        """Return what keeps the server from serving, in a few words each; nothing if it can."""
        now = self._clock()
        if self._unavailable() and now >= self._next_probe:
            self._next_probe = now + _BETWEEN_PROBES
            with contextlib.suppress(MemliteError, TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS):
                    await self._probe()
        return self._troubles()
