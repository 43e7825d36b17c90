"""Properties that only a few items have."""

from typing import NamedTuple

__all__ = ["MetaFlags"]


class MetaFlags(NamedTuple):
    """Properties that the meta and binary protocols add to an item's value, flags and expiry.

    Attributes:
        stale: the item was invalidated; it is served as stale until a client replaces it.
        won: a client has been told to recache the item, or to fill an item that was created empty.
        binary: the key was sent as base64, or the text protocol cannot express it.
        unique: the cas unique a client assigned; None if the cas unique is the version.
    """

    stale: bool = False
    won: bool = False
    binary: bool = False
    unique: int | None = None
