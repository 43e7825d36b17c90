"""The requests that change an item at its node, provided it has not changed since it was read.

Where possible, the change is left to the node: it keeps the exact time to live, which no request
reveals.
"""

from dataclasses import dataclass
from typing import Final

from memlite.cluster.moving import marks
from memlite.cluster.moving.marks import Found

__all__ = ["Wish", "in_place"]

_MAX_NUMBER_LENGTH: Final = 20


@dataclass(frozen=True, slots=True)
class Wish:
    """The intended state of an item.

    Attributes:
        value: its value.
        flags: the client's flags.
        exptime: the exptime, as in a request; None to keep the present one.
        stale: whether it is stale.
        won: whether a client was told to recache it.
        unique: its new cas unique; None to let the node choose.
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
        """Return the item as `marks.store` takes it."""
        return Found(marks.Kind.REAL, value=self.value, flags=self.flags, binary=self.binary)


def in_place(key: bytes, old: Found, new: Wish) -> bytes | None:
    """Return the request that changes an item as intended and keeps its time to live.

    Args:
        key: the key.
        old: the item.
        new: its intended state, which is not stale.

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
    # The format that counting produces: no leading zeros, and padded to the former length.
    if new.value != (b"%d" % int(after)).ljust(len(old.value)):
        return None
    delta = int(after) - int(before)
    if delta < 0:
        return marks.count(key, -delta, old.unique, new.unique, up=False)
    return marks.count(key, delta, old.unique, new.unique, up=True) if delta else None
