"""Limits on operations on a network store: how long they take, and how many run at once."""

import asyncio
import random
from collections import deque
from collections.abc import Coroutine
from time import monotonic
from typing import Any, Protocol, TypeVar

from memlite.core.errors import StorageError

__all__ = ["Call", "TimeLimits", "Turns"]

# Pauses between attempts: a random part of the first, of twice that, and so on ("full jitter",
# https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
_FIRST_PAUSE = 0.05
_MAX_PAUSE = 1.0
_PAUSE_AFTER_RACE = 0.01
_RESOLUTION = 0.02  # of time limits
_T = TypeVar("_T")


class Call:
    """An operation: the time for all of its attempts, and their outcome.

    Args:
        seconds: the time for all attempts.
        store: the name of the store in errors.

    Attributes:
        due: when the time ends, in seconds of the monotonic clock.
        uncertain: whether an attempt failed but may nonetheless have been carried out.
        trouble: the reason why the last failed attempt failed.
    """

    __slots__ = ("_attempts", "_seconds", "_store", "due", "trouble", "uncertain")

    def __init__(self, seconds: float, store: str) -> None:
        self._seconds = seconds
        self._store = store
        self._attempts = 0
        self.due = monotonic() + seconds
        self.uncertain = False
        self.trouble = ""

    async def pause(self) -> None:
        """Wait before another attempt.

        Raises:
            StorageError: there is not enough time for one.
        """
        longest = min(_MAX_PAUSE, _FIRST_PAUSE * 2**self._attempts)
        self._attempts += 1
        seconds = random.uniform(0, longest)  # noqa: S311 - no secret
        if monotonic() + seconds >= self.due:
            raise self.error(f"{self.trouble}; gave up retrying after {self._seconds:g} s")
        await asyncio.sleep(seconds)

    async def pause_after_race(self) -> None:
        """Wait a moment before another attempt, after another server was faster.

        The pauses do not grow: otherwise a server that lost a race would lose the next one, too.

        Raises:
            StorageError: there is not enough time for one.
        """
        seconds = random.uniform(0, _PAUSE_AFTER_RACE)  # noqa: S311 - no secret
        if monotonic() + seconds >= self.due:
            raise self.error(
                f"conflicting changes by other servers; gave up retrying after {self._seconds:g} s"
            )
        await asyncio.sleep(seconds)

    def error(self, text: str) -> StorageError:
        """Return an error with this text, which also says if the outcome is uncertain."""
        doubt = "; the change may or may not have been made" if self.uncertain else ""
        return StorageError(f"{self._store}: {text}{doubt}")


class Waiter(Protocol):
    """Waits for a turn: a future, or an object that is notified without a task."""

    def done(self) -> bool:
        """Return whether it is no longer waiting."""

    def set_result(self, turn: None, /) -> None:
        """Take the turn, which must be given back."""

    def set_exception(self, error: TimeoutError, /) -> None:
        """Give up waiting: the time is up."""


class Turns:
    """Limits the number of requests in progress; others wait for a turn until their time is up.

    A turn that is given back goes to the request that has waited longest, so none is free
    while a request waits. All waiters share a timer, so a timeout may be up to 20 ms late.

    Args:
        at_once: the maximum number.

    Attributes:
        taken: number of requests in progress.
    """

    def __init__(self, at_once: int) -> None:
        self.taken = 0
        self._at_once = at_once
        self._waiting: deque[tuple[Waiter, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def take_free(self) -> bool:
        """Take a turn if one is free, and return whether; it must be given back."""
        if self.taken < self._at_once:
            self.taken += 1
            return True
        return False

    async def take(self, call: Call) -> None:
        """Wait for a turn, which must be given back.

        Raises:
            StorageError: the call's time is up.
        """
        if self.taken < self._at_once:  # `take_free`, inlined
            self.taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self.line_up(turn, call.due)
        try:
            await turn
        except TimeoutError:
            raise call.error("too many requests in progress") from None
        except BaseException:
            if turn.done() and not (turn.cancelled() or turn.exception()):  # the turn came too late
                self.give_back()
            raise

    def line_up(self, waiter: Waiter, due: float) -> None:
        """Queue a waiter for a turn, until `due` in seconds of the monotonic clock."""
        self._waiting.append((waiter, due))
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_RESOLUTION, self._look, loop)

    def give_back(self) -> None:
        """Pass the turn on to another request."""
        while self._waiting:
            waiter, _ = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.taken -= 1

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = monotonic()
        overdue = [waiter for waiter, due in self._waiting if due <= now]
        if overdue:
            self._waiting = deque(one for one in self._waiting if one[1] > now)
        # Before they are notified: their actions may queue more waiters.
        self._timer = loop.call_later(_RESOLUTION, self._look, loop) if self._waiting else None
        for waiter in overdue:
            if not waiter.done():
                waiter.set_exception(TimeoutError())


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
            work: the work to wait for.
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
