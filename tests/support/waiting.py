"""Waits for a condition in another process."""

import asyncio
import time
from collections.abc import Callable

__all__ = ["eventually", "wait_until"]


def wait_until(condition: Callable[[], bool], seconds: float = 60, every: float = 0.02) -> bool:
    """Poll until the condition holds, and return whether it held in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(every)
    return condition()


async def eventually(
    condition: Callable[[], bool], seconds: float = 60, every: float = 0.02
) -> bool:
    """Do the same in a coroutine."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        await asyncio.sleep(every)
    return condition()
