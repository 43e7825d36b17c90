"""Access to the event loop for the parts of the server, which are created before it runs."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Scheduler"]


class Scheduler:
    """Schedules calls and tasks on the server's event loop.

    The parts of the server are created before the loop runs, because the process may change its
    user in between.

    Attributes:
        loop: the event loop, set when the server starts.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._together: list[Callable[[], object]] = []
        self._settles = self._hurried = False

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        """Call `function` in the next iteration of the loop."""
        return self.loop.call_soon(function, *arguments)

    def call_together(self, function: Callable[[], object]) -> None:
        """Call `function` in the next iteration of the loop, batched with other functions.

        With many functions, this costs a tenth of `call_soon`.
        """
        if not self._together:
            self.loop.call_soon(self._call_together)
        self._together.append(function)

    def _call_together(self) -> None:
        functions, self._together = iter(self._together), []
        try:
            for function in functions:
                function()
        finally:
            for function in functions:  # the rest, after one has failed
                self.loop.call_soon(function)

    def call_later(
        self, seconds: float, function: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        """Call `function` after `seconds`."""
        return self.loop.call_later(seconds, function, *arguments)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task; the server waits for it before it stops."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, seconds: float) -> None:
        """Wait for all spawned tasks, and those they spawn; after `seconds`, cancel them."""
        self._settles, end = True, self.loop.time() + seconds
        while self._tasks:
            left = 0.0 if self._hurried else end - self.loop.time()
            if left <= 0:
                self._cancel_tasks()
            await asyncio.wait(self._tasks, timeout=max(left, 0) or None)

    def hurry(self) -> None:
        """Make `settle` cancel tasks at once, whether it is waiting already or called later."""
        self._hurried = True
        if self._settles:
            self._cancel_tasks()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
