"""The engine over a backend that may have to be asked: read, decide, write, again if outrun."""

import asyncio
import enum
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from memlite.backends import ANY, UNKNOWN, Anything, Backend, Item, Unknown
from memlite.backends.item import key_of
from memlite.clock import Clock
from memlite.engine import semantics
from memlite.engine.meta import MetaEngine
from memlite.engine.sizes import SizeClasses
from memlite.engine.transaction import Transaction
from memlite.errors import StorageError, VersionConflict
from memlite.stats import Counters

__all__ = ["Reads", "StoreEngine"]

_Result = TypeVar("_Result")

# Seconds a command may lose races with other servers before its client is told so, and the
# longest pause after losing one.
_PATIENCE = 10.0
_LONGEST_PAUSE = 0.1
# Keys of one command that a backend is asked for at once: a line may have a million.
_KEYS_AT_ONCE = 256

_log = logging.getLogger("memlite")


class Reads(enum.Enum):
    """What a command must know before it can be carried out."""

    NOTHING = enum.auto()
    """set stores whatever was there."""
    CACHED = enum.auto()
    """get may be answered by a near cache."""
    CURRENT = enum.auto()
    """gets shows the version that a cas will be compared with."""
    CACHED_OR_CHANGE = enum.auto()
    """mg is answered like get but now and then writes, like those that change."""
    CURRENT_OR_CHANGE = enum.auto()
    """The same with a version, as of gets."""
    TO_CHANGE = enum.auto()
    """The others write on the condition that nothing has changed."""

    @property
    def cached(self) -> bool:
        """Whether a near cache will do."""
        return self in (Reads.CACHED, Reads.CACHED_OR_CHANGE)

    @property
    def writes(self) -> bool:
        """Whether something may be written on a condition."""
        return self in (Reads.CACHED_OR_CHANGE, Reads.CURRENT_OR_CHANGE, Reads.TO_CHANGE)


