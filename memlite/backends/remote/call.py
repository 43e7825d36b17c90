"""Operations on a store that answers over a network: the time they have, and how attempts ended."""

import asyncio
import random
from time import monotonic

from memlite.core.errors import StorageError

__all__ = ["Call"]

# Pauses between attempts: a random part of the first, of twice that, and so on ("full jitter",
# https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_PAUSE_AFTER_RACE = 0.01


class Call:
    """An operation: the time it has for all of its attempts, and how they ended.

    Args:
        seconds: the time.
        store: what the store is called in errors.

    Attributes:
        due: when the time is over, in seconds of the monotonic clock.
        uncertain: whether an attempt failed that may nonetheless have been carried out.
        trouble: how the last failed attempt failed.
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
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._attempts)
        self._attempts += 1
        seconds = random.uniform(0, longest)  # noqa: S311 - no secret
        if monotonic() + seconds >= self.due:
            raise self.error(f"{self.trouble}, and again for {self._seconds:g} s")
        await asyncio.sleep(seconds)

    async def pause_after_race(self) -> None:
        """Wait a moment before another attempt, as another server was faster.

        The pauses do not grow: otherwise a server that has lost would lose again.

        Raises:
            StorageError: there is not enough time for one.
        """
        seconds = random.uniform(0, _PAUSE_AFTER_RACE)  # noqa: S311 - no secret
        if monotonic() + seconds >= self.due:
            raise self.error(f"other servers were faster, and again for {self._seconds:g} s")
        await asyncio.sleep(seconds)

    def error(self, text: str) -> StorageError:
        """Return an error with this text, which also says if the outcome is uncertain."""
        doubt = "; the change may have been made or not" if self.uncertain else ""
        return StorageError(f"{self._store}: {text}{doubt}")
