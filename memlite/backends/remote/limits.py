"""Cheap timeouts for many concurrent tasks."""

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

__all__ = ["TimeLimits"]

_RESOLUTION = 0.02
_T = TypeVar("_T")


class TimeLimits:
    """Cancels work that exceeds a time limit, up to 20 ms late.

    `asyncio.timeout` sets and cancels a timer of the event loop for each block, which is a tenth of
    the cost of a request. Here all work shares a single timer.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Task[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, work: Coroutine[Any, Any, _T], due: float) -> _T:
        """Return the result of `work`.

        A task can be in only one such call at a time.

        Args:
            work: what to wait for.
            due: when to cancel it, in seconds of the monotonic clock.

        Raises:
            TimeoutError: it was cancelled.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        cancelling = task.cancelling()
        self._due[task] = due
        if self._timer is None:
            self._timer = task.get_loop().call_later(_RESOLUTION, self._look, task.get_loop())
        try:
            return await work
        except asyncio.CancelledError as error:
            # If other code has cancelled the task too, it stays cancelled, as in asyncio.timeout.
            if task not in self._due and task.cancelling() <= cancelling + 1:
                raise TimeoutError from error
            raise
        finally:
            if self._due.pop(task, None) is None:
                task.uncancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = monotonic()
        for task in [task for task, due in self._due.items() if due <= now]:
            del self._due[task]
            task.cancel()
        self._timer = loop.call_later(_RESOLUTION, self._look, loop) if self._due else None
