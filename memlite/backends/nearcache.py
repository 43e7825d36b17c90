"""Memory in front of a slow backend: reads answered near by, for a bounded time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.item import FullItem, Item
from memlite.backends.table import ItemTable
from memlite.clock import Clock
from memlite.errors import OutOfMemoryError

__all__ = ["NearCache"]


class _Copy(FullItem):
    """An item as it was read or written.

    Attributes:
        until: unix time in seconds up to which it may be shown.
    """

    __slots__ = ("until",)

    memory = 80 + 32  # with the time

    until: float


class NearCache(Backend):
    """Keeps copies of what was read and written, and answers reads from them.

    A copy is at most `ttl` seconds old; changes made through this server are seen at once, those
    made through others after that time at the latest. What a change depends on is never taken
    from a copy. Concurrent reads of a key that is not near ask the backend once.

    Args:
        inner: the backend behind.
        size: bytes the copies may take; the oldest unused go first.
        ttl: seconds a copy may be shown.
        clock: tells how old copies are.
    """

    table: ItemTable

    def __init__(self, inner: Backend, size: int, *, ttl: float, clock: Clock) -> None:
        self.inner = inner
        self.table = ItemTable(size)
        self.ordered = inner.ordered
        self._ttl = ttl
        self._clock = clock
        self._hits = self._misses = 0
        # Those that later reads of their key may wait for, and when they asked.
        self._fetches: dict[bytes, tuple[asyncio.Task[Item | None], float]] = {}
        # Keys being written, each with the number of writes under way.
        self._writes: dict[bytes, int] = {}
        self._overlapped: set[bytes] = set()
        self._flush_at = 0.0

    async def open(self) -> None:
        """Open the backend."""
        await self.inner.open()

    async def close(self) -> None:
        """Close the backend, after the reads under way."""
        if self._fetches:
            await asyncio.wait([task for task, _ in self._fetches.values()])
        await self.inner.close()

    # Reads that need the truth

    def peek(self, key: bytes) -> Item | Unknown | None:
        """Ask the backend."""
        return self.inner.peek(key)

    def unsettled(self, keys: Iterable[bytes]) -> Awaitable[object] | None:
        """Return what is behind has to be waited for."""
        return self.inner.unsettled(keys)

    async def get(self, key: bytes) -> Item | None:
        """Ask the backend."""
        return await self.inner.get(key)

    # Reads that a copy may answer

    def peek_cached(self, key: bytes) -> Item | Unknown | None:
        """Return the copy, if there is one and it is not too old."""
        if self._flush_at and self._flush_at <= self._clock.now():
            self._flush_at = 0.0
            self._forget_all()
        item = self.table.get(key)
        if isinstance(item, _Copy):
            if item.until > self._clock.now():
                self._hits += 1
                return item
            self.table.delete(key)
        return self.inner.peek_cached(key)

    async def get_cached(self, key: bytes) -> Item | None:
        """Return the copy, or ask the backend and keep what it says."""
        item = self.peek_cached(key)
        if item is not UNKNOWN:
            return item
        self._misses += 1
        now = self._clock.now()
        fetch, asked = self._fetches.get(key, (None, now))
        # The age counts from before the question: the answer may be as old as that.
        if fetch is None or asked + self._ttl < now:
            fetch = asyncio.ensure_future(self._fetch(key, now))
            self._fetches[key] = fetch, now
            # If nobody waits for it any more nobody is told of its failure, and that is all right.
            fetch.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Others wait for it too: who is cancelled must not take it along.
        return await asyncio.shield(fetch)

    async def _fetch(self, key: bytes, asked: float) -> Item | None:
        this = asyncio.current_task(), asked
        try:
            item = await self.inner.get_cached(key)
            if item is not None and self._fetches.get(key) == this:
                self._keep(key, item, asked)
            return item
        finally:
            if self._fetches.get(key) == this:
                del self._fetches[key]

    def _keep(self, key: bytes, item: Item, since: float) -> None:
        copy = _Copy.like(item, item.version)
        copy.until = since + self._ttl
        self.table.delete(key)
        with contextlib.suppress(OutOfMemoryError):  # larger than the whole near cache
            self.table.put(key, copy)

    # Changes

    async def put(
        self, key: bytes, item: FullItem, replacing: Item | Anything | None = ANY
    ) -> None:
        """Store in the backend, and then near by."""
        since = self._begin(key)
        kept = False
        try:
            await self.inner.put(key, item, replacing)
            kept = True
        finally:
            self._end(key, item if kept else None, since)

    async def delete(self, key: bytes, replacing: Item | Anything = ANY) -> None:
        """Remove from the backend, and near by."""
        since = self._begin(key)
        try:
            await self.inner.delete(key, replacing)
        finally:
            self._end(key, None, since)

    def _begin(self, key: bytes) -> float:
        self._fetches.pop(key, None)  # it may bring what was there before
        under_way = self._writes[key] = self._writes.get(key, 0) + 1
        if under_way > 1:
            self._overlapped.add(key)
        return self._clock.now()

    def _end(self, key: bytes, item: Item | None, since: float) -> None:
        """Keep what was written, if it is certain to be what is there."""
        self._fetches.pop(key, None)
        under_way = self._writes.pop(key) - 1
        if under_way:
            self._writes[key] = under_way
        if item is None or key in self._overlapped:
            # Failed, or which of several writes came last is the backend's secret.
            self.table.delete(key)
        else:
            self._keep(key, item, since)
        if not under_way:
            self._overlapped.discard(key)

    async def flush(self, at: float = 0.0) -> None:
        """Flush the backend, and near by."""
        await self.inner.flush(at)
        self._flush_at = at
        if not at:
            self._forget_all()

    def _forget_all(self) -> None:
        self.table.flush()
        self._fetches.clear()
        self._overlapped.update(self._writes)

    def scan(self) -> AsyncIterator[tuple[bytes, Item]]:
        """Yield what the backend has."""
        return self.inner.scan()

    def tick(self) -> None:
        """Do what is due behind."""
        self.inner.tick()

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the backend's, and how often a copy was enough."""
        return {
            **self.inner.stats(),
            "near_items": len(self.table),
            "near_bytes": self.table.used,
            "near_limit": self.table.limit,
            "near_ttl": self._ttl,
            "near_hits": self._hits,
            "near_misses": self._misses,
        }
