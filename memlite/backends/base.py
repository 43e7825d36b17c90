"""The interface of every backend."""

import asyncio
import enum
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, Final, Literal, Protocol

from memlite.backends.conversion import record_of
from memlite.backends.record import Record, Versioned
from memlite.memory.item import FullItem, Item, key_of
from memlite.memory.table import ItemTable

__all__ = [
    "ANY",
    "UNKNOWN",
    "Anything",
    "Backend",
    "Reader",
    "Sentinel",
    "Unknown",
]


class Sentinel(enum.Enum):
    """Values that are neither a record nor None."""

    ANY = enum.auto()
    UNKNOWN = enum.auto()


Anything = Literal[Sentinel.ANY]
ANY: Final = Sentinel.ANY
"""For `replacing`: any current state, even none."""

Unknown = Literal[Sentinel.UNKNOWN]
UNKNOWN: Final = Sentinel.UNKNOWN
"""From `Backend.peek` and related methods: the store has to be asked."""


class Reader(Protocol):
    """Receives the outcome of a begun read: one of the methods is called once, and raises nothing.

    See `Backend.begin_get`.
    """

    def found(self, record: Record | None) -> None:
        """Receive the result of `Backend.get_cached`."""

    def unfinished(self, rest: Coroutine[Any, Any, Record | None]) -> None:
        """Receive the unfinished rest of a `Backend.get_cached`, which has to be awaited."""


