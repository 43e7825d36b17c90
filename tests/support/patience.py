"""Retries for tests that measure time, because a machine may stall occasionally."""

import asyncio
import functools
import inspect
import subprocess
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

# Seconds to wait before each retry, so that not all attempts fall into the same busy period.
PAUSES = (1, 2, 4, 8)
FAILURES = (AssertionError, TimeoutError, subprocess.TimeoutExpired, pytest.fail.Exception)


def patiently(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run a test, which may be a coroutine, up to five times until it passes."""

    @functools.wraps(test)
    def tried(*arguments: object, **named: object) -> Any:
        for pause in PAUSES:
            try:
                return test(*arguments, **named)
            except FAILURES:
                traceback.print_exc()  # shown if every attempt fails
            time.sleep(pause)
        return test(*arguments, **named)

    @functools.wraps(test)
    async def awaited(*arguments: object, **named: object) -> Any:
        for pause in PAUSES:
            try:
                return await test(*arguments, **named)
            except FAILURES:
                traceback.print_exc()
            await asyncio.sleep(pause)
        return await test(*arguments, **named)

    return awaited if inspect.iscoroutinefunction(test) else tried
