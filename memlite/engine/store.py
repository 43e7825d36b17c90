"""The engine over a backend: optimistic transactions that read, decide, write and retry."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from memlite.backends import ANY, UNKNOWN, Anything, Backend, Record
from memlite.backends.conversion import item_of
from memlite.core.clock import Clock
from memlite.core.errors import CommandError, StorageError, VersionConflict
from memlite.core.logs import failure
from memlite.engine import semantics
from memlite.engine.meta import MetaEngine
from memlite.engine.sizes import SizeClasses
from memlite.engine.transaction import Transaction
from memlite.memory import Item
from memlite.memory.item import FullItem, line_of, wire_form
from memlite.protocol.commands import Access
from memlite.telemetry.counters import Counters

__all__ = ["Attempt", "StoreEngine"]

_Result = TypeVar("_Result")

# Seconds for which a command is retried after conflicts with other servers before it fails, and the
# longest pause between two attempts.
_PATIENCE = 10.0
_MAX_PAUSE = 0.1
# The most keys of one command to read from a backend at a time; a request may have a million.
_KEYS_AT_ONCE = 256

_log = logging.getLogger("memlite")


class Attempt(NamedTuple, Generic[_Result]):
    """One attempt to carry out a command, based on the data read for it.

    Attributes:
        result: the command's result.
        writes: awaited before the command is answered: its own writes, or those of other commands
            whose values it has read.
        counted: its counter increments, which apply only if the writes succeed; see
            `StoreEngine.confirm`.
    """

    result: _Result
    writes: Sequence[Awaitable[object]]
    counted: Mapping[str, int] | None


class StoreEngine(MetaEngine):
    """Carries out commands on a `Backend`, each as one transaction.

    A command runs on items that have been read for it (see `Transaction`). Then its changes are
    written on condition that those items are still current. If they are not, it runs again on the
    current ones. Only the run whose writes succeed is counted. The command itself is the same
    synchronous code as in memory.

    Args:
        backend: holds the items.
        clock: see `Engine`.
        counters: see `Engine`.
        item_size: see `Engine`.
        cas: see `Engine`.
        sizes: see `Engine`.

    Attributes:
        backend: as above.
        peeks: see `Backend`.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        counters: Counters,
        *,
        item_size: int = 1024 * 1024,
        cas: bool = True,
        sizes: SizeClasses | None = None,
    ) -> None:
        self._transaction = Transaction(backend.table)
        super().__init__(
            self._transaction, clock, counters, item_size=item_size, cas=cas, sizes=sizes
        )
        self.backend = backend
        self.peeks = backend.peeks
        self.ordered = backend.ordered
        self._counted = Counters()  # increments by the running command
        # Commands that change the same key take turns: if they raced, all but one would fail.
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    def awaits_version(self, item: Item) -> bool:
        """Return whether the backend has yet to assign the item's version, i.e. its cas unique."""
        return not item.version

    # Without waiting

    def set_framed(self, key: bytes, exptime: int, wire: bytes) -> None:
        """Store like `set`; see `Engine`. No item was read, so none counts as replaced."""
        if self.observed:
            super().set_framed(key, exptime, wire)
            return
        counters = self.counters
        counters.cmd_set += 1
        counters.total_items += 1
        expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0
        self._transaction.changes[key] = FullItem(wire, self.usage.fresh, expires)

    def put_framed(self, key: bytes, exptime: int, wire: bytes) -> Awaitable[object] | None:
        """Store like `set_framed`, but without a transaction.

        Returns:
            The write to await before the command is answered; None if nothing was done, and
            `attempt` must be used.

        Raises:
            CommandError: the command failed.
        """
        if self.observed or (self._locks and key in self._locks):  # as in `attempt`
            return None
        counters = self.counters
        counters.cmd_set += 1
        counters.total_items += 1
        expires = semantics.expiry(exptime, self.clock.now()) if exptime else 0
        return self.backend.put_item(key, FullItem(wire, self.usage.fresh, expires))

    def try_get(self, line: bytes) -> bytes | None:
        r"""Return the reply to ``get <key>\r\n`` if that is possible at once; see `Engine`."""
        if line[:4] != b"get " or line[-2:] != b"\r\n":
            return None
        item = self.backend.peek_cached_item(line)
        if not isinstance(item, Item) or not self.can_serve(item):
            return None
        self.counters.hits += 1
        return item.wire

    def attempt(
        self, access: Access, keys: Sequence[bytes], run: Callable[[], _Result]
    ) -> Attempt[_Result] | None:
        """Carry out a command at once, if that is possible without reading from the backend.

        Args:
            access: the reads that the command needs.
            keys: the command's keys.
            run: carries out the command on this engine; it may be called again later.

        Returns:
            The attempt, to be passed to `confirm` once its writes have finished; None if nothing
            was done and `carry_out` must be used.

        Raises:
            CommandError: the command failed.
            VersionConflict: the item to be replaced is no longer current; `carry_out` must be used.
        """
        items: dict[bytes, Item | Record] = {}
        if not access.reads:
            if self._locks and any(key in self._locks for key in keys):
                return None  # a command holds the lock, and must not be starved by blind writes
        elif not self.peeks:
            return None
        else:
            backend = self.backend
            peek = backend.peek_cached_item if access.cached else backend.peek_item
            for key in keys:
                found = peek(b"get %b\r\n" % key)  # `line_of`, inlined
                if found is UNKNOWN:
                    return None
                if found is not None:
                    items[key] = found
        return self._run(access, keys, items, run)

    def confirm(self, attempt: Attempt[_Result]) -> _Result:
        """Count a command whose writes have ended without a conflict, and return its result."""
        if attempt.counted:
            self.counters.add(attempt.counted)
        return attempt.result

    def _run(
        self,
        access: Access,
        keys: Sequence[bytes],
        items: Mapping[bytes, Item | Record],
        run: Callable[[], _Result],
    ) -> Attempt[_Result]:
        """Run a command on the items read, and start its writes; see `attempt` for arguments."""
        self._transaction.begin(items)
        if not access.conditional:
            result = run()
            if access.cached:  # it only reads, and what it has read may be shown
                return Attempt(result, (), None)
            return Attempt(result, self._begin_writes(access, keys, items), None)
        counters, self.counters = self.counters, self._counted
        try:
            result = run()
        except CommandError:
            counters.add(self._counted.take())
            raise
        finally:
            self.counters = counters
        counted = self._counted.take()
        try:
            return Attempt(result, self._begin_writes(access, keys, items), counted)
        except CommandError:
            counters.add(counted)
            raise

    def uncounted(self, run: Callable[[], _Result]) -> _Result:
        """Carry out a read without counting it or showing it to observers.

        A repeated read keeps its first count, even if the item has changed since.

        Args:
            run: carries out the command on this engine.

        Raises:
            CommandError: the command failed.
        """
        counters, observed = self.counters, self.observed
        self.counters, self.observed = self._counted, False
        try:
            return run()
        finally:
            self._counted.take()
            self.counters, self.observed = counters, observed

    def _begin_writes(
        self, access: Access, keys: Sequence[bytes], items: Mapping[bytes, Item | Record]
    ) -> list[Awaitable[object]]:
        transaction, backend = self._transaction, self.backend
        writes: list[Awaitable[object]] = []
        changes = transaction.changes
        for key, item in changes.items():
            read: Item | Record | Anything | None
            read = items.get(key) if access.reads else ANY
            try:
                if item is not None:
                    writes.append(backend.put_item(key, item, read))
                elif read is not None:
                    writes.append(backend.delete(key, read))
            except Exception as error:
                if len(changes) == 1:
                    raise
                # The other writes have started, and the caller must await them all.
                writes.append(_failed(error))
        if transaction.flush_at is not None:
            writes.append(backend.flush(transaction.flush_at))
        if not writes and access.reads and not access.cached:
            # Without writes of its own, the command must await pending writes of the items it read.
            # A conditional write waits for them anyway.
            unsettled = backend.unsettled(keys)
            if unsettled is not None:
                writes.append(unsettled)
        return writes

    def _observe_replaced(self, command: str, key: bytes) -> None:
        """Notify the observer of the item a storage command replaces.

        A set has not read the item, which is reported only if known without querying the backend.
        """
        item = self.table.get(key)
        if item is None and command == "set":
            found = self.backend.peek_item(line_of(key))
            if found is UNKNOWN:
                return
            item = item_of(found, FullItem) if isinstance(found, Record) else found
        self._observe_present(key, item)

    def reply_to_get(
        self, key: bytes, found: Record | None, run: Callable[[], _Result]
    ) -> bytes | _Result:
        """Carry out ``get`` for one key that has been read from the backend.

        A hit needs no transaction and no item: the record becomes the reply at once.

        Args:
            key: the key, which the text protocol can express.
            found: the result of `Backend.get_cached` for it.
            run: carries out the command on the record read, if it is not such a hit.

        Returns:
            The reply to a hit, which has been counted; otherwise the result of `run`.

        Raises:
            CommandError: the command failed.
        """
        if found is not None and found.meta_flags is None and not self.observed:
            expires = found.expires
            if not expires or expires > self.clock.now():
                self.counters.hits += 1
                return wire_form(key, found.flags, found.value)
        self._transaction.begin({} if found is None else {key: found})
        return run()

    # With waiting

    async def carry_out(
        self, access: Access, keys: Sequence[bytes], run: Callable[[], _Result]
    ) -> _Result:
        """Carry out a command, retrying after conflicts; see `attempt` for the arguments.

        Raises:
            CommandError: the command failed.
        """
        if access.cached and not access.conditional:  # it only reads
            self._transaction.begin(await self._read(access, keys))
            return run()
        if not access.reads:
            # Wait for conditional changes of the key, but do not hold up later ones.
            async with self._lock_keys(keys):
                pass
        if access is not Access.CHANGE:
            items = await self._read(access, keys)
            try:
                attempt = self._run(access, keys, items, run)
                if not (attempt.writes or attempt.counted):
                    return attempt.result
                return await self.finish(attempt)
            except VersionConflict:
                if not access.conditional:
                    raise
        async with self._lock_keys(keys):
            return await self._change(keys, run)

    async def _change(self, keys: Sequence[bytes], run: Callable[[], _Result]) -> _Result:
        """Carry out a command on current items, retrying lost races; its keys are locked."""
        deadline = self.clock.now() + _PATIENCE
        pause = 0.002
        while True:
            with contextlib.suppress(VersionConflict):
                items = await self._read(Access.CHANGE, keys)
                return await self.finish(self._run(Access.CHANGE, keys, items, run))
            if self.clock.now() > deadline:
                raise StorageError("too many concurrent changes to this key")
            await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 - no secret
            pause = min(2 * pause, _MAX_PAUSE)

    async def finish(self, attempt: Attempt[_Result]) -> _Result:
        """Await a command's writes and return its result; raise the first exception, if any."""
        writes = attempt.writes
        try:
            if len(writes) == 1:
                await writes[0]
            elif writes:
                await _all(writes)
        except VersionConflict:
            raise
        except BaseException:
            self.confirm(attempt)  # the command failed, but it did not lose a race
            raise
        return self.confirm(attempt)

    @asynccontextmanager
    async def _lock_keys(self, keys: Sequence[bytes]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):  # a fixed order prevents deadlocks
                lock = self._locks.get(key)
                if lock is None:
                    self._locks[key] = lock = asyncio.Lock()
                await stack.enter_async_context(lock)
            yield

    async def _read(self, access: Access, keys: Sequence[bytes]) -> dict[bytes, Item | Record]:
        if not access.reads:
            return {}
        backend = self.backend
        if len(keys) == 1 and not self.peeks:
            record = await (backend.get_cached if access.cached else backend.get)(keys[0])
            return {} if record is None else {keys[0]: record}
        peek = backend.peek_cached_item if access.cached else backend.peek_item
        read: dict[bytes, Item | Record] = {}
        unknown = keys
        if len(keys) > 1:
            unknown = []
            for key in dict.fromkeys(keys):
                found = peek(line_of(key))
                if found is UNKNOWN:
                    unknown.append(key)
                elif found is not None:
                    read[key] = found
        for start in range(0, len(unknown), _KEYS_AT_ONCE):
            some = unknown[start : start + _KEYS_AT_ONCE]
            if len(some) == 1:
                get = backend.get_cached if access.cached else backend.get
                records = [await get(some[0])]
            elif access.cached:
                records = await backend.get_many(some)
            else:
                records = await _all(map(backend.get, some))
            read.update((one.key, self._in_memory(one)) for one in records if one is not None)
        return read

    def _in_memory(self, record: Record) -> Item | Record:
        """Return the item itself if the backend keeps it in memory, so that its use is recorded."""
        item = self.backend.peek_item(line_of(record.key))
        return item if isinstance(item, Item) and item.version == record.version else record

    # Expiry and flushing

    def flush_all(self, exptime: int) -> None:
        """Make all items absent: now, or at `exptime` if that is positive."""
        now = self.clock.now()
        at = semantics.expiry(exptime, now) if exptime > 0 else 0.0
        self._transaction.flush(at if at > now else 0.0)

    def tick(self) -> None:
        """Run the backend's periodic work; exceptions are logged, so that the ticker continues."""
        try:
            self.backend.tick()
        except Exception:  # noqa: BLE001 - a backend's bug
            _log.exception("the backend's tick failed", extra=failure("tick_failed"))

    @property
    def flush_pending(self) -> float:
        """Always 0: the backend carries out delayed flushes."""
        return 0.0

    crawls = False
    crawling = False

    def crawl(self) -> None:
        """Leave expired items to the backend (``lru_crawler crawl``)."""
        self.counters.lru_crawler_starts += 1

    def sweep(self, at_most: int) -> bool:
        """Free flushed items that the backend keeps in memory.

        Returns:
            Whether there are more.
        """
        table = self.backend.table
        return table is not None and table.reclaim(at_most) > 0


async def _all(work: Iterable[Awaitable[_Result]]) -> list[_Result]:
    """Await everything and return the results; raise the first exception, if any."""
    results = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


def _failed(error: Exception) -> asyncio.Future[object]:
    """Return a future that raises `error` when awaited."""
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
