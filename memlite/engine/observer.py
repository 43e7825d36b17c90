"""What can be seen of the engine at work, by whoever asks to be told."""

from typing import Protocol

from memlite.backends import Item

__all__ = ["EXPIRED", "FLUSHED", "FOUND", "NOT_FOUND", "Observer"]

FOUND, NOT_FOUND, FLUSHED, EXPIRED = "found", "not_found", "flushed", "expired"
"""What a lookup finds, in the words of memcached's ``watch fetchers``."""


class Observer(Protocol):
    """Is told what happens to items; must neither change them nor wait.

    Attributes:
        commands: whether it wants to know more than which items are evicted.
    """

    commands: bool

    def fetched(self, key: bytes, item: Item | None, state: str) -> None:
        """Take note of a lookup: `FOUND` and the item, or why there is none."""

    def stored(
        self, command: str, key: bytes, flags: int, size: int, expires: float, status: str
    ) -> None:
        """Take note of an attempt to store.

        Args:
            command: set, add, replace, append, prepend or cas.
            key: the item's.
            flags: those that are stored, or of the attempt that failed.
            size: bytes of the value, likewise.
            expires: unix time in seconds, 0 for never, likewise.
            status: stored, not_stored, exists, not_found, too_large or no_memory.
        """

    def deleted(self, command: str, key: bytes, item: Item) -> None:
        """Take note of an item removed by `command` (delete or md)."""

    def evicted(self, key: bytes, item: Item) -> None:
        """Take note of an item that made room for another before its time."""
