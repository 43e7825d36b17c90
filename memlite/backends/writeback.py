"""Sets answered before they are stored, and stored soon after, the last of several alone."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.eviction import cost
from memlite.backends.item import FullItem, Item
from memlite.clock import Clock
from memlite.errors import MemliteError, StorageError, VersionConflict

__all__ = ["WriteBack"]

_log = logging.getLogger("memlite")

# Seconds of failing after which sets are no longer answered before they are stored, those for
# which the end of the server is put off to store what is held, and those between two tries.
_OVERDUE_SECONDS = 5.0
_CLOSE_SECONDS = 15.0
_RETRY_SECONDS = 0.5
_AT_ONCE = 64


class _Held(FullItem):
    """An item that is not stored yet.

    Attributes:
        due: unix time in seconds at which it is to be stored.
        failing_since: unix time in seconds from which on its key could not be stored; 0 if it
            was not tried.
        flushed: whether it is not to be stored any more.
        cost: bytes of memory it was taken in with; a version, once it has one, adds to them.
    """

    __slots__ = ("cost", "due", "failing_since", "flushed")

    memory = 96

    cost: int
    due: float
    failing_since: float
    flushed: bool


class WriteBack(Backend):
    """Holds what set stores for `delay` seconds, in front of a slow backend.

    Of several sets of one key within that time only the last is stored: a bucket takes one write
    a second for each object. Conditional changes and removals are never held: what is held under
    their key is stored first, and then they are carried out.

    What is held is lost if the process dies. While the backend fails it is kept and tried again;
    but when that has lasted some seconds, for the key or for all, or more than `limit` bytes are
    held, sets go straight to the backend, and its errors to the client.

    Args:
        inner: the backend behind.
        limit: bytes that may be held: keys, values, and what an item costs beside them.
        delay: seconds for which an item is held.
        clock: tells the time.
    """

    def __init__(self, inner: Backend, *, limit: int, clock: Clock, delay: float = 1.0) -> None:
        self.inner = inner
        self.table = inner.table
        self.ordered = inner.ordered
        self._limit = limit
        self._delay = delay
        self._clock = clock
        self._held: dict[bytes, _Held] = {}  # in the order in which they are due
        self._stores: dict[bytes, tuple[_Held, asyncio.Task[MemliteError | None]]] = {}
        self._bytes = 0  # of both
        self._writer: asyncio.Task[None] | None = None
        self._something_held = asyncio.Event()
        # A flush waits for what is being stored, and nothing else is until it is through.
        self._flush_turn = asyncio.Lock()
        self._may_store = asyncio.Event()
        self._may_store.set()
        self._failing_since = 0.0
        self._flush_at = 0.0
        self._coalesced = self._failed = 0

    async def open(self) -> None:
        """Open the backend."""
        await self.inner.open()
        self._writer = asyncio.ensure_future(self._store_when_due())

    async def close(self) -> None:
        """Store what is held, for as long as is reasonable, and close the backend."""
        if self._writer is not None:
            self._writer.cancel()
        try:
            # The loop's time and not the clock's, which somebody may move.
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._held or self._stores:
                    await self._store_all()
                    if self._held:
                        await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            lost = len(self._held.keys() | self._stores.keys())
            _log.error("%d items are lost: they could not be stored", lost)
            await self._give_up()
        finally:
            await self.inner.close()

    async def _give_up(self) -> None:
        tasks = [task for _, task in self._stores.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

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

    def unsettled(self, keys: Iterable[bytes]) -> Awaitable[object] | None:
        """Return what is behind has to be waited for."""
        return self.inner.unsettled(keys)

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
        """Store what is held, as far as that goes, and yield what the backend has."""
        await self._store_all()
        async for key, item in self.inner.scan():
            yield key, item

    # Changes

    def put(
        self, key: bytes, item: FullItem, replacing: Item | Anything | None = ANY
    ) -> Awaitable[None]:
        """Hold `item` (its version is 0) if it may replace anything; otherwise store it."""
        if replacing is ANY and not self._must_not_wait(key, item):
            self._hold(key, item)
            held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            held.set_result(None)
            return held
        return self._change(key, lambda: self.inner.put(key, item, replacing), replacing is ANY)

    def _must_not_wait(self, key: bytes, item: Item) -> bool:
        self._drop_if_flushed()
        before = self._held.get(key)
        room = self._limit - self._bytes + (before.cost if before else 0)
        return cost(key, item) > room or any(
            since and since + _OVERDUE_SECONDS < self._clock.now()
            for since in (self._failing_since, self._key_failing_since(key))
        )

    def _key_failing_since(self, key: bytes) -> float:
        held = self._held.get(key) or self._stores.get(key, (None,))[0]
        return held.failing_since if held else 0.0

    def _hold(self, key: bytes, item: Item) -> None:
        held = _Held.like(item)
        held.flushed = False
        held.failing_since = self._key_failing_since(key)
        before = self._held.get(key)
        if before is None:
            held.due = self._clock.now() + self._delay
        else:
            held.due = before.due  # or one that is set all the time would never be stored
            self._bytes -= before.cost
            self._coalesced += 1
        self._held[key] = held
        held.cost = cost(key, held)
        self._bytes += held.cost
        self._something_held.set()

    def delete(self, key: bytes, replacing: Item | Anything = ANY) -> Awaitable[None]:
        """Remove from the backend."""
        return self._change(key, lambda: self.inner.delete(key, replacing), replacing is ANY)

    async def _change(
        self, key: bytes, change: Callable[[], Awaitable[None]], whatever_is_there: bool
    ) -> None:
        """Carry out a change behind what is held under its key.

        Args:
            key: what is changed.
            change: does it.
            whatever_is_there: whether what is held need not be stored first, as it is
                overwritten. It is kept until that has succeeded: if it fails what is held was
                the last that was acknowledged.
        """
        if whatever_is_there:
            if key in self._stores:
                await asyncio.wait([self._stores[key][1]])
            await self._until_it_may_be_stored(key)
            if key in self._held and key not in self._stores:
                self._raise(await asyncio.shield(self._start(key, change)))
                return
        await self._store(key)
        await change()
        self._failing_since = 0.0

    async def flush(self, at: float = 0.0) -> None:
        """Flush the backend, and forget what is held, now or then."""
        async with self._flush_turn:
            if at:
                await self.inner.flush(at)
                self._flush_at = at
                return
            self._may_store.clear()
            try:
                if self._stores:
                    await asyncio.wait([task for _, task in self._stores.values()])
                before = dict(self._held)
                await self.inner.flush()
                self._flush_at = 0.0
                self._forget(key for key, held in before.items() if self._held.get(key) is held)
            finally:
                self._may_store.set()

    def _drop_if_flushed(self) -> None:
        if self._flush_at and self._flush_at <= self._clock.now():
            self._flush_at = 0.0
            self._forget(list(self._held))
            for held, _ in self._stores.values():
                held.flushed = True
                held.expires = 1.0  # long ago: as good as gone

    def _forget(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._bytes -= self._held.pop(key).cost

    # Storing

    async def _store_when_due(self) -> None:
        while True:
            await self._something_held.wait()
            self._drop_if_flushed()
            now = self._clock.now()
            await self._store_each([key for key, held in self._held.items() if held.due <= now])
            if self._held:
                # Not to the moment: what becomes due together is stored together.
                await asyncio.sleep(self._delay / 8)
            else:
                self._something_held.clear()

    async def _store_each(self, keys: Iterable[bytes]) -> None:
        """Begin to store what is held under these, so many at once."""
        for key in keys:
            while len(self._stores) >= _AT_ONCE:
                await asyncio.wait(
                    [task for _, task in self._stores.values()],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            await self._until_it_may_be_stored(key)
            if key in self._held and key not in self._stores:
                self._start(key)

    async def _store_all(self) -> None:
        """Return once each item that is held was stored, or tried to be."""
        self._drop_if_flushed()
        await self._store_each(list(self._held))
        if self._stores:
            await asyncio.wait([task for _, task in self._stores.values()])

    async def _store(self, key: bytes) -> None:
        """Return once what is held under `key` now is stored. Raises what the backend raises.

        What is set meanwhile may be held on: of one that is set all the time there is no end.
        """
        self._drop_if_flushed()
        for _ in range((key in self._stores) + (key in self._held)):
            await self._until_it_may_be_stored(key)
            if key in self._stores:
                task = self._stores[key][1]
            elif key in self._held:
                task = self._start(key)
            else:
                return
            self._raise(await asyncio.shield(task))

    async def _until_it_may_be_stored(self, key: bytes) -> None:
        while key in self._held and not self._may_store.is_set():
            await self._may_store.wait()

    @staticmethod
    def _raise(error: MemliteError | None) -> None:
        if error is not None:
            raise error

    def _start(
        self, key: bytes, change: Callable[[], Awaitable[None]] | None = None
    ) -> asyncio.Task[MemliteError | None]:
        """Store what is held under `key`, or carry out a change in its stead."""
        held = self._held.pop(key)
        task = asyncio.ensure_future(self._store_one(key, held, change))
        self._stores[key] = held, task
        return task

    async def _store_one(
        self, key: bytes, held: _Held, change: Callable[[], Awaitable[None]] | None
    ) -> MemliteError | None:
        error: MemliteError | None = None
        stored = FullItem.like(held)
        try:
            await (self.inner.put(key, stored) if change is None else change())
            self._drop_if_flushed()
            if held.flushed and change is None:
                # The flush may have come to the backend before it.
                with contextlib.suppress(VersionConflict):
                    await self.inner.delete(key, stored)
        except MemliteError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - a backend's bug: what is held is kept
            _log.exception("storing what is held failed")
            error = StorageError("internal error")
            error.__cause__ = failure
        finally:
            del self._stores[key]
        if error is None:
            self._failing_since = 0.0
            self._coalesced += change is not None
            held.failing_since = 0.0
        else:
            self._note_failure(error)
            held.failing_since = held.failing_since or self._clock.now()
        self._drop_if_flushed()
        newer = self._held.get(key)
        if newer is not None:
            newer.failing_since = held.failing_since
        elif error is not None and not held.flushed:
            held.due = self._clock.now() + _RETRY_SECONDS
            self._held[key] = held
            self._something_held.set()
            return error
        self._bytes -= held.cost
        return error

    def _note_failure(self, error: MemliteError) -> None:
        self._failed += 1
        if not self._failing_since:
            self._failing_since = self._clock.now()
            _log.warning("what is held cannot be stored: %s", error)

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
