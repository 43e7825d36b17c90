"""Logs a line of statistics from time to time (``--stats-interval``)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from memlite.telemetry import line
from memlite.telemetry.snapshot import GeneralStats

__all__ = ["PeriodicReport"]

_log: Final = logging.getLogger("memlite.stats")
# The line was requested by its own flag, so it appears at every log level.
_log.setLevel(logging.INFO)


class PeriodicReport:
    """Logs a line every `interval` seconds.

    Args:
        collect: returns the current statistics.
        interval: seconds between two lines.
    """

    def __init__(self, collect: Callable[[], GeneralStats], interval: float) -> None:
        self._collect = collect
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        before = self._collect()
        while True:
            await asyncio.sleep(self._interval)
            now = self._collect()
            values = line.figures(before, now, self._interval)
            before = now
            _log.info("stats %s", line.as_text(values), extra={"fields": values})