class StoreEngine(MetaEngine):
    """Carries out commands on a `Backend`, each as one transaction.

    A command is run with the items it needs at hand (see `Transaction`); then its changes are
    written on the condition that those items are still current, and if they are not it is run
    again with what is there now. The command itself is the same code as for memory, and never
    waits.

    Args:
        backend: holds the items.
        clock: as for `Engine`, and likewise the others.
        counters: see there.
        item_size: see there.
        cas: see there.
        sizes: see there.

    Attributes:
        backend: as above.
        counted: what the last `attempt` that wrote on a condition has counted. It is to be
            subtracted from the counters if the write is found to conflict.
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
        self._transaction = Transaction()
        super().__init__(
            self._transaction, clock, counters, item_size=item_size, cas=cas, sizes=sizes
        )
        self.backend = backend
        self.ordered = backend.ordered
        self.counted: tuple[int, ...] = ()
        # Commands that change one key take turns: of those racing, all but one would lose.
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    def unnumbered(self, item: Item) -> bool:
        """Return whether an item is yet to be given its cas unique by the backend."""
        return not item.version

    # What need not wait

    def hit(self, line: bytes) -> bytes | None:
        r"""Return the whole reply to ``get <key>\r\n`` if that can be had at once; see `Engine`."""
        if line[:4] != b"get " or line[-2:] != b"\r\n":
            return None
        item = self.backend.peek_cached(key_of(line))
        if item is None or item is UNKNOWN or not self.look_closer(item):
            return None
        self.counters.hits += 1
        return item.wire

    def attempt(
        self, reads: Reads, keys: Sequence[bytes], run: Callable[[], None]
    ) -> list[Awaitable[object]] | None:
        """Carry out a command at once, if the backend need not be asked before it.

        Args:
            reads: what must be known.
            keys: those it is about.
            run: calls this engine's methods, and must be ready to be called again.

        Returns:
            What must be awaited before it is answered: its writes, or what it has read that is
            still being written; or None when nothing was done and `carry_out` must do it.

        Raises:
            CommandError: it was refused.
            VersionConflict: as in what is returned; `carry_out` must do it.
        """
        items = {}
        if reads is Reads.NOTHING:
            if self._locks and any(key in self._locks for key in keys):
                return None  # behind a command that has begun, or that would never get through
        else:
            backend = self.backend
            peek = backend.peek_cached if reads.cached else backend.peek
            for key in keys:
                item = peek(key)
                if item is UNKNOWN:
                    return None
                if item is not None:
                    items[key] = item
        if not reads.writes:
            return self._run(reads, keys, items, run)
        before = self.counters.snapshot()
        try:
            writes = self._run(reads, keys, items, run)
        except VersionConflict:
            self.counters.subtract(self.counters.since(before))
            raise
        if writes:
            self.counted = self.counters.since(before)
        return writes

    def _run(
        self,
        reads: Reads,
        keys: Sequence[bytes],
        items: Mapping[bytes, Item],
        run: Callable[[], None],
    ) -> list[Awaitable[object]]:
        transaction, backend = self._transaction, self.backend
        transaction.begin(items)
        run()
        writes: list[Awaitable[object]] = []
        changes = transaction.changes
        for key, item in changes.items():
            read: Item | Anything | None = ANY if reads is Reads.NOTHING else items.get(key)
            try:
                if item is not None:
                    writes.append(backend.put(key, item, read))
                elif read is not None:
                    writes.append(backend.delete(key, read))
            except Exception as error:
                if len(changes) == 1:
                    raise
                # The others have begun, and must come to their end like this one.
                writes.append(_failed(error))
        if transaction.flush_at is not None:
            writes.append(backend.flush(transaction.flush_at))
        if not writes and not (reads is Reads.NOTHING or reads.cached):
            # Where something is written, that cannot be done before what was read is.
            unsettled = backend.unsettled(keys)
            if unsettled is not None:
                writes.append(unsettled)
        return writes

    def _observe_replaced(self, command: str, key: bytes) -> None:
        """Tell the observer what a storage command finds; set has not looked, but may know."""
        item: Item | Unknown | None = self.table.get(key)
        if item is None and command == "set":
            item = self.backend.peek(key)
        if item is not UNKNOWN:
            self._observe_present(key, item)

    # What must wait

    async def carry_out(self, reads: Reads, keys: Sequence[bytes], run: Callable[[], None]) -> None:
        """Carry out a command, as often as it takes; the arguments are those of `attempt`.

        Raises:
            CommandError: it was refused, or could not be done.
        """
        if reads is Reads.NOTHING:
            # Behind those that change the key on a condition, but in nobody's way.
            async with self._turn(keys):
                pass
        if not reads.writes:
            await self.written(self._run(reads, keys, await self._read(reads, keys), run))
            return
        if reads is not Reads.TO_CHANGE and await self._try(reads, keys, run):
            return
        async with self._turn(keys):
            deadline = self.clock.now() + _PATIENCE
            pause = 0.002
            while True:
                if await self._try(Reads.TO_CHANGE, keys, run):
                    return
                if self.clock.now() > deadline:
                    raise StorageError("too many changes of this key at once")
                await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 - no secret
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _try(self, reads: Reads, keys: Sequence[bytes], run: Callable[[], None]) -> bool:
        """Carry out a command; return False if what it has read was no longer there."""
        items = await self._read(reads, keys)
        before = self.counters.snapshot()
        writes = self._run(reads, keys, items, run)
        counted = self.counters.since(before)
        try:
            await self.written(writes)
        except VersionConflict:
            # Only the run that holds is counted.
            self.counters.subtract(counted)
            return False
        return True

    @asynccontextmanager
    async def _turn(self, keys: Sequence[bytes]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):  # in one order, or two could wait for each other
                lock = self._locks.get(key)
                if lock is None:
                    self._locks[key] = lock = asyncio.Lock()
                await stack.enter_async_context(lock)
            yield

    async def _read(self, reads: Reads, keys: Sequence[bytes]) -> dict[bytes, Item]:
        if reads is Reads.NOTHING:
            return {}
        backend = self.backend
        if len(keys) == 1:
            get = backend.get_cached if reads.cached else backend.get
            found = [await get(keys[0])]
        else:
            keys = list(dict.fromkeys(keys))
            found = []
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                some = keys[start : start + _KEYS_AT_ONCE]
                if reads.cached:
                    found += await backend.get_many(some)
                else:
                    found += await _all(map(backend.get, some))
        return {key: item for key, item in zip(keys, found, strict=True) if item is not None}

    @staticmethod
    async def written(writes: Sequence[Awaitable[object]]) -> None:
        """Return once all `writes` have come to their end; raise what one of them raised."""
        if not writes:
            return
        if len(writes) == 1:
            await writes[0]
            return
        await _all(writes)

    # Expiring and flushing

    def flush_all(self, exptime: int) -> None:
        """Make all items absent, now or, for a positive `exptime`, then."""
        now = self.clock.now()
        at = semantics.expiry(exptime, now) if exptime > 0 else 0.0
        self._transaction.flush(at if at > now else 0.0)

    def tick(self) -> None:
        """Do what is due. What the backend raises is logged: time must go on."""
        try:
            self.backend.tick()
        except Exception:  # noqa: BLE001 - a backend's bug
            _log.exception("the backend's tick failed")

    @property
    def flush_pending(self) -> float:
        """0: the backend sees to delayed flushes."""
        return 0.0

    crawls = False
    crawling = False

    def crawl(self) -> None:
        """Leave expired items to the backend (``lru_crawler crawl``)."""
        self.counters.lru_crawler_starts += 1

    def sweep(self, at_most: int) -> bool:
        """Free what was flushed of items that the backend keeps in memory.

        Returns:
            Whether there is more to do.
        """
        table = self.backend.table
        return table is not None and table.reclaim(at_most) > 0


async def _all(work: Iterable[Awaitable[_Result]]) -> list[_Result]:
    """Return what each results in, once all have come to their end; raise what one raised."""
    results = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


def _failed(error: Exception) -> asyncio.Future[object]:
    """Return what raises `error` when it is awaited."""
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
