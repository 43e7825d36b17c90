"""The limits on what clients may send, in one place."""

from dataclasses import dataclass
from typing import Final

__all__ = [
    "CLUSTER_KEY",
    "CLUSTER_LINE",
    "MAX_GET_LENGTH",
    "MAX_KEY_LENGTH",
    "Limits",
    "item_total",
]

MAX_KEY_LENGTH: Final = 250
"""The length of the longest key of memcached's protocols, in bytes."""

MAX_GET_LENGTH: Final = len(b"get \r\n") + MAX_KEY_LENGTH
"""The length of the longest get of one key, in bytes.

Longer lines are not looked up in the index, because hashing takes time linear in the length.
"""

CLUSTER_KEY: Final = b"AmazonElastiCache:cluster"
"""The key whose ``get`` is the old form of ``config get cluster``."""

CLUSTER_LINE: Final = b"get %b\r\n" % CLUSTER_KEY
"""The ``get`` of `CLUSTER_KEY`. If there is no such item, shortcuts must not answer it."""

# memcached 1.6 adds these to key and value when it sizes an item: 48 bytes of header, 8 for the cas
# unique, a NUL after the key, 4 bytes of client flags unless they are 0, and the value's "\r\n".
_ITEM_HEADER = 48
_ITEM_CAS = 8
_ITEM_FLAGS = 4
_VALUE_END = 2


def item_total(key_length: int, flags: int, value_length: int, *, cas: bool = True) -> int:
    """Return the size memcached would account for an item (``items.c``, ``item_make_header``).

    This size decides which values exceed ``-I`` and which class an item has in ``stats items``, so
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
    """The limits on what a peer may send.

    Attributes:
        item_size: the largest item, in bytes as `item_total` counts them (``-I``).
        key_length: the longest key, in bytes.
        line_length: the longest incomplete line, in bytes, before the connection is closed
            (memcached: 2,048), except for get and gets.
        get_line_length: the same for get and gets, whose key lists memcached leaves unbounded;
            bounded here so that a peer cannot exhaust memory.
        commands_per_read: pipelined commands served before other connections get their turn
            (``-R``).
        cas: whether items have a cas unique (not with ``-C``), which affects their size.
    """

    item_size: int = 1024 * 1024
    key_length: int = MAX_KEY_LENGTH
    line_length: int = 2048
    get_line_length: int = 4 * 1024 * 1024
    commands_per_read: int = 20
    cas: bool = True