class Backend(ABC):
    """A versioned store with optimistic concurrency.

    A backend knows no commands. The engine reads a record, decides what a command does to it, and
    writes on the condition that the record it read is still current (`replacing`). If another
    writer was faster, the backend raises `memlite.core.errors.VersionConflict`, and the engine
    reads and decides again. This makes every command atomic on every backend, including stores
    that several servers share.

    Required: `get`, `put`, `delete`, `flush` and `scan`; also `open` and `close` if there is
    something to open. The other methods have correct defaults, and exist for speed.

    An operation that cannot be carried out now raises `memlite.core.errors.StorageError`; its text
    is sent to the client. An operation that returns normally must hold, to the extent the backend
    promises durability. All calls come from one event loop. Many can be in progress at once, also
    for the same key.

    Attributes:
        ordered: whether the greater of two versions of a key is always the newer one.
        peeks: whether the backend can answer some reads without waiting. If not, set this to False,
            and `peek` and its relatives need not be called.
        begins: whether `begin_get` ever begins a read.
        table: the `memlite.memory.ItemTable` in which the backend keeps items, for statistics and
            for ``cache_memlimit``; None if it keeps none in memory.
    """

    ordered: bool = False
    peeks: bool = True
    begins: bool = False
    table: ItemTable | None = None

    def watch(self, changed: Callable[[bytes | None], None]) -> None:  # noqa: B027 - optional
        """Make the backend report changes by other servers; called before `open`.

        Args:
            changed: to be called with a key soon after its record has changed, and with None if any
                record may have changed. It may be called for this server's own changes, too.
        """

    async def open(self) -> None:  # noqa: B027 - optional
        """Prepare for use. Called before everything else, apart from `watch`.

        Raises:
            StartError: the store cannot be used. The text is one line and says what to do.
        """

    async def close(self) -> None:  # noqa: B027 - optional
        """Write what has not been written yet, and release all resources. The last call."""

    @abstractmethod
    async def get(self, key: bytes) -> Record | None:
        """Return the current record of `key`, or None if there is none.

        A record that has expired or was flushed may be returned, with an `expires` in the past
        (not 0). It counts as absent, and its version can be replaced.
        """

    @abstractmethod
    def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> Awaitable[int]:
        """Store a record under its key.

        A backend may apply the change at once and write it in the background. It then returns a
        future, which is done when the change is durable; `peek` and `get` already show the change,
        and `unsettled` tells readers what to wait for.

        Args:
            record: what to store. Its `version` and `token` are ignored.
            replacing: the state that must be current, as returned by `get` or `peek`; None if the
                key must be absent; `ANY` for no condition.

        Returns:
            The new version, which no other state of this key ever had; 0 if the record is not
            stored yet and has no version (see `memlite.backends.writeback`).

        Raises:
            VersionConflict: the current state is not `replacing`. Nothing was stored.
            OutOfMemoryError: the record does not fit.
            StorageError: the record could not be stored, or it is uncertain whether it was.
        """

    @abstractmethod
    def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> Awaitable[object]:
        """Remove the record of `key`. With `ANY` there need not be one.

        Raises:
            VersionConflict: the current state, if any, is not `replacing`.
            StorageError: as for `put`.
        """

    @abstractmethod
    async def flush(self, at: float = 0.0) -> None:
        """Make all records absent: those stored by now or, with `at`, those stored by then.

        Args:
            at: unix time in seconds. A later call replaces a flush that is still to come.
        """

    @abstractmethod
    def scan(self) -> AsyncIterator[Record]:
        """Yield every record, in any order.

        Expired records may be among them. A record that changes during the scan may be yielded in
        its old or its new state.
        """

    # Faster reads, for backends that can answer without waiting or from a cache

    def peek(self, key: bytes) -> Record | Unknown | None:
        """Return the result of `get` if it is known without waiting, else `UNKNOWN`."""
        return UNKNOWN

    def unsettled(self, keys: Iterable[bytes]) -> Awaitable[object] | None:
        """Return an awaitable that is done once the states of `keys` shown so far are written.

        A store may show changes that are still being written, so that later changes can build on
        them at once. Clients may see the results of `peek` and `get` only once the awaitable is
        done; it raises StorageError if those changes could not be written. None if there is nothing
        to wait for.
        """
        return None

    async def get_cached(self, key: bytes) -> Record | None:
        """Return the record of `key`, possibly one that was current a bounded time ago.

        For commands that only read.
        """
        return await self.get(key)

    def peek_cached(self, key: bytes) -> Record | Unknown | None:
        """Return the result of `get_cached` if it is known without waiting, else `UNKNOWN`."""
        return self.peek(key)

    def begin_get(self, key: bytes, reader: Reader) -> bool:
        """Begin a `get_cached`, if that needs neither a task nor a future.

        Args:
            key: the key.
            reader: receives the outcome, possibly before this method returns.

        Returns:
            Whether it was begun. If not, nothing was done.
        """
        return False

    async def get_many(self, keys: Sequence[bytes]) -> list[Record | None]:
        """Return the result of `get_cached` for each key; the requests run concurrently."""
        return list(await asyncio.gather(*map(self.get_cached, keys)))

    # Optional capability: a backend that keeps items in an `ItemTable` takes and returns the items
    # themselves. A get is then answered with the stored reply, and uses are noted in the item.

    def peek_item(self, line: bytes) -> Item | Record | Unknown | None:
        r"""Return the result of `peek`, but the item itself if it is in memory.

        Args:
            line: ``get <key>\r\n``, by which tables index items.
        """
        return self.peek(key_of(line))

    def peek_cached_item(self, line: bytes) -> Item | Record | Unknown | None:
        """Return the result of `peek_cached`, but the item itself if it is in memory."""
        return self.peek_cached(key_of(line))

    def put_item(
        self, key: bytes, item: FullItem, replacing: Versioned | Anything | None = ANY
    ) -> Awaitable[object]:
        """Store an item; see `put`.

        The item belongs to the backend afterwards. It has its new version by the time the awaitable
        is done.
        """
        return self._put_as_record(key, item, replacing)

    async def _put_as_record(
        self, key: bytes, item: FullItem, replacing: Versioned | Anything | None
    ) -> None:
        item.version = await self.put(record_of(key, item), replacing)

    # Housekeeping

    def measure(self, record: Callable[[str, str, int], None]) -> None:  # noqa: B027 - optional
        """Report from now on how long requests to the store take; otherwise they are not measured.

        Args:
            record: to be called with the name of an operation, its outcome, ``ok`` or ``failed``,
                and nanoseconds, possibly by another thread. There may be only a few names.
        """

    def tick(self) -> None:  # noqa: B027 - optional
        """Do periodic work; called once a second."""

    def stats(self) -> Mapping[str, int | float | str]:
        """Return the figures for ``stats backend``, with ``items`` and ``bytes`` if known."""
        return {}
