"""Sets answered before they are stored, and stored soon after, the last of several alone."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Item, Unknown
from memlite.clock import Clock
from memlite.errors import MemliteError

__all__ = ["WriteBack"]

_log = logging.getLogger("memlite")

# Seconds of failing after which sets are no longer answered before they are stored, those for
# which the end of the server is put off to store what is held, and those between two tries.
_OVERDUE_SECONDS = 5.0
_CLOSE_SECONDS = 15.0
_RETRY_SECONDS = 0.5
_AT_ONCE = 64


class _Held(Item):
    """An item that is not stored yet.

    Attributes:
        due: unix time in seconds at which it is to be stored.
    """

    __slots__ = ("due",)

    due: float


class WriteBack(Backend):
    """Holds what set stores for `delay` seconds, in front of a slow backend.

    Of several sets of one key within that time only the last is stored: a bucket takes one write
    a second for each object. Conditional changes and removals are never held: what is held under
    their key is stored first, and then they are carried out.

    What is held is lost if the process dies. While the backend fails it is kept and tried again;
    but when that has lasted some seconds, or more than `limit` bytes are held, sets go straight
    to the backend, and its errors to the client.

    Args:
        inner: the backend behind.
        limit: bytes that may be held.
        delay: seconds for which an item is held.
        clock: tells the time.
    """

    def __init__(self, inner: Backend, *, limit: int, clock: Clock, delay: float = 1.0) -> None:
        self.inner = inner
        self.table = inner.table
        self._limit = limit
        self._delay = delay
        self._clock = clock
        self._held: dict[bytes, _Held] = {}  # in the order in which they are due
        self._stores: dict[bytes, tuple[_Held, asyncio.Task[MemliteError | None]]] = {}
        self._bytes = 0  # of both
        self._writer: asyncio.Task[None] | None = None
        self._something_held = asyncio.Event()
        self._failing_since = 0.0
        self._flush_at = 0.0
        self._coalesced = self._failed = self._flushes = 0

    async def open(self) -> None:
        """Open the backend."""
        await self.inner.open()
        self._writer = asyncio.ensure_future(self._store_when_due())

    async def close(self) -> None:
        """Store what is held, for as long as is reasonable, and close the backend."""
        if self._writer is not None:
            self._writer.cancel()
        deadline = self._clock.now() + _CLOSE_SECONDS
        try:
            while (self._held or self._stores) and self._clock.now() < deadline:
                await self._store_all()
                if self._held:
                    await asyncio.sleep(_RETRY_SECONDS)
            if self._held:
                _log.error("%d items are lost: they could not be stored", len(self._held))
        finally:
            await self.inner.close()

    # Reads

    def _find(self, key: bytes) -> Item | None:
        self._drop_if_flushed()
        held: Item | None = self._held.get(key)
        if held is None and key in self._stores:
            held = self._stores[key][0]
        return held

    def peek(self, key: bytes) -> Item | Unknown | None:
        """Ask the backend, if it is up to date."""
        return UNKNOWN if self._find(key) else self.inner.peek(key)

    async def get(self, key: bytes) -> Item | None:
        """Store what is held under `key`, and ask the backend."""
        await self._store(key)
        return await self.inner.get(key)

    def peek_cached(self, key: bytes) -> Item | Unknown | None:
        """Return what is held under `key`, or ask the backend."""
        return self._find(key) or self.inner.peek_cached(key)

    async def get_cached(self, key: bytes) -> Item | None:
        """Return what is held under `key`, or ask the backend."""
        return self._find(key) or await self.inner.get_cached(key)

    async def scan(self) -> AsyncIterator[tuple[bytes, Item]]:
        """Store what is held, and yield what the backend has."""
        await self._store_all()
        async for key, item in self.inner.scan():
            yield key, item

    # Changes

    def put(
        self, key: bytes, item: Item, replacing: Item | Anything | None = ANY
    ) -> Awaitable[None]:
        """Hold `item` (its version is 0) if it may replace anything; otherwise store it."""
        if replacing is ANY and not self._must_not_wait(item):
            self._hold(key, item)
            held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            held.set_result(None)
            return held
        return self._put_now(key, item, replacing)

    def _must_not_wait(self, item: Item) -> bool:
        failing = self._failing_since
        return self._bytes + len(item.wire) > self._limit or (
            failing > 0 and failing + _OVERDUE_SECONDS < self._clock.now()
        )

    def _hold(self, key: bytes, item: Item) -> None:
        self._drop_if_flushed()
        before = self._held.get(key)
        if before is None:
            due = self._clock.now() + self._delay
        else:
            due = before.due  # or one that is set all the time would never be stored
            self._bytes -= len(before.wire)
            self._coalesced += 1
        self._held[key] = held = _Held.like(item)
        held.due = due
        self._bytes += len(item.wire)
        self._something_held.set()

    async def _put_now(self, key: bytes, item: Item, replacing: Item | Anything | None) -> None:
        await self._make_way(key, replacing is ANY)
        await self.inner.put(key, item, replacing)

    async def delete(self, key: bytes, replacing: Item | Anything = ANY) -> None:
        """Remove from the backend."""
        await self._make_way(key, replacing is ANY)
        await self.inner.delete(key, replacing)

    async def _make_way(self, key: bytes, whatever_is_there: bool) -> None:
        """Store what is held under `key`, or drop it if it is overwritten anyway."""
        if whatever_is_there:
            held = self._held.pop(key, None)
            if held is not None:
                self._bytes -= len(held.wire)
                self._coalesced += 1
        await self._store(key)

    async def flush(self, at: float = 0.0) -> None:
        """Forget what is held, now or then, and flush the backend."""
        self._flush_at = at
        if not at:
            self._forget_all()
            if self._stores:
                await asyncio.wait([task for _, task in self._stores.values()])
        await self.inner.flush(at)

    def _drop_if_flushed(self) -> None:
        if self._flush_at and self._flush_at <= self._clock.now():
            self._flush_at = 0.0
            self._forget_all()

    def _forget_all(self) -> None:
        self._bytes -= sum(len(held.wire) for held in self._held.values())
        self._held.clear()
        self._flushes += 1

    # Storing

    async def _store_when_due(self) -> None:
        while True:
            await self._something_held.wait()
            self._drop_if_flushed()
            now = self._clock.now()
            due = [key for key, held in self._held.items() if held.due <= now]
            for key in due:
                if key in self._stores:
                    continue
                while len(self._stores) >= _AT_ONCE:
                    await asyncio.wait(
                        [task for _, task in self._stores.values()],
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                if key in self._held and key not in self._stores:
                    self._start(key)
            if self._held:
                # Not to the moment: what becomes due together is stored together.
                await asyncio.sleep(self._delay / 8)
            else:
                self._something_held.clear()

    async def _store_all(self) -> None:
        self._drop_if_flushed()
        for key in list(self._held):
            if key not in self._stores:
                self._start(key)
        if self._stores:
            await asyncio.wait([task for _, task in self._stores.values()])

    async def _store(self, key: bytes) -> None:
        """Return once nothing is held under `key`. Raises what the backend raises."""
        self._drop_if_flushed()
        while key in self._stores or key in self._held:
            task = self._stores[key][1] if key in self._stores else self._start(key)
            error = await asyncio.shield(task)
            if error is not None:
                raise error

    def _start(self, key: bytes) -> asyncio.Task[MemliteError | None]:
        held = self._held.pop(key)
        task = asyncio.ensure_future(self._store_one(key, held))
        self._stores[key] = held, task
        return task

    async def _store_one(self, key: bytes, held: _Held) -> MemliteError | None:
        error: MemliteError | None = None
        flushes = self._flushes
        try:
            await self.inner.put(key, Item.like(held))
        except MemliteError as failure:
            error = failure
            self._failed += 1
            if not self._failing_since:
                self._failing_since = self._clock.now()
                _log.warning("what is held cannot be stored: %s", failure)
        else:
            self._failing_since = 0.0
        finally:
            del self._stores[key]
        if error is not None and key not in self._held and flushes == self._flushes:
            held.due = self._clock.now() + _RETRY_SECONDS
            self._held[key] = held
            self._something_held.set()
        else:
            self._bytes -= len(held.wire)
        return error

    # The rest

    def tick(self) -> None:
        """Let the backend do what is due."""
        self.inner.tick()

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the backend's, and what is held."""
        return {
            **self.inner.stats(),
            "write_back_items": len(self._held) + len(self._stores),
            "write_back_bytes": self._bytes,
            "write_back_limit": self._limit,
            "write_back_coalesced": self._coalesced,
            "write_back_failures": self._failed,
        }
