"""Requests that hold, fill and drop copies, and the effect of clients' requests on copies.

A *hold* is an item that replaces a copy while a change is in progress. Every proxy recognises it by
its flags and value. A *lease* is a hold for a copy that is being filled.
"""

from typing import Final, NamedTuple

from memlite.cluster.moving.copies import HELD, LEASE_SECONDS, LEASED, STANDS_IN
from memlite.proxy.gutter_requests import META, words_of

__all__ = [
    "HELD",
    "LEASED",
    "Key",
    "copied",
    "drop",
    "fill",
    "has_hold",
    "hold",
    "is_hold",
    "is_read",
    "is_spread",
    "key_of",
    "lease",
    "look",
    "number",
    "shows_hold",
    "state",
]

_MARKS: Final = (b" %d " % HELD, b" %d " % LEASED)
_MAX_LINE_LENGTH: Final = 300  # of a reply to a get
_SPREAD_FLAGS: Final = frozenset(b"vfskOqb")
"""The flags of ``mg`` that a copy answers like the primary."""
_OVERWRITING: Final = {b"set": b"STORED\r\n", b"add": b"STORED\r\n", b"replace": b"STORED\r\n"}
_COPIED_MODES: Final = frozenset((b"", b"S", b"s", b"E", b"e", b"R", b"r"))


class Key(NamedTuple):
    """A key in the form used in requests to nodes.

    Attributes:
        word: the key, in base64 if it needs that.
        flag: `` b`` for base64, else empty.
    """

    word: bytes
    flag: bytes


def key_of(request: bytes) -> Key:
    """Return the key of a request that has one."""
    words = words_of(request)
    name = words[0]
    if name in META and b"b" in words[META[name] :]:
        return Key(words[1], b" b")
    return Key(words[2] if name in (b"gat", b"gats") else words[1], b"")


def is_read(request: bytes) -> bool:
    """Return whether a request changes nothing."""
    if request.startswith((b"get ", b"gets ")):
        return True
    if not request.startswith(b"mg "):
        return False
    return not any(word[0] in b"NT" for word in words_of(request)[2:])


def is_spread(request: bytes) -> bool:
    """Return whether any copy can answer a request: its reply must reveal a hold."""
    if request.startswith(b"get "):
        return True
    flags = words_of(request)[2:] if request.startswith(b"mg ") else []
    return b"v" in flags and all(flag[0] in _SPREAD_FLAGS for flag in flags)


def hold(key: Key, seconds: int, *, only_if_absent: bool = False, unique: int = 0) -> bytes:
    """Return the request that holds a copy.

    Args:
        key: the key.
        seconds: time after which the hold expires.
        only_if_absent: whether there must be no item.
        unique: the cas unique of the item to replace; 0 for any item, or none.
    """
    condition = b" ME" if only_if_absent else b" C%d" % unique if unique else b""
    return _store(key, STANDS_IN, b" F%d T%d c%b" % (HELD, seconds, condition))


def lease(key: Key) -> bytes:
    """Return the request for the right to fill a missing copy."""
    return _store(key, STANDS_IN, b" F%d T%d c ME" % (LEASED, LEASE_SECONDS))


def fill(key: Key, unique: int, flags: bytes, exptime: bytes, value: bytes) -> bytes:
    """Return the request that puts a value in place of a hold or lease."""
    words = b" C%d F%b" % (unique, flags)
    return _store(key, value, words if exptime == b"0" else words + b" T%b" % exptime)


def drop(key: Key, unique: int) -> bytes:
    """Return the request that removes a hold or lease."""
    return b"md %b%b C%d\r\n" % (key.word, key.flag, unique)


def state(key: Key) -> bytes:
    """Return the request for flags, cas unique and time to live of an item."""
    return b"mg %b%b f c t\r\n" % key


def look(key: Key) -> bytes:
    """Return the request for flags, cas unique, time to live and value of an item."""
    return b"mg %b%b f c t v\r\n" % key


def _store(key: Key, value: bytes, words: bytes) -> bytes:
    return b"ms %b %d%b%b\r\n%b\r\n" % (key.word, len(value), key.flag, words, value)


def number(reply: bytes, flag: bytes) -> int | None:
    """Return the number of a flag in a meta reply's first line; None if it is not there."""
    for word in reply[: reply.find(b"\r\n")].split():
        if word[:1] == flag and word[1:].lstrip(b"-").isdigit():
            return int(word[1:])
    return None


def shows_hold(reply: bytes) -> bool:
    """Return whether the reply to a read of one key may be a hold or lease instead of a value.

    A client's item with the same flags or value counts as one too: the primary is then asked.
    """
    if reply.startswith(b"VALUE "):
        end = min(reply.find(b"\r\n"), _MAX_LINE_LENGTH)
        return any(reply.find(mark, 0, end) > 0 for mark in _MARKS)
    return reply.endswith(STANDS_IN + b"\r\n")


def is_hold(reply: bytes) -> bool:
    """Return whether the reply to a read of one key is a hold or lease, as far as it shows."""
    if not shows_hold(reply):
        return False
    start = reply.index(b"\r\n") + 2
    return reply[start:] in (STANDS_IN + b"\r\n", STANDS_IN + b"\r\nEND\r\n")


def has_hold(reply: bytes) -> bool:
    """Return whether the reply to a read shows a hold or lease."""
    if reply.startswith(b"HD "):
        return number(reply, b"f") in (HELD, LEASED)
    return is_hold(reply) or (reply.startswith(b"VALUE ") and STANDS_IN in reply and _holds(reply))


def _holds(reply: bytes) -> bool:
    """Return whether one of several items is a hold or lease."""
    position = 0
    while reply.startswith(b"VALUE ", position):
        line_end = reply.index(b"\r\n", position)
        end = line_end + 2 + int(reply[position:line_end].split(b" ")[3]) + 2
        if is_hold(reply[position:end]):
            return True
        position = end
    return False


def copied(request: bytes, reply: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return the item that a change has stored.

    Args:
        request: the change.
        reply: the primary's reply.

    Returns:
        Flags, exptime and value of the item; None if the request does not determine them, if it
        has not stored an item, or if the item expires at once.
    """
    end = request.index(b"\n") + 1
    words = words_of(request)
    if _OVERWRITING.get(words[0]) == reply:
        flags, exptime = words[2], words[3]
    elif words[0] == b"ms" and reply.startswith(b"HD"):
        options = {word[:1]: word[1:] for word in words[3:]}
        if b"I" in options or options.get(b"M", b"") not in _COPIED_MODES:
            return None
        flags, exptime = options.get(b"F", b"0"), options.get(b"T", b"0")
    else:
        return None
    if not (flags.isdigit() and exptime.isdigit()):
        return None
    return flags, b"%d" % int(exptime), request[end:-2]
