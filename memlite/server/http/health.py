"""Whether the server or proxy should receive requests."""

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
    """Reports the reasons why the server cannot serve.

    Args:
        troubles: returns the known reasons, in a few words each.
        unavailable: returns whether the store is considered unavailable.
        probe: sends a request to the store. Called only while the store is considered
            unavailable: clients that heed the answer send no requests that could end that state.
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
        """Return the reasons why the server cannot serve, in a few words each; empty if it can."""
        now = self._clock()
        if self._unavailable() and now >= self._next_probe:
            self._next_probe = now + _BETWEEN_PROBES
            with contextlib.suppress(MemliteError, TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS):
                    await self._probe()
        return self._troubles()
