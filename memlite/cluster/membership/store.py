"""The interface of the store that holds a cluster's objects."""

from dataclasses import dataclass
from typing import Protocol

from memlite.core.errors import MemliteError

__all__ = ["Conflict", "Store", "StoreUnavailableError", "Stored"]


class StoreUnavailableError(MemliteError):
    """The store cannot be asked now. Of a write, nobody knows whether it was made."""


class Conflict(MemliteError):  # noqa: N818 - expected in normal operation
    """The object is no longer what the write was to replace; nothing was written."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it was read.

    Attributes:
        data: its content.
        version: what the store needs to recognize this state.
    """

    data: bytes
    version: object


class Store(Protocol):
    """A store of small objects, which compares versions."""

    async def open(self) -> None:
        """Prepare for use.

        Raises:
            StartError: it cannot be used; the text is one line.
        """

    async def close(self) -> None:
        """Release all resources."""

    async def read(self, name: str) -> Stored | None:
        """Return an object, or None if there is none.

        Raises:
            StoreUnavailableError: the store cannot be asked.
        """

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        """Write an object in place of what was read, None if that was nothing.

        Raises:
            Conflict: there is something else.
            StoreUnavailableError: nobody knows whether it was written.
        """
