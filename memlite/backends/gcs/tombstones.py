"""The removal of tombstones: objects that mark deleted keys."""

import asyncio
import contextlib
from collections import deque
from time import monotonic
from typing import NamedTuple

from memlite.backends.gcs.client import BucketClient
from memlite.backends.gcs.codec import name_of
from memlite.backends.gcs.objects import Objects
from memlite.core.errors import StorageError

__all__ = ["Tombstones"]

# The minimum lifetime of a tombstone, in seconds. Any request sent before the key was deleted must
# have ended by then.
_KEPT_SECONDS = 60.0
_AT_MOST = 100_000
_AT_ONCE = 16


class _Tombstone(NamedTuple):
    due: float
    key: bytes
    generation: int


class Tombstones:
    """Removes tombstones in the background once they are old enough.

    Tombstones that are not removed, because the server stops or there are too many, are left to the
    bucket's lifecycle rules, or to the next write of the key.

    Args:
        client: removes objects.
        objects: may know that a key has been stored again.
    """

    def __init__(self, client: BucketClient, objects: Objects) -> None:
        self._client = client
        self._objects = objects
        self._kept = max(_KEPT_SECONDS, 2 * client.deadline)
        self._waiting: deque[_Tombstone] = deque()
        self._removal: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: bytes, generation: int) -> None:
        """Remove the object of `key` later, if it still has this generation."""
        if len(self._waiting) < _AT_MOST:
            self._waiting.append(_Tombstone(monotonic() + self._kept, key, generation))

    def tick(self) -> None:
        """Begin to remove the tombstones that are due."""
        if self._removal is not None and not self._removal.done():
            return
        if self._waiting and self._waiting[0].due <= monotonic():
            self._removal = asyncio.ensure_future(self._remove_due())

    async def _remove_due(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._remove_some())

    async def _remove_some(self) -> None:
        now = monotonic()
        while self._waiting and self._waiting[0].due <= now:
            _, key, generation = self._waiting.popleft()
            known = self._objects.known(key)
            if known is not None and known.generation != generation:
                continue
            with contextlib.suppress(StorageError):
                await self._client.remove(self._client.call(), name_of(key), generation)

    async def close(self) -> None:
        """Stop."""
        if self._removal is not None:
            self._removal.cancel()
            await asyncio.wait([self._removal])
