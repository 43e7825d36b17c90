"""The interface of the store that holds a cluster's objects."""

from dataclasses import dataclass
from typing import Protocol

from memlite.core.errors import MemliteError

__all__ = ["Conflict", "Store", "StoreUnavailableError", "Stored"]


class StoreUnavailableError(MemliteError):
    """The store is unavailable. It is unknown whether a write was carried out."""


class Conflict(MemliteError):  # noqa: N818 - expected in normal operation
    """The object is no longer the state to be replaced; nothing was written."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as it was read.

    Attributes:
        data: its content.
        version: identifies this state to the store.
    """

    data: bytes
    version: object


class Store(Protocol):
    """A store of small objects with compare-and-swap."""

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
            StoreUnavailableError: the store is unavailable.
        """

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        """Write an object, replacing the state that was read; None if there was no object.

        Raises:
            Conflict: the current state is another one.
            StoreUnavailableError: it is unknown whether the object was written.
        """
