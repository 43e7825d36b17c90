"""Commands that tune parts of memcached that memlite does not have: slabs and LRU threads.

They are checked and accepted without any effect, so that scripts written for memcached run
unchanged.
"""

from typing import Final

from memlite.protocol import replies
from memlite.protocol.numbers import signed, unsigned
from memlite.server.admin.request import AdminRequest, CommandTable

__all__ = ["TUNING_COMMANDS"]

_U32: Final = 2**32
_MAX_AUTOMOVE: Final = 2
_PERCENT_END: Final = 81


def _slabs(request: AdminRequest) -> bytes:
    match request.words[1:]:
        case [b"reassign", source, destination]:
            if signed(source) is None or signed(destination) is None:
                return replies.BAD_FORMAT
            return b"CLIENT_ERROR slab reassignment disabled\r\n"
        case [b"automove", mode, *_]:
            level = unsigned(mode, _U32)
            if level is None:
                return replies.BAD_FORMAT
            return replies.OK if level <= _MAX_AUTOMOVE else replies.ERROR
    return replies.ERROR


def _lru(request: AdminRequest) -> bytes:
    match request.words[1:]:
        case [b"mode", b"flat" | b"segmented"]:
            return replies.OK
        case [b"temp_ttl", ttl] if signed(ttl) is not None:
            return replies.OK
        case [b"tune", hot, warm, _, _] if None not in (
            unsigned(hot, _PERCENT_END),
            unsigned(warm, _PERCENT_END),
        ):
            return replies.OK
    return replies.ERROR


TUNING_COMMANDS: Final[CommandTable] = {b"slabs": _slabs, b"lru": _lru}
"""``slabs`` and ``lru``."""
