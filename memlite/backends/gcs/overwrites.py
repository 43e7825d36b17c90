"""Serializes unconditional writes of each key, and merges waiting writes."""

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["Overwrites", "Write"]

Write = Callable[[], Awaitable[int]]
"""Stores a record, and returns its version."""


class _Next:
    """The write that has the next turn.

    Attributes:
        write: the last write that asked for the turn.
        done: a future of its version, for all waiters for the turn.
    """

    __slots__ = ("done", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class Overwrites:
    """Runs at most one write for each key at a time.

    Of all writes that wait for their turn only the last is carried out. The others complete with
    it, as if each of them had been overwritten immediately. A bucket accepts only one write per
    second for each object, and if several writes race on the same condition, all but one fail.
    """

    def __init__(self) -> None:
        self._next: dict[bytes, _Next | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, key: bytes, write: Write) -> int:
        """Carry out `write`, or a later write in its place; return the resulting version.

        Raises:
            StorageError: from the write that was carried out.
        """
        if key not in self._next:
            self._next[key] = None
            try:
                return await write()
            finally:
                self._continue(key)
        following = self._next[key]
        if following is None:
            following = self._next[key] = _Next(write)
        following.write = write
        # Shielded, because other callers wait for it, too.
        return await asyncio.shield(following.done)

    def _continue(self, key: bytes) -> None:
        """Give the turn to the next write of `key`, if there is one."""
        following = self._next[key]
        if following is None:
            del self._next[key]
            return
        self._next[key] = None
        task = asyncio.ensure_future(self._run(key, following))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: bytes, turn: _Next) -> None:
        try:
            turn.done.set_result(await turn.write())
        except Exception as error:  # noqa: BLE001 - raised in the callers that wait
            turn.done.set_exception(error)
            turn.done.exception()  # retrieved, as all waiters may have been cancelled
        except BaseException:
            turn.done.cancel()
            raise
        finally:
            self._continue(key)

    async def close(self) -> None:
        """Wait for the writes in progress."""
        while self._tasks:
            await asyncio.wait(self._tasks)
