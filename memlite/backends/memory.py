"""Memory as a backend like the others: for a near cache to stand before, and to copy from.

``memory://`` by itself is served without it: the engine works on the `ItemTable` directly.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

from memlite.backends.base import ANY, Anything, Backend
from memlite.backends.eviction import POLICIES
from memlite.backends.item import FullItem, Item, key_of
from memlite.backends.registry import BackendUrl, Context
from memlite.backends.table import ItemTable
from memlite.errors import ConfigError, OutOfMemoryError, VersionConflict

__all__ = ["MemoryBackend", "make"]

# Items yielded by scan before others have their turn.
_SCANNED_AT_ONCE = 100


class MemoryBackend(Backend):
    """Items in a table that evicts, or refuses, beyond a number of bytes."""

    table: ItemTable
    ordered = True

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self.table = ItemTable(
            context.memory_limit,
            evict=context.evict,
            on_evict=self._tell_evicted,
            policy=POLICIES[context.eviction],
        )
        self._on_evict = context.on_evict
        self._version = 0
        self._flush_at = 0.0

    def _tell_evicted(self, gone: list[tuple[bytes, Item, int]]) -> None:
        for line, item, _ in gone:
            self._on_evict(key_of(line), item)

    def peek(self, key: bytes) -> Item | None:
        """Return what is stored under `key`."""
        self._flush_if_due()
        return self.table.get(key)

    async def get(self, key: bytes) -> Item | None:
        """Return what is stored under `key`."""
        return self.peek(key)

    async def put(
        self, key: bytes, item: FullItem, replacing: Item | Anything | None = ANY
    ) -> None:
        """Store `item`; see `Backend.put`."""
        self._expect(key, replacing)
        old = self.table.delete(key)
        self._version += 1
        item.version = self._version
        try:
            self.table.put(key, item)
        except OutOfMemoryError:
            if replacing is not ANY:  # what set could not replace must not be served as current
                self.table.restore(key, old)
            raise

    async def delete(self, key: bytes, replacing: Item | Anything = ANY) -> None:
        """Remove what is stored under `key`; see `Backend.delete`."""
        self._expect(key, replacing)
        self.table.delete(key)

    def _expect(self, key: bytes, replacing: Item | Anything | None) -> None:
        current = self.peek(key)  # first of all, as it carries out a flush that is due
        if replacing is ANY:
            return
        if (current and current.version) != (replacing and replacing.version):
            raise VersionConflict

    async def flush(self, at: float = 0.0) -> None:
        """Make everything absent, now or at the unix time `at`."""
        self._flush_at = at
        if not at:
            self.table.flush()

    def _flush_if_due(self) -> None:
        if self._flush_at and self._flush_at <= self._clock.now():
            self._flush_at = 0.0
            self.table.flush()

    async def scan(self) -> AsyncIterator[tuple[bytes, Item]]:
        """Yield every key and item."""
        self._flush_if_due()
        for number, key in enumerate(self.table.list_keys(), 1):
            item = self.peek(key)
            if item is not None:
                yield key, item
            if not number % _SCANNED_AT_ONCE:
                await asyncio.sleep(0)

    def stats(self) -> Mapping[str, int | float | str]:
        """Return how many items there are, and their bytes."""
        return {"items": len(self.table), "bytes": self.table.used}


def make(url: BackendUrl, context: Context) -> Backend:
    """Make a backend of a ``memory://`` URL."""
    url.only()
    if url.host or url.path.strip("/"):
        raise ConfigError(f"--backend: memory:// takes no path, not {url.text!r}")
    return MemoryBackend(context)
