"""Memory as a backend: below a near cache or write-back, and as a model for other backends.

``memory://`` on its own is served without it: the engine works on the `ItemTable` directly.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

from memlite.backends.base import ANY, Anything, Backend
from memlite.backends.conversion import item_of, record_of
from memlite.backends.record import Record, Versioned
from memlite.backends.registry import BackendUrl, Context
from memlite.core.errors import ConfigError, OutOfMemoryError, VersionConflict
from memlite.memory.eviction import POLICIES
from memlite.memory.item import FullItem, Item, line_of
from memlite.memory.table import ItemTable

__all__ = ["MemoryBackend", "make"]

# Records yielded by scan before other tasks get a turn.
_SCANNED_AT_ONCE = 100


class MemoryBackend(Backend):
    """Items in a table; beyond a number of bytes it evicts, or refuses to store."""

    table: ItemTable
    ordered = True

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self.table = ItemTable(
            context.memory_limit,
            evict=context.evict,
            on_evict=context.on_evict,
            policy=POLICIES[context.eviction],
        )
        self._version = 0
        self._flush_at = 0.0

    def peek_item(self, line: bytes) -> Item | None:
        """Return the item that a request line asks for."""
        self._flush_if_due()
        return self.table.get_by_line(line)

    def peek(self, key: bytes) -> Record | None:
        """Return the record of `key`."""
        item = self.peek_item(line_of(key))
        return None if item is None else record_of(key, item)

    async def get(self, key: bytes) -> Record | None:
        """Return the record of `key`."""
        return self.peek(key)

    async def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> int:
        """Store a record; see `Backend.put`."""
        key = record.key
        self._check(key, replacing)
        old = self.table.delete(key)
        self._version += 1
        item = item_of(record, FullItem)
        item.version = self._version
        try:
            self.table.put(key, item)
        except OutOfMemoryError:
            if replacing is not ANY:  # an unconditional set removes an item it could not replace
                self.table.restore(key, old)
            raise
        return self._version

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        """Remove the record of `key`; see `Backend.delete`."""
        self._check(key, replacing)
        self.table.delete(key)

    def _check(self, key: bytes, replacing: Versioned | Anything | None) -> None:
        self._flush_if_due()
        if replacing is ANY:
            return
        current = self.table.get(key)
        if (current and current.version) != (replacing and replacing.version):
            raise VersionConflict

    async def flush(self, at: float = 0.0) -> None:
        """Make all records absent, now or at the unix time `at`."""
        self._flush_at = at
        if not at:
            self.table.flush()

    def _flush_if_due(self) -> None:
        if self._flush_at and self._flush_at <= self._clock.now():
            self._flush_at = 0.0
            self.table.flush()

    async def scan(self) -> AsyncIterator[Record]:
        """Yield every record."""
        self._flush_if_due()
        for number, key in enumerate(self.table.list_keys(), 1):
            item = self.table.get(key)
            if item is not None:
                yield record_of(key, item)
            if not number % _SCANNED_AT_ONCE:
                await asyncio.sleep(0)

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the number of items and their bytes."""
        return {"items": len(self.table), "bytes": self.table.used}


def make(url: BackendUrl, context: Context) -> Backend:
    """Make a backend from a ``memory://`` URL."""
    url.only()
    if url.host or url.path.strip("/"):
        raise ConfigError(f"--backend: memory:// takes no path, not {url.text!r}")
    return MemoryBackend(context)
