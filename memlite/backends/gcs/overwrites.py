"""Unconditional writes of one key take turns, and those that wait are merged."""

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["Overwrites", "Write"]

Write = Callable[[], Awaitable[int]]
"""Stores a record, and returns its version."""


class _Next:
    """The write whose turn is next.

    Attributes:
        write: the last one that asked for the turn.
        done: its version, for all that wait for the turn.
    """

    __slots__ = ("done", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class Overwrites:
    """Runs at most one write for each key at a time.

    Of all writes that wait for their turn only the last is carried out. The others are complete
    with it: it is as if each of them had been overwritten at once. A bucket accepts only one write
    a second for each object, and writes that race on the condition of one state all fail but one.
    """

    def __init__(self) -> None:
        self._next: dict[bytes, _Next | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, key: bytes, write: Write) -> int:
        """Carry out `write`, or a later one in its place; return the version of that one.

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
        # Shielded, because others wait for it too.
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
        except Exception as error:  # noqa: BLE001 - raised for those that wait
            turn.done.set_exception(error)
            turn.done.exception()  # retrieved, as all that wait may have been cancelled
        except BaseException:
            turn.done.cancel()
            raise
        finally:
            self._continue(key)

    async def close(self) -> None:
        """Wait for the writes in progress."""
        while self._tasks:
            await asyncio.wait(self._tasks)
