"""A bound on the requests that are in progress at once."""

import asyncio
from time import monotonic

from memlite.backends.remote.call import Call

__all__ = ["Turns"]


class Turns:
    """Lets a number of requests be in progress at once; others wait until their time is over.

    Args:
        at_once: the number.

    Attributes:
        taken: number of requests in progress.
    """

    def __init__(self, at_once: int) -> None:
        self.taken = 0
        self._turns = asyncio.Semaphore(at_once)

    @property
    def free(self) -> bool:
        """Whether the next `take` does not wait."""
        return not self._turns.locked()

    async def take(self, call: Call) -> None:
        """Wait for a turn, which must be given back.

        Raises:
            StorageError: the call's time is over.
        """
        if self._turns.locked():
            await self._wait(call)
        else:
            await self._turns.acquire()
        self.taken += 1

    async def _wait(self, call: Call) -> None:
        try:
            async with asyncio.timeout(call.due - monotonic()):
                await self._turns.acquire()
        except TimeoutError:
            raise call.error("too many requests wait for a turn") from None

    def give_back(self) -> None:
        """Let another request have the turn."""
        self.taken -= 1
        self._turns.release()
