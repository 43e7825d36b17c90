"""Tests of times: now and then a machine stops for a while."""

import asyncio
import contextlib
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

# Seconds before each further try, which together outlast what keeps a machine busy.
PAUSES = (1, 2, 4, 8)


def patiently(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run a test up to five times, until it holds; coroutines, too."""

    @functools.wraps(test)
    def tried(*arguments: object, **named: object) -> None:
        for pause in PAUSES:
            with contextlib.suppress(AssertionError):
                return test(*arguments, **named)
            time.sleep(pause)
        return test(*arguments, **named)

    @functools.wraps(test)
    async def awaited(*arguments: object, **named: object) -> None:
        for pause in PAUSES:
            with contextlib.suppress(AssertionError):
                return await test(*arguments, **named)
            await asyncio.sleep(pause)
        return await test(*arguments, **named)

    return awaited if inspect.iscoroutinefunction(test) else tried
