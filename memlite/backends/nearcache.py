"""A cache in memory that answers reads for some seconds in place of a slow backend."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.conversion import item_of, record_of
from memlite.backends.record import Record, Versioned
from memlite.core.clock import Clock
from memlite.core.errors import OutOfMemoryError
from memlite.memory.item import FETCHED, STATE_BITS, FullItem, Item, key_of, line_of
from memlite.memory.table import ItemTable

__all__ = ["Copy", "NearCache"]

_Found = TypeVar("_Found", bound=Item | Record | Unknown | None)
_Stored = TypeVar("_Stored", bound=Item | Record)


class Copy(FullItem):
    """A copy of a record that was read or written.

    Attributes:
        until: unix time in seconds up to which it may be served.
    """

    __slots__ = ("until",)

    object_size = 80 + 32  # including `until`

    until: float


class NearCache(Backend):
    """Keeps copies of records that were read or written, and answers reads from them.

    A copy is at most `ttl` seconds old. Changes made through this server are visible at once;
    changes made through other servers are visible after `ttl` seconds at the latest, or as soon as
    the backend reports them, if it does. Once a read has shown a state, no later read through this
    server shows an older one, whether it uses a copy or not. Conditional writes never depend on a
    copy. Concurrent reads of a key without a copy become one request to the backend.

    Args:
        inner: the slow backend.
        size: bytes of memory for the copies.
        ttl: seconds for which a copy may be served.
        clock: determines the age of copies.
    """

    table: ItemTable

    def __init__(self, inner: Backend, size: int, *, ttl: float, clock: Clock) -> None:
        self.inner = inner
        self.table = ItemTable(size)
        self.ordered = inner.ordered
        self._ttl = ttl
        self._clock = clock
        self._hits = self._misses = self._told = 0
        # Requests in progress that later reads of the same key may share, when they began, and
        # the key's mark then.
        self._fetches: dict[bytes, tuple[asyncio.Task[Record | None], float, int]] = {}
        # The number of writes in progress for each key.
        self._writes: dict[bytes, int] = {}
        # Keys of which no copy may be kept: the stored state may not be the latest when the
        # write ends.
        self._overlapped: set[bytes] = set()
        self._flush_at = 0.0

    async def open(self) -> None:
        """Open the inner backend."""
        self.inner.watch(self._changed)
        await self.inner.open()

    async def close(self) -> None:
        """Wait for the reads in progress, and close the inner backend."""
        if self._fetches:
            await asyncio.wait([task for task, *_ in self._fetches.values()])
        await self.inner.close()

    def _changed(self, key: bytes | None) -> None:
        """Forget a key's state, or all states, as another server may have changed it."""
        self._told += 1
        if key is None:
            self._forget_all()
            return
        self._fetches.pop(key, None)
        self.table.delete(key)
        if key in self._writes:
            self._overlapped.add(key)

    # Reads that need the current state go to the inner backend

    def peek(self, key: bytes) -> Record | Unknown | None:
        """Return the state that the inner backend knows."""
        return self._shown(key, self.inner.peek(key))

    def peek_item(self, line: bytes) -> Item | Record | Unknown | None:
        """Return the inner backend's state in memory; the copy if it is the same.

        Reads leave their marks on the item that is returned, and the copy keeps them.
        """
        found = self._shown(key_of(line), self.inner.peek_item(line))
        if found is UNKNOWN:
            return found
        return self.table.get(key_of(line)) or found

    def unsettled(self, keys: Iterable[bytes]) -> Awaitable[object] | None:
        """Return an awaitable for the changes that the inner backend is still writing."""
        return self.inner.unsettled(keys)

    async def get(self, key: bytes) -> Record | None:
        """Ask the inner backend."""
        mark = self._mark(key)
        found = await self.inner.get(key)
        self._agree(key, found, mark)
        return self._shown(key, found)

    def _shown(self, key: bytes, found: _Found) -> _Found:
        """Return a state that the inner backend has shown, once nothing can show an older one.

        Versions have no order, so any other state may be older: that of the copy, of a fetch in
        progress, or of a write in progress.
        """
        if found is not UNKNOWN:
            self._fetches.pop(key, None)
            if key in self._writes:
                self._overlapped.add(key)
            copy = self.table.get(key)
            if copy is not None:
                if isinstance(found, Item | Record) and _same(copy, found):
                    return _with_use_of(copy, found)
                self.table.delete(key)
        return found

    # Reads that a copy may answer

    def peek_cached_item(self, line: bytes) -> Item | Record | Unknown | None:
        """Return the copy if it is recent enough."""
        if self._flush_at and self._flush_at <= self._clock.now():
            self._flush_at = 0.0
            self._forget_all()
        item = self.table.get_by_line(line)
        if isinstance(item, Copy):
            if item.until > self._clock.now():
                self._hits += 1
                return item
            self.table.delete(key_of(line))
        found = self.inner.peek_cached_item(line)
        return found if found is UNKNOWN else self._shown(key_of(line), found)

    def peek_cached(self, key: bytes) -> Record | Unknown | None:
        """Return the content of the copy if it is recent enough."""
        found = self.peek_cached_item(line_of(key))
        return record_of(key, found) if isinstance(found, Item) else found

    async def get_cached(self, key: bytes) -> Record | None:
        """Return the content of the copy, or ask the inner backend and keep a copy."""
        record = self.peek_cached(key)
        if record is not UNKNOWN:
            return record
        self._misses += 1
        now, mark = self._clock.now(), self._mark(key)
        fetch, began, begun_under = self._fetches.get(key, (None, now, mark))
        # A copy's age counts from the start of the request, as the answer may be that old.
        if fetch is None or began + self._ttl < now or begun_under != mark:
            fetch = asyncio.ensure_future(self._fetch(key, now, mark))
            self._fetches[key] = fetch, now, mark
            # If every reader was cancelled, the failure goes unnoticed, which is fine.
            fetch.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Shielded, because other readers share it: a cancelled reader must not cancel the request.
        return await asyncio.shield(fetch)

    async def _fetch(self, key: bytes, began: float, mark: int) -> Record | None:
        this = asyncio.current_task(), began, mark
        try:
            record = await self.inner.get_cached(key)
            current = self._fetches.get(key) == this
            agreed = self._agree(key, record, mark)
            self._shown(key, record)
            if record is not None and current and agreed is not None:
                self._keep(record, began, agreed)
            return record
        finally:
            if self._fetches.get(key) == this:
                del self._fetches[key]

    def _keep(self, record: Record, since: float, mark: int) -> None:
        copy = self._copy_of(record, mark)
        copy.until = since + self._ttl
        self.table.delete(record.key)
        with contextlib.suppress(OutOfMemoryError):  # larger than the whole near cache
            self.table.put(record.key, copy)

    # Writes

    async def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> int:
        """Store a record in the inner backend, and then keep a copy."""
        key = record.key
        mark = self._mark(key)
        since = self._begin(key)
        stored: Record | None = None
        try:
            version = await self.inner.put(record, replacing)
            stored = record._replace(version=version)
        finally:
            self._end(key, stored, since, mark)
        return version

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        """Remove the record from the inner backend, and its copy."""
        mark = self._mark(key)
        since = self._begin(key)
        try:
            await self.inner.delete(key, replacing)
        finally:
            self._end(key, None, since, mark)

    def _begin(self, key: bytes) -> float:
        self._fetches.pop(key, None)  # it may return the state before this write
        in_progress = self._writes[key] = self._writes.get(key, 0) + 1
        if in_progress > 1:
            self._overlapped.add(key)
        return self._clock.now()

    def _end(self, key: bytes, stored: Record | None, since: float, mark: int) -> None:
        """Keep a copy of the stored record if it is certainly the current one."""
        agreed = self._agree(key, stored, mark)
        self._fetches.pop(key, None)
        in_progress = self._writes.pop(key) - 1
        if in_progress:
            self._writes[key] = in_progress
        if stored is None or agreed is None or key in self._overlapped:
            # The write failed, or only the backend knows whether another state came after it.
            self.table.delete(key)
        else:
            self._keep(stored, since, agreed)
        if not in_progress:
            self._overlapped.discard(key)

    async def flush(self, at: float = 0.0) -> None:
        """Flush the inner backend and the copies."""
        try:
            await self.inner.flush(at)
            self._flush_copies(at)
        finally:
            if not at:  # even if it is unknown whether the backend has flushed
                self._forget_everywhere()

    def _forget_all(self) -> None:
        self.table.flush()
        self._fetches.clear()
        self._overlapped.update(self._writes)

    # Hooks for coherence with other processes; see `memlite.backends.coherent`

    def _mark(self, key: bytes) -> int:
        """Return the mark of a key, which changes when other processes show or change its state."""
        return 0

    def _agree(self, key: bytes, found: Record | None, mark: int) -> int | None:
        """Announce the state of a key; return the mark for a copy, None if none may be kept."""
        return 0

    def _copy_of(self, record: Record, mark: int) -> Copy:
        return item_of(record, Copy)

    def _flush_copies(self, at: float) -> None:
        """Forget all copies at a unix time; 0 for never."""
        self._flush_at = at

    def _forget_everywhere(self) -> None:
        self._forget_all()

    # Housekeeping

    async def scan(self) -> AsyncIterator[Record]:
        """Yield the inner backend's records, updated with the reads that copies answered."""
        async for record in self.inner.scan():
            copy = self.table.get(record.key)
            if copy is not None and _same(copy, record):
                yield _with_use_of(copy, record)
            else:
                yield record

    def measure(self, record: Callable[[str, str, int], None]) -> None:
        """Let the inner backend report how long requests take."""
        self.inner.measure(record)

    def tick(self) -> None:
        """Let the inner backend do its periodic work."""
        self.inner.tick()

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the inner backend's statistics, and the number of reads answered by copies."""
        return {
            **self.inner.stats(),
            "near_items": len(self.table),
            "near_bytes": self.table.used,
            "near_limit": self.table.limit,
            "near_ttl": self._ttl,
            "near_hits": self._hits,
            "near_misses": self._misses,
            "near_invalidations": self._told,
        }


def _same(copy: Item, found: Item | Record) -> bool:
    """Return whether a copy is of this state; a flushed state has another expiry."""
    return copy.version == found.version and copy.expires == found.expires


def _with_use_of(copy: Item, found: _Stored) -> _Stored:
    """Return a state updated with the reads that its copy answered, unknown to the backend.

    Items in the backend's memory are updated in place: its eviction depends on that, too.
    """
    if not copy.fetched:
        return found
    if isinstance(found, Item):
        flags = found.state & ((1 << STATE_BITS) - 1)
        found.state = (copy.state >> STATE_BITS << STATE_BITS) | flags | FETCHED
        return found
    return found._replace(fetched=True, accessed=max(found.accessed, copy.accessed))
