"""Every limit of the wire, in one place, each an explicit number."""

from dataclasses import dataclass
from typing import Final

__all__ = ["LONGEST_GET", "Limits", "item_total"]

LONGEST_GET: Final = len(b"get \r\n") + 250
"""Bytes of a get of one key. What is longer is not looked up: that takes as long as it is."""

# What memcached 1.6 adds to key and value when it sizes an item: 48 bytes of header, 8 of cas
# unique, a NUL after the key, 4 bytes of client flags unless they are 0, and the value's "\r\n".
_ITEM_HEADER = 48
_ITEM_CAS = 8
_ITEM_FLAGS = 4
_VALUE_END = 2


def item_total(key_length: int, flags: int, value_length: int, *, cas: bool = True) -> int:
    """Return the bytes memcached would count for an item (``items.c``, ``item_make_header``).

    Decides which values are too large for ``-I`` and, in ``stats items``, an item's class, so that
    both agree with memcached to the byte.
    """
    return (
        _ITEM_HEADER
        + (_ITEM_CAS if cas else 0)
        + key_length
        + 1
        + (_ITEM_FLAGS if flags else 0)
        + value_length
        + _VALUE_END
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may send.

    Attributes:
        item_size: bytes of an item as `item_total` counts them (``-I``).
        key_length: bytes of a key.
        line_length: bytes of an unfinished line before the connection is cut
            (memcached: 2,048), except for get and gets.
        get_line_length: the same for get and gets, whose key lists memcached leaves
            unbounded; bounded here so that a peer cannot fill the memory.
        commands_per_read: pipelined commands served before other connections
            get their turn (``-R``).
        cas: whether items carry a cas unique (not with ``-C``); sizes depend on it.
    """

    item_size: int = 1024 * 1024
    key_length: int = 250
    line_length: int = 2048
    get_line_length: int = 4 * 1024 * 1024
    commands_per_read: int = 20
    cas: bool = True
