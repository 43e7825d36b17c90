"""Requests rewritten for the gutter, with a short time to live; some are refused."""

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

__all__ = ["META", "keys_of", "rewritten", "with_keys", "words_of"]

_RELATIVE_UP_TO: Final = 30 * 24 * 3600
_Words: TypeAlias = list[bytes]
_Change: TypeAlias = Callable[[_Words, int, float], _Words | None]


def words_of(request: bytes) -> _Words:
    """Return the words of a request's line, split only at spaces: a key may contain a tab."""
    line = request[: request.index(b"\n")].removesuffix(b"\r")
    return [word for word in line.split(b" ") if word]


def keys_of(request: bytes) -> Sequence[bytes]:
    """Return the keys of a request for one node; none if it is not about keys."""
    words = words_of(request)
    name = words[0]
    if name in (b"get", b"gets"):
        return words[1:]
    if name in (b"gat", b"gats"):
        return words[2:]
    if name == b"flush_all":
        return ()
    if name in META and b"b" in words[META[name] :]:
        return [b64decode(words[1])]
    return words[1:2]


def with_keys(request: bytes, keys: Sequence[bytes]) -> bytes:
    """Return a ``get`` or ``gat`` with other keys."""
    words = words_of(request)
    first = 1 if words[0] == b"get" else 2
    return b" ".join([*words[:first], *keys]) + b"\r\n"


def rewritten(request: bytes, ttl: int, now: float) -> bytes | None:
    """Return a request whose item expires soon.

    Args:
        request: the request that a node would have got.
        ttl: seconds that items live at most.
        now: the unix time.

    Returns:
        The request; None if it builds on an earlier value or a cas unique: those of the
        gutter mean nothing to the node, and vice versa.
    """
    end = request.index(b"\n") + 1
    words = words_of(request)
    change = _CHANGES.get(words[0])
    changed = None if change is None else change(words, ttl, now)
    return None if changed is None else b" ".join(changed) + b"\r\n" + request[end:]


def capped(exptime: int, ttl: int, now: float) -> int:
    """Return an exptime that is at most `ttl` seconds from now.

    Args:
        exptime: as sent by a client: 0 for never, up to 30 days relative, above that a unix time,
            negative for expired.
        ttl: seconds.
        now: the unix time.
    """
    if exptime < 0:
        return exptime
    if exptime > _RELATIVE_UP_TO:
        left = exptime - int(now)
        return min(left, ttl) if left > 0 else -1
    return min(exptime or ttl, ttl)


def _as_it_is(words: _Words, _ttl: int, _now: float) -> _Words:
    return words


def _with_exptime(position: int) -> _Change:
    def change(words: _Words, ttl: int, now: float) -> _Words:
        words[position] = b"%d" % capped(int(words[position]), ttl, now)
        return words

    return change


META: Final = {b"mg": 2, b"ms": 3, b"md": 2, b"ma": 2}
"""Where the flags of meta commands begin."""
_REFUSED_FLAGS: Final = frozenset(b"cCE")
_EXPTIMES: Final = frozenset(b"NT")
_BUILDING_MODES: Final = frozenset((b"MA", b"Ma", b"MP", b"Mp"))


def _meta(words: _Words, ttl: int, now: float) -> _Words | None:
    first = META[words[0]]
    flags = []
    for flag in words[first:]:
        if flag[0] in _REFUSED_FLAGS or (words[0] == b"ms" and flag in _BUILDING_MODES):
            return None
        if flag[0] in _EXPTIMES:
            flag = b"%c%d" % (flag[0], capped(int(flag[1:]), ttl, now))
        flags.append(flag)
    if words[0] == b"ms" and not any(flag[:1] == b"T" for flag in flags):
        flags.append(b"T%d" % ttl)
    return [*words[:first], *flags]


_CHANGES: Final[dict[bytes, _Change]] = {
    b"get": _as_it_is,
    b"delete": _as_it_is,
    b"gat": _with_exptime(1),
    b"touch": _with_exptime(2),
    b"set": _with_exptime(3),
    b"add": _with_exptime(3),
    b"replace": _with_exptime(3),
    b"mg": _meta,
    b"ms": _meta,
    b"md": _meta,
}
