"""Requests that move keys, and the states of a moving key at a node.

Nodes know nothing of moves. To them, each of these is an ordinary item:

- a *frozen* item at the source: the item with a trailer. Readers still get the item, but no client
  changes it;
- a *marker* at the source: the source has no item, and no client may add one there;
- a *stub* at the destination: the right to store the item there. It counts as no item.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from memlite.cluster.moving.answers import Answer, NodeRefusedError
from memlite.memory import nameable
from memlite.protocol.meta import encode_key

__all__ = [
    "ABSENT",
    "MARKER_SECONDS",
    "PROBE",
    "STUB_SECONDS",
    "Found",
    "Kind",
    "Marks",
    "assigns",
    "count",
    "drop",
    "exptime_of",
    "invalidate",
    "join",
    "look",
    "mark",
    "number_from",
    "store",
    "stub",
    "take",
    "vivify",
]

MARKER_SECONDS: Final = 60
"""Seconds until a marker expires: longer than proxies may disagree about the phase."""
STUB_SECONDS: Final = 10
"""Seconds after which a stub expires."""

_MARKER: Final = 3_735_927_488
_STUB: Final = 3_735_927_489
"""The flags of marks; their values begin as follows."""
_MARKER_VALUE: Final = b"memlite has moved this item"
_STUB_VALUE: Final = b"memlite moves an item here"

_TRAILER: Final = b"\0memlite moves this item %b %020d %d"
_STALE: Final = 1
_WON: Final = 2
_DIGITS: Final = 20
_NONCE: Final = re.compile(r"[0-9a-f]{32}").fullmatch
_RELATIVE_UP_TO: Final = 30 * 24 * 3600
_FOR_EVER: Final = 2_000_000_000

PROBE: Final = b"mg memlite E1\r\n"
"""A request without effect whose reply shows whether a node accepts assigned cas uniques."""


def assigns(reply: bytes) -> bool:
    """Return whether a node accepts assigned cas uniques (``E``), by its reply to `PROBE`."""
    return reply.startswith((b"EN", b"HD"))


def number_from(key: bytes, unique: int) -> tuple[bytes, bytes]:
    """Return two requests after which a memlite node numbers cas uniques from `unique`.

    They have no effect on other servers.

    Args:
        key: an unused key.
        unique: the cas unique.
    """
    return _request(b"ms", key, False, b" ME T1" + _assigned(unique), b""), _request(
        b"md", key, False, b""
    )


class Kind(Enum):
    """The kind of state of a key at a node."""

    ABSENT = auto()
    REAL = auto()
    """An item, which clients may change."""
    FROZEN = auto()
    MARKER = auto()
    STUB = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """The state of a key at a node.

    Attributes:
        kind: the kind of state.
        unique: its cas unique at the node.
        value: the item's value, without a trailer.
        flags: the client's flags.
        ttl: remaining seconds; None for no limit.
        shown: the cas unique that clients see; for a frozen item, the one from before freezing.
        stale: whether the item is stale.
        won: whether a client was told to recache it.
        took: whether this read was the one that got that right.
        binary: whether the key was stored in base64.
        idle: seconds since its last use.
        fetched: whether it was read since it was stored.
    """

    kind: Kind
    unique: int = 0
    value: bytes = b""
    flags: int = 0
    ttl: int | None = None
    shown: int = 0
    stale: bool = False
    won: bool = False
    took: bool = False
    binary: bool = False
    idle: int = 0
    fetched: bool = False

    @property
    def marks(self) -> bool:
        """Whether it is a marker or a stub."""
        return self.kind in (Kind.MARKER, Kind.STUB)

    @property
    def may_be_mark(self) -> bool:
        """Whether it is a mark, or may be one because the value was not requested."""
        return self.marks or self.flags in (_MARKER, _STUB)


ABSENT: Final = Found(Kind.ABSENT)


class Marks:
    """Makes and recognizes the marks of one move.

    Args:
        nonce: random, 32 hexadecimal digits: so no value of a client looks like a frozen item.
    """

    def __init__(self, nonce: str) -> None:
        if not _NONCE(nonce):
            raise ValueError(f"nonce: must be 32 hexadecimal digits, not {nonce!r}")
        self._nonce = nonce.encode()
        sample = _TRAILER % (self._nonce, 0, 0)
        self._length = len(sample)
        self._start = sample[: -_DIGITS - 2]

    def freeze(self, key: bytes, found: Found) -> bytes:
        """Return the request that freezes an item, provided it is as it was found."""
        state = found.stale * _STALE + found.won * _WON
        trailer = _TRAILER % (self._nonce, found.unique, state)
        return _request(b"ms", key, found.binary, b" MA C%d" % found.unique, trailer)

    def found(self, answer: Answer) -> Found:
        """Return the state at a node, from its answer to `look`.

        Raises:
            NodeRefusedError: the node answered with an error.
        """
        if answer.error:
            raise NodeRefusedError(answer.error)
        if answer.status == b"EN":
            return ABSENT
        found = _found(answer)
        if found.flags == _MARKER and found.value.startswith(_MARKER_VALUE):
            return _with_kind(found, Kind.MARKER)
        if found.flags == _STUB and found.value.startswith(_STUB_VALUE):
            return _with_kind(found, Kind.STUB)
        return self._thawed(found)

    def _thawed(self, found: Found) -> Found:
        """Return an item without its trailer, if it has one.

        It may have several, if movers did not know of each other. The innermost is the valid one.
        """
        value, start, length = found.value, self._start, self._length
        shown, state, frozen = found.unique, 0, False
        while value[-length:].startswith(start) and len(value) >= length:
            number, _, digit = value[-length + len(start) :].partition(b" ")
            shown, state, frozen = int(number), int(digit), True
            value = value[:-length]
        if not frozen:
            return found
        return Found(
            Kind.FROZEN,
            found.unique,
            value,
            found.flags,
            found.ttl,
            shown,
            bool(state & _STALE),
            bool(state & _WON),
            took=False,
            binary=found.binary,
            idle=found.idle,
            fetched=found.fetched,
        )


def _with_kind(found: Found, kind: Kind) -> Found:
    return Found(kind, found.unique, binary=found.binary)


def _found(answer: Answer) -> Found:
    ttl = answer.number(b"t")
    words = answer.words
    unique = answer.number(b"c") or 0
    return Found(
        Kind.REAL,
        unique,
        answer.value,
        answer.number(b"f") or 0,
        None if ttl is None or ttl < 0 else ttl,
        unique,
        stale=b"X" in words,
        won=b"Z" in words,
        took=b"W" in words,
        binary=b"b" in words,
        idle=answer.number(b"l") or 0,
        fetched=b"h1" in words,
    )


def _request(
    command: bytes, key: bytes, binary: bool, flags: bytes, value: bytes | None = None
) -> bytes:
    if binary or not nameable(key):
        word, flags = encode_key(key), flags + b" b"
    else:
        word = key
    if value is None:
        return b"%b %b%b\r\n" % (command, word, flags)
    return b"%b %b %d%b\r\n%b\r\n" % (command, word, len(value), flags, value)


def look(key: bytes, *, value: bool = True) -> bytes:
    """Return the request for the state of a key at a node; see `Marks.found`.

    If the item is stale, this gives the reader the right to recache it; see `Found.took`. Without
    the value, frozen items and marks cannot be told from ordinary items.
    """
    return _request(b"mg", key, False, b" v f t c k h l" if value else b" f t c k")


def stub(key: bytes, unique: int | None) -> bytes:
    """Return the request that stores a stub if there is no item.

    Args:
        key: the key.
        unique: its new cas unique; None to let the node choose.
    """
    flags = b" ME F%d T%d c%b" % (_STUB, STUB_SECONDS, _assigned(unique))
    return _request(b"ms", key, False, flags, _STUB_VALUE)


def mark(key: bytes, replacing: int | None) -> bytes:
    """Return the request that stores a marker in place of the item with a cas unique, or of none.

    Args:
        key: the key.
        replacing: this cas unique; None if there must be no item.
    """
    condition = b" ME" if replacing is None else b" C%d" % replacing
    flags = b"%b F%d T%d c" % (condition, _MARKER, MARKER_SECONDS)
    return _request(b"ms", key, False, flags, _MARKER_VALUE)


def store(
    key: bytes,
    found: Found,
    exptime: int,
    *,
    replacing: int | None,
    unique: int | None = None,
) -> bytes:
    """Return the request that stores an item in place of one with a cas unique, or of none.

    Args:
        key: the key.
        found: the item; its stale and won states are not stored.
        exptime: see `exptime_of`.
        replacing: the cas unique that must be current; None if there must be no item.
        unique: its new cas unique; None to let the node choose.
    """
    condition = b" ME" if replacing is None else b" C%d" % replacing
    expiry = b" T%d" % exptime if exptime else b""
    flags = b"%b%b F%d%b c" % (condition, _assigned(unique), found.flags, expiry)
    return _request(b"ms", key, found.binary, flags, found.value)


def join(key: bytes, value: bytes, replacing: int, unique: int | None, *, append: bool) -> bytes:
    """Return the request that extends the value of the item with a cas unique.

    Args:
        key: the key.
        value: the bytes to add.
        replacing: the item's cas unique.
        unique: its new cas unique; None to let the node choose.
        append: whether to add them at the end.
    """
    flags = b" M%b C%d%b c" % (b"A" if append else b"P", replacing, _assigned(unique))
    return _request(b"ms", key, False, flags, value)


def count(key: bytes, delta: int, replacing: int, unique: int | None, *, up: bool) -> bytes:
    """Return the request that adds to, or subtracts from, the number with a cas unique."""
    flags = b" M%b D%d C%d%b c" % (b"I" if up else b"D", delta, replacing, _assigned(unique))
    return _request(b"ma", key, False, flags)


def drop(key: bytes, unique: int) -> bytes:
    """Return the request that removes the item with a cas unique."""
    return _request(b"md", key, False, b" C%d" % unique)


def invalidate(
    key: bytes,
    replacing: int,
    *,
    keeps: bool,
    unique: int | None = None,
    exptime: int | None = None,
) -> bytes:
    """Return the request that marks an item as stale and not won.

    Args:
        key: the key.
        replacing: its cas unique.
        keeps: whether it keeps that unique, which the node must accept when assigned.
        unique: its new cas unique otherwise; None to let the node choose.
        exptime: its new exptime; None to keep the present one.
    """
    assigned = _assigned(replacing if keeps else unique)
    expiry = b"" if exptime is None else b" T%d" % exptime
    return _request(b"md", key, False, b" I C%d%b%b" % (replacing, assigned, expiry))


def vivify(key: bytes, exptime: int, unique: int | None, *, binary: bool) -> bytes:
    """Return the request that creates an empty item if there is none, to be recached.

    The answer shows by ``W`` without ``X`` that there was none.
    """
    return _request(b"mg", key, binary, b" N%d c%b" % (exptime, _assigned(unique)))


def take(key: bytes) -> bytes:
    """Return the request that takes the right to recache an item that is stale or expires."""
    return _request(b"mg", key, False, b" c R%d" % _FOR_EVER)


def _assigned(unique: int | None) -> bytes:
    return b"" if unique is None else b" E%d" % unique


def exptime_of(ttl: int | None, elapsed: float, now: float) -> int:
    """Return the exptime of an item that was read some time ago.

    Args:
        ttl: its remaining seconds then; None for no limit.
        elapsed: seconds since then.
        now: unix time.

    Returns:
        0 for no limit, negative if it has expired since.
    """
    if ttl is None:
        return 0
    left = ttl - int(elapsed)
    if left <= 0:
        return -1
    return left if left <= _RELATIVE_UP_TO else int(now) + left
