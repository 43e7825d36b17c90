"""What every backend keeps, and what every backend can do."""

import asyncio
import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from memlite.backends.item import FullItem, Item

if TYPE_CHECKING:
    from memlite.backends.table import ItemTable

__all__ = [
    "ANY",
    "UNKNOWN",
    "Anything",
    "Backend",
    "Sentinel",
    "Unknown",
]


class Sentinel(enum.Enum):
    """Values that stand for no item and for no lack of one."""

    ANY = enum.auto()
    UNKNOWN = enum.auto()


Anything = Literal[Sentinel.ANY]
ANY: Final = Sentinel.ANY
"""For `replacing`: whatever is there."""

Unknown = Literal[Sentinel.UNKNOWN]
UNKNOWN: Final = Sentinel.UNKNOWN
"""From `Backend.peek`: that takes asking for."""


class Backend(ABC):
    """A versioned store with optimistic concurrency.

    A store need not know commands. The engine reads an item, decides, and writes with the item it
    has read as `replacing`; when somebody else was quicker the backend raises
    `memlite.errors.VersionConflict`, and the engine reads and decides again. So every command is
    atomic on every backend, also for several servers on one store.

    To implement: `get`, `put`, `delete`, `flush` and `scan`; `open` and `close` where there is
    something to open. The other methods have a default that is right, if not the fastest.

    Whatever cannot be done now is a `memlite.errors.StorageError`, whose text the client gets
    after ``SERVER_ERROR``. What raised nothing must hold, as far as the backend promises at all.
    All calls come from one event loop; many may be under way at once, also for one key.

    Attributes:
        table: items the backend keeps in memory, for stats to look at and ``cache_memlimit`` to
            limit; None when there are none.
        ordered: whether of two versions of a key the greater is the newer.
    """

    table: "ItemTable | None" = None
    ordered: bool = False

    async def open(self) -> None:  # noqa: B027 - there may be nothing to open
        """Get ready, before any other call.

        Raises:
            StartError: the store cannot be used; its text is one line and says what to do.
        """

    async def close(self) -> None:  # noqa: B027 - nor to close
        """Write out what is still to be written, and let go; no call follows."""

    @abstractmethod
    async def get(self, key: bytes) -> Item | None:
        """Return what is stored under `key` now, None when nothing is.

        An item that has expired, or was flushed, may be returned if its `expires` says so (in the
        past, not 0): it counts as absent, and can be replaced by its version.
        """

    @abstractmethod
    def put(
        self, key: bytes, item: FullItem, replacing: Item | Anything | None = ANY
    ) -> Awaitable[None]:
        """Store `item`, and set its version to the new one, which no state of this key ever had.

        Args:
            key: 1 to 250 bytes, none of them white space or a control character unless the
                protocol allows for those; take any.
            item: what to store.
            replacing: what this must replace, as `get` or `peek` returned it; None when nothing
                may be there; `ANY` for whatever is there.

        Raises:
            VersionConflict: what is there is not `replacing`. Nothing was stored.
            OutOfMemoryError: it does not fit.
            StorageError: it could not be stored, or that is not known for certain.
        """

    @abstractmethod
    def delete(self, key: bytes, replacing: Item | Anything = ANY) -> Awaitable[None]:
        """Remove what is stored under `key`; with `ANY`, whether or not something is.

        Raises:
            VersionConflict: what is there, if anything, is not `replacing`.
            StorageError: as for `put`.
        """

    @abstractmethod
    async def flush(self, at: float = 0.0) -> None:
        """Make absent what is stored by now, or, with `at`, what is stored by then.

        Args:
            at: unix time in seconds. A later call replaces one that still waits.
        """

    @abstractmethod
    def scan(self) -> AsyncIterator[tuple[bytes, Item]]:
        """Yield every key with its item, in any order; of those that change meanwhile, any state.

        Those that have expired may be among them.
        """

    # Faster ways, for backends that have some

    def peek(self, key: bytes) -> Item | Unknown | None:
        """Return what `get` would, if that is known without waiting, else `UNKNOWN`."""
        return UNKNOWN

    def unsettled(self, keys: Iterable[bytes]) -> Awaitable[object] | None:
        """Return what must be waited for before a reply tells what `peek` or `get` gave for `keys`.

        A store may show changes that are still being written, so that others can build on them
        without waiting. What is awaited raises StorageError when they could not be written.
        """
        return None

    async def get_cached(self, key: bytes) -> Item | None:
        """Return what is or, by a bounded time, was stored under `key`; for reads alone."""
        return await self.get(key)

    def peek_cached(self, key: bytes) -> Item | Unknown | None:
        """Return what `get_cached` would, if that is known without waiting, else `UNKNOWN`."""
        return self.peek(key)

    async def get_many(self, keys: Sequence[bytes]) -> list[Item | None]:
        """Return what `get_cached` does for each key, asking for all at once."""
        return list(await asyncio.gather(*map(self.get_cached, keys)))

    def tick(self) -> None:  # noqa: B027 - nor to do
        """Do what is due; called once a second."""

    def stats(self) -> Mapping[str, int | float | str]:
        """Return what ``stats backend`` shows; ``items`` and ``bytes`` if they are known."""
        return {}
