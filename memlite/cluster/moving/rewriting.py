"""The requests that change an item at its node, if it is as it was read.

What can be left to the node is: then it keeps the exact time to live, which no request shows.
"""

from dataclasses import dataclass
from typing import Final

from memlite.cluster.moving import marks
from memlite.cluster.moving.marks import Found

__all__ = ["Wish", "in_place"]

_MAX_NUMBER_LENGTH: Final = 20


@dataclass(frozen=True, slots=True)
class Wish:
    """What an item is to become.

    Attributes:
        value: its value.
        flags: the client's flags.
        exptime: as in a request; None to keep the present one.
        stale: whether it is stale.
        won: whether a client was told to recache it.
        unique: the cas unique that it gets; None for the node's choice.
        binary: whether the key is stored in base64.
    """

    value: bytes
    flags: int = 0
    exptime: int | None = 0
    stale: bool = False
    won: bool = False
    unique: int | None = None
    binary: bool = False

    def content(self) -> Found:
        """Return what `marks.store` needs to know."""
        return Found(marks.Kind.REAL, value=self.value, flags=self.flags, binary=self.binary)


def in_place(key: bytes, old: Found, new: Wish) -> bytes | None:
    """Return the request that makes an item what it is to become, and keeps its time to live.

    Args:
        key: the key.
        old: the item.
        new: what it is to become; it is not stale.

    Returns:
        None if there is no such request.
    """
    if new.exptime is not None or new.flags != old.flags:
        return None
    counted = _counted(key, old, new)
    if counted is not None:
        return counted
    before, after = old.value, new.value
    if after.startswith(before):
        return marks.join(key, after[len(before) :], old.unique, new.unique, append=True)
    if after.endswith(before):
        added = after[: len(after) - len(before)]
        return marks.join(key, added, old.unique, new.unique, append=False)
    return None


def _counted(key: bytes, old: Found, new: Wish) -> bytes | None:
    before, after = old.value.rstrip(b" "), new.value.rstrip(b" ")
    if not (before.isdigit() and after.isdigit() and len(before) <= _MAX_NUMBER_LENGTH):
        return None
    # What counting makes of it: without leading zeros, and padded to the length that it had.
    if new.value != (b"%d" % int(after)).ljust(len(old.value)):
        return None
    delta = int(after) - int(before)
    if delta < 0:
        return marks.count(key, -delta, old.unique, new.unique, up=False)
    return marks.count(key, delta, old.unique, new.unique, up=True) if delta else None
