"""Cheap timeouts for many concurrent tasks."""

import asyncio
from time import monotonic
from types import TracebackType
from typing import Any

__all__ = ["TimeLimits"]

_RESOLUTION = 0.02


class TimeLimits:
    """Cancels tasks that exceed a time limit, up to 20 ms late.

    `asyncio.timeout` sets and cancels a timer of the event loop for each block, which is a tenth of
    the cost of a request. Here all blocks share a single timer.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Task[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, seconds: float) -> "_Limit":
        """Return a context manager that raises `TimeoutError` if its block takes longer.

        A task can be in only one such block at a time.
        """
        return _Limit(self, monotonic() + seconds)

    def start(self, task: asyncio.Task[Any], due: float) -> None:
        """Cancel `task` at `due`, in seconds of the monotonic clock."""
        self._due[task] = due
        if self._timer is None:
            self._timer = task.get_loop().call_later(_RESOLUTION, self._look, task.get_loop())

    def stop(self, task: asyncio.Task[Any]) -> bool:
        """Do not cancel `task` after all; return whether it was cancelled already."""
        return self._due.pop(task, None) is None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = monotonic()
        for task in [task for task, due in self._due.items() if due <= now]:
            del self._due[task]
            task.cancel()
        self._timer = loop.call_later(_RESOLUTION, self._look, loop) if self._due else None


class _Limit:
    __slots__ = ("_cancelling", "_due", "_limits", "_task")

    def __init__(self, limits: TimeLimits, due: float) -> None:
        self._limits = limits
        self._due = due

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._task = task
        self._cancelling = task.cancelling()
        self._limits.start(task, self._due)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._limits.stop(self._task):
            # If other code has cancelled the task too, it stays cancelled, as in asyncio.timeout.
            alone = self._task.uncancel() <= self._cancelling
            if alone and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise TimeoutError from error
