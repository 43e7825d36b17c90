"""The interface for observing the engine's operations on items."""

from typing import Protocol

from memlite.memory import Item

__all__ = ["EXPIRED", "FLUSHED", "FOUND", "NOT_FOUND", "Observer"]

FOUND, NOT_FOUND, FLUSHED, EXPIRED = "found", "not_found", "flushed", "expired"
"""Results of a lookup, as memcached's ``watch fetchers`` names them."""


class Observer(Protocol):
    """Is notified of operations on items; must neither change them nor block.

    Attributes:
        wants_commands: whether it wants to see commands, and not only evictions.
    """

    wants_commands: bool

    def fetched(self, key: bytes, item: Item | None, state: str) -> None:
        """Called after a lookup with `FOUND` and the item, or with the reason why there is none."""

    def stored(
        self, command: str, key: bytes, flags: int, size: int, expires: float, status: str
    ) -> None:
        """Called after an attempt to store, with the content stored or to be stored.

        Args:
            command: set, add, replace, append, prepend or cas.
            key: the key.
            flags: the client's flags.
            size: bytes of the value.
            expires: unix time in seconds, 0 for never.
            status: stored, not_stored, exists, not_found, too_large or no_memory.
        """

    def deleted(self, command: str, key: bytes, item: Item) -> None:
        """Called after `command` (delete or md) has removed an item."""

    def evicted(self, key: bytes, item: Item) -> None:
        """Called after an item that has not expired was evicted."""
