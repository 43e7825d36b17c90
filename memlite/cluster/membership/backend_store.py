"""A cluster's objects in a bucket, Valkey or Redis, through the server's own backend."""

from typing import Final, Protocol, cast, runtime_checkable

from memlite.backends import Backend
from memlite.backends.record import Record
from memlite.cluster.membership.store import Conflict, Stored, StoreUnavailableError
from memlite.core.errors import OutOfMemoryError, StartError, StorageError, VersionConflict

__all__ = ["BackendStore"]

# Attempts to read an object that changes before it is confirmed.
_ATTEMPTS: Final = 10


@runtime_checkable
class _Confirming(Protocol):
    """A backend whose changes are visible before they are certain."""

    async def confirm(self, record: Record) -> None:
        """Wait until a state that was read is certain; raise VersionConflict if it is outdated."""


class BackendStore:
    """Keeps objects as items of a backend; see `memlite.cluster.membership.store.Store`.

    No caller may act on an object that a failover of the store could undo. So each state that was
    read is confirmed like a change, once, before it is returned.

    Args:
        backend: a backend with durable items that several processes can share.
        flag: the option that names the store, for messages.
    """

    def __init__(self, backend: Backend, flag: str = "--join") -> None:
        self._backend: Final = backend
        self._flag: Final = flag
        self.close = backend.close
        self._confirmed: Final[dict[str, int]] = {}  # the version, by name

    async def open(self) -> None:
        """Connect to the store."""
        try:
            await self._backend.open()
        except StartError as error:
            raise StartError(str(error).replace("--backend", self._flag, 1)) from None

    async def read(self, name: str) -> Stored | None:
        """Return an object, or None."""
        try:
            for _ in range(_ATTEMPTS):
                record = await self._backend.get(name.encode())
                # No object expires: a record with an expiry is a deleted one.
                if record is None or record.expires:
                    return None
                if await self._is_certain(name, record):
                    return Stored(record.value, record)
        except StorageError as error:
            raise StoreUnavailableError(str(error)) from None
        raise StoreUnavailableError(f"{name} keeps changing")

    async def _is_certain(self, name: str, record: Record) -> bool:
        """Confirm a state; return whether it is still current."""
        if not isinstance(self._backend, _Confirming) or (
            self._confirmed.get(name) == record.version
        ):
            return True
        try:
            await self._backend.confirm(record)
        except VersionConflict:
            return False
        self._confirmed[name] = record.version
        return True

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        """Write an object in place of another, or of none."""
        version = None if replacing is None else cast("Record", replacing.version)
        try:
            stored = await self._backend.put(Record(name.encode(), data), version)
            self._confirmed[name] = stored
        except VersionConflict:
            raise Conflict(name) from None
        except OutOfMemoryError:
            raise StoreUnavailableError("the store is full") from None
        except StorageError as error:
            raise StoreUnavailableError(str(error)) from None
