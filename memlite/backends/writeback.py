"""Write-back: sets are acknowledged before they are stored, and repeated sets are coalesced."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

from memlite.backends.base import ANY, UNKNOWN, Anything, Backend, Unknown
from memlite.backends.conversion import item_of, record_of
from memlite.backends.record import Record, Versioned
from memlite.core.clock import Clock
from memlite.core.errors import MemliteError, StorageError, UnconfirmedError, VersionConflict
from memlite.core.logs import failure as log_failure
from memlite.memory.eviction import cost
from memlite.memory.item import FullItem, Item, key_of

__all__ = ["WriteBack"]

_log = logging.getLogger("memlite")

# Seconds of failures after which sets are no longer acknowledged early; seconds for which shutdown
# is delayed to store the held items; and seconds between two attempts.
_OVERDUE_SECONDS = 5.0
_CLOSE_SECONDS = 15.0
_RETRY_SECONDS = 0.5
# Seconds between two warnings of changes that replicas have not confirmed.
_WARNING_SECONDS = 60.0
_AT_ONCE = 64

# The result of a write: for put, the new version.
_Result = object


class _Held(FullItem):
    """An item that is not stored yet.

    Attributes:
        due: unix time in seconds at which to store it.
        failing_since: unix time in seconds since when storing its key has failed; 0 if it has not.
        flushed: whether a flush has removed it while it was being stored.
        cost: bytes of memory that were accounted for it when it was added.
    """

    __slots__ = ("cost", "due", "failing_since", "flushed")

    object_size = 96

    cost: int
    due: float
    failing_since: float
    flushed: bool


class WriteBack(Backend):
    """Holds sets for `delay` seconds in front of a slow backend.

    Of several sets of one key within that time only the last is stored, as a bucket accepts only
    one write per second for each object. Conditional writes and deletes are never held: they are
    carried out after the held item of their key is stored.

    Held items are lost if the process dies. While the backend fails they are kept and retried. If
    that lasts for some seconds, for one key or for all of them, or if more than `limit` bytes are
    held, sets go straight to the backend and clients see its errors.

    A stored item that too few replicas have confirmed counts as stored: storing it again could undo
    later changes by others.

    Args:
        inner: the slow backend.
        limit: bytes of memory for the held items.
        delay: seconds for which an item is held.
        clock: returns the time.
    """

    def __init__(self, inner: Backend, *, limit: int, clock: Clock, delay: float = 1.0) -> None:
        self.inner = inner
        self.table = inner.table
        self.ordered = inner.ordered
        self._limit = limit
        self._delay = delay
        self._clock = clock
        self._held: dict[bytes, _Held] = {}  # in the order in which they are due
        self._stores: dict[bytes, tuple[_Held, asyncio.Task[_Result | MemliteError]]] = {}
        self._bytes = 0  # of both
        self._writer: asyncio.Task[None] | None = None
        self._something_held = asyncio.Event()
        # A flush waits for the stores in progress, and no other store begins before it is over.
        self._flush_turn = asyncio.Lock()
        self._may_store = asyncio.Event()
        self._may_store.set()
        self._failing_since = 0.0
        self._flush_at = 0.0
        self._coalesced = self._failed = 0
        self._warn_from = 0.0

    async def open(self) -> None:
        """Open the inner backend."""
        await self.inner.open()
        self._writer = asyncio.ensure_future(self._store_when_due())

    async def close(self) -> None:
        """Store the held items, within a time limit, and close the inner backend."""
        if self._writer is not None:
            self._writer.cancel()
        try:
            # The event loop's time, not the clock's, which can be set.
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._held or self._stores:
                    await self._store_all()
                    if self._held:
                        await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            lost = len(self._held.keys() | self._stores.keys())
            _log.error("lost %d items that could not be stored", lost)
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

    def _find(self, key: bytes) -> _Held | None:
        self._drop_if_flushed()
        held = self._held.get(key)
        if held is None and key in self._stores:
            held = self._stores[key][0]
        return held

    def peek(self, key: bytes) -> Record | Unknown | None:
        """Return the inner backend's state, if it is up to date."""
        return UNKNOWN if self._find(key) else self.inner.peek(key)

    def peek_item(self, line: bytes) -> Item | Record | Unknown | None:
        """Return the inner backend's state in memory, if it is up to date."""
        return UNKNOWN if self._find(key_of(line)) else self.inner.peek_item(line)

    def unsettled(self, keys: Iterable[bytes]) -> Awaitable[object] | None:
        """Return an awaitable for the changes that the inner backend is still writing."""
        return self.inner.unsettled(keys)

    async def get(self, key: bytes) -> Record | None:
        """Store the held item of `key`, and ask the inner backend."""
        await self._store(key)
        return await self.inner.get(key)

    def peek_cached_item(self, line: bytes) -> Item | Record | Unknown | None:
        """Return the held item, or the inner backend's state in memory."""
        return self._find(key_of(line)) or self.inner.peek_cached_item(line)

    def peek_cached(self, key: bytes) -> Record | Unknown | None:
        """Return the held item of `key`, or the inner backend's state."""
        held = self._find(key)
        return record_of(key, held) if held else self.inner.peek_cached(key)

    async def get_cached(self, key: bytes) -> Record | None:
        """Return the held item of `key`, or ask the inner backend."""
        held = self._find(key)
        return record_of(key, held) if held else await self.inner.get_cached(key)

    async def scan(self) -> AsyncIterator[Record]:
        """Store the held items as far as possible, and yield the inner backend's records."""
        await self._store_all()
        async for record in self.inner.scan():
            yield record

    # Writes

    def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> Awaitable[int]:
        """Hold a record if there is no condition, and return version 0; otherwise store it."""
        if replacing is ANY and self._hold(record.key, item_of(record, FullItem)):
            return _done()
        return self._put_now(record, replacing)

    def put_item(
        self, key: bytes, item: FullItem, replacing: Versioned | Anything | None = ANY
    ) -> Awaitable[object]:
        """Hold an item if there is no condition; otherwise store it."""
        if replacing is ANY and self._hold(key, item):
            return _done()
        return self._put_item_now(key, item, replacing)

    async def _put_item_now(
        self, key: bytes, item: FullItem, replacing: Versioned | Anything | None
    ) -> None:
        item.version = await self._put_now(record_of(key, item), replacing)

    async def _put_now(self, record: Record, replacing: Versioned | Anything | None) -> int:
        result = await self._change(
            record.key, lambda: self.inner.put(record, replacing), unconditional=replacing is ANY
        )
        return result if isinstance(result, int) else 0

    def _must_not_wait(self, key: bytes, item: FullItem) -> bool:
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

    def _hold(self, key: bytes, item: FullItem) -> bool:
        """Hold an item; return False if it must be stored at once instead."""
        if self._must_not_wait(key, item):
            return False
        held = _Held.like(item)
        held.flushed = False
        held.failing_since = self._key_failing_since(key)
        before = self._held.get(key)
        if before is None:
            held.due = self._clock.now() + self._delay
        else:
            held.due = before.due  # otherwise a key that is set all the time would never be stored
            self._bytes -= before.cost
            self._coalesced += 1
        self._held[key] = held
        held.cost = cost(key, held)
        self._bytes += held.cost
        self._something_held.set()
        return True

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        """Remove the record from the inner backend."""
        await self._change(
            key, lambda: self.inner.delete(key, replacing), unconditional=replacing is ANY
        )

    async def _change(
        self, key: bytes, change: Callable[[], Awaitable[_Result]], *, unconditional: bool
    ) -> _Result:
        """Carry out a write after the held item of its key was stored.

        Args:
            key: the key to change.
            change: performs the write.
            unconditional: whether the write replaces the held item, which then need not be stored
                first. The item is kept until the write has succeeded: if the write fails, the
                item is the last state that was acknowledged.
        """
        if unconditional:
            if key in self._stores:
                await asyncio.wait([self._stores[key][1]])
            await self._until_it_may_be_stored(key)
            if key in self._held and key not in self._stores:
                return self._result(await asyncio.shield(self._start(key, change)))
        await self._store(key)
        result = await change()
        self._failing_since = 0.0
        return result

    async def flush(self, at: float = 0.0) -> None:
        """Flush the inner backend and the held items, now or at the unix time `at`."""
        async with self._flush_turn:
            if at:
                try:
                    await self.inner.flush(at)
                except UnconfirmedError:
                    self._flush_at = at
                    raise
                self._flush_at = at
                return
            self._may_store.clear()
            try:
                if self._stores:
                    await asyncio.wait([task for _, task in self._stores.values()])
                before = dict(self._held)
                try:
                    await self.inner.flush()
                except UnconfirmedError:
                    self._flushed(before)
                    raise
                self._flushed(before)
            finally:
                self._may_store.set()

    def _flushed(self, before: Mapping[bytes, _Held]) -> None:
        """Discard the items held before a flush."""
        self._flush_at = 0.0
        self._forget([key for key, held in before.items() if self._held.get(key) is held])

    def _drop_if_flushed(self) -> None:
        if self._flush_at and self._flush_at <= self._clock.now():
            self._flush_at = 0.0
            self._forget(list(self._held))
            for held, _ in self._stores.values():
                held.flushed = True
                held.expires = 1.0  # in the distant past, so that it counts as absent

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
                # Coarse, so that items that are due at about the same time are stored together.
                await asyncio.sleep(self._delay / 8)
            else:
                self._something_held.clear()

    async def _store_each(self, keys: Iterable[bytes]) -> None:
        """Start storing the held items of these keys, with bounded concurrency."""
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
        """Store every item that is held now, or attempt to."""
        self._drop_if_flushed()
        await self._store_each(list(self._held))
        if self._stores:
            await asyncio.wait([task for _, task in self._stores.values()])

    async def _store(self, key: bytes) -> None:
        """Store the item of `key` that is held now; pass on the backend's errors.

        An item that is set meanwhile may remain held: waiting for a key that is set all the time
        would never end.
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
            self._result(await asyncio.shield(task))

    async def _until_it_may_be_stored(self, key: bytes) -> None:
        while key in self._held and not self._may_store.is_set():
            await self._may_store.wait()

    @staticmethod
    def _result(result: _Result | MemliteError) -> _Result:
        if isinstance(result, MemliteError):
            raise result
        return result

    def _start(
        self, key: bytes, change: Callable[[], Awaitable[_Result]] | None = None
    ) -> asyncio.Task[_Result | MemliteError]:
        """Store the held item of `key`, or carry out a write that replaces it."""
        held = self._held.pop(key)
        task = asyncio.ensure_future(self._store_one(key, held, change))
        self._stores[key] = held, task
        return task

    async def _store_one(
        self, key: bytes, held: _Held, change: Callable[[], Awaitable[_Result]] | None
    ) -> _Result | MemliteError:
        """Return the result of the write, or its error, as no caller may be waiting for it."""
        result: _Result = 0
        failure: MemliteError | None = None
        try:
            if change is None:
                result = await self._store_held(key, held)
            else:
                result = await change()
                self._drop_if_flushed()
        except UnconfirmedError as error:
            if change is None:  # the client's command is over
                self._note_unconfirmed(error)
            else:
                result = error
        except MemliteError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a bug in the backend; the item is kept
            _log.exception("storing a pending item failed", extra=log_failure("item_not_stored"))
            failure = StorageError("internal error")
            failure.__cause__ = error
        finally:
            del self._stores[key]
        if failure is not None:
            self._note_failure(failure)
            held.failing_since = held.failing_since or self._clock.now()
        else:
            self._failing_since = 0.0
            self._coalesced += change is not None
            held.failing_since = 0.0
        self._drop_if_flushed()
        newer = self._held.get(key)
        if newer is not None:
            newer.failing_since = held.failing_since
        elif failure is not None and not held.flushed:
            held.due = self._clock.now() + _RETRY_SECONDS
            self._held[key] = held
            self._something_held.set()
            return failure
        self._bytes -= held.cost
        return result if failure is None else failure

    async def _store_held(self, key: bytes, held: _Held) -> int:
        record = record_of(key, held)
        version = await self.inner.put(record)
        self._drop_if_flushed()
        if held.flushed:
            # The flush may have reached the backend before the record did.
            with contextlib.suppress(VersionConflict):
                await self.inner.delete(key, record._replace(version=version))
        return version

    def _note_failure(self, error: MemliteError) -> None:
        self._failed += 1
        if not self._failing_since:
            self._failing_since = self._clock.now()
            _log.warning("cannot store pending items: %s", error, extra=log_failure("items_held"))

    def _note_unconfirmed(self, error: UnconfirmedError) -> None:
        now = self._clock.now()
        if now >= self._warn_from:
            self._warn_from = now + _WARNING_SECONDS
            _log.warning(
                "a pending item was stored, but may be lost: %s",
                error,
                extra=log_failure("item_unconfirmed"),
            )

    # Housekeeping

    def measure(self, record: Callable[[str, str, int], None]) -> None:
        """Let the inner backend report how long requests take."""
        self.inner.measure(record)

    def tick(self) -> None:
        """Let the inner backend do its periodic work."""
        self.inner.tick()

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the inner backend's statistics, and those of the held items."""
        return {
            **self.inner.stats(),
            "write_back_items": len(self._held) + len(self._stores),
            "write_back_bytes": self._bytes,
            "write_back_limit": self._limit,
            "write_back_coalesced": self._coalesced,
            "write_back_failures": self._failed,
        }


def _done() -> asyncio.Future[int]:
    """Return the result of a put whose record has no version yet."""
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    done.set_result(0)
    return done
