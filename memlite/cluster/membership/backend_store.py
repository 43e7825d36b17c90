"""A cluster's objects in a bucket, Valkey or Redis, by the server's own backend for it."""

from typing import Final, cast

from memlite.backends import Backend
from memlite.backends.record import Record
from memlite.cluster.membership.store import Conflict, Stored, StoreUnavailableError
from memlite.core.errors import OutOfMemoryError, StartError, StorageError, VersionConflict

__all__ = ["BackendStore"]


class BackendStore:
    """Keeps objects as items of a backend; see `memlite.cluster.membership.store.Store`.

    Args:
        backend: a backend whose items survive, and which several processes can share.
        flag: the option it was given to, for messages.
    """

    def __init__(self, backend: Backend, flag: str = "--join") -> None:
        self._backend: Final = backend
        self._flag: Final = flag
        self.close = backend.close

    async def open(self) -> None:
        """Connect to the store."""
        try:
            await self._backend.open()
        except StartError as error:
            raise StartError(str(error).replace("--backend", self._flag, 1)) from None

    async def read(self, name: str) -> Stored | None:
        """Return an object, or None."""
        try:
            record = await self._backend.get(name.encode())
        except StorageError as error:
            raise StoreUnavailableError(str(error)) from None
        # Nothing here expires: a record that does is a deleted one.
        return None if record is None or record.expires else Stored(record.value, record)

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        """Write an object in place of another, or of none."""
        version = None if replacing is None else cast("Record", replacing.version)
        try:
            await self._backend.put(Record(name.encode(), data), version)
        except VersionConflict:
            raise Conflict(name) from None
        except OutOfMemoryError:
            raise StoreUnavailableError("the store is full") from None
        except StorageError as error:
            raise StoreUnavailableError(str(error)) from None
