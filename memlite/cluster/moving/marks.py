"""Requests with which keys are moved, and what nodes may have of such a key.

Nodes know nothing of it. What they have is an ordinary item to them:

- a *frozen* item at the source: the item with a trailer. Readers still get the item, but nobody
  changes it any more;
- a *marker* at the source: it has no item, and others must not add one there;
- a *stub* at the destination: the right to put the item there. It counts as no item.
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
"""After which a marker expires: longer than proxies may know different phases."""
STUB_SECONDS: Final = 10
"""After which a stub expires."""

_MARKER: Final = 3_735_927_488
_STUB: Final = 3_735_927_489
"""The flags of marks; the values begin as follows."""
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
"""A request without effect, whose reply shows whether a node lets cas uniques be assigned."""


def assigns(reply: bytes) -> bool:
    """Return whether a node lets cas uniques be assigned (``E``), by its reply to `PROBE`."""
    return reply.startswith((b"EN", b"HD"))


def number_from(key: bytes, unique: int) -> tuple[bytes, bytes]:
    """Return two requests after which a memlite node numbers cas uniques from this one.

    Other nodes are not changed by them.

    Args:
        key: one that nobody uses.
        unique: the cas unique.
    """
    return _request(b"ms", key, False, b" ME T1" + _assigned(unique), b""), _request(
        b"md", key, False, b""
    )


class Kind(Enum):
    """What a node has of a key."""

    ABSENT = auto()
    REAL = auto()
    """An item, which clients may change."""
    FROZEN = auto()
    MARKER = auto()
    STUB = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """What a node has of a key.

    Attributes:
        kind: what it is.
        unique: its cas unique at the node.
        value: the item's value, without a trailer.
        flags: the client's flags.
        ttl: remaining seconds; None for no limit.
        shown: the cas unique that clients see; that of a frozen item is from before.
        stale: whether the item is stale.
        won: whether a client was told to recache it.
        took: whether that was the one who has read it here, just now.
        binary: whether the key was stored in base64.
        idle: seconds since it was used.
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
        """Whether it is one, or may be one if the value was not asked for."""
        return self.marks or self.flags in (_MARKER, _STUB)


ABSENT: Final = Found(Kind.ABSENT)


class Marks:
    """Makes and knows what belongs to one move.

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
        """Return the request that freezes an item that is as it was found."""
        state = found.stale * _STALE + found.won * _WON
        trailer = _TRAILER % (self._nonce, found.unique, state)
        return _request(b"ms", key, found.binary, b" MA C%d" % found.unique, trailer)

    def found(self, answer: Answer) -> Found:
        """Return what a node has, by its answer to `look`.

        Raises:
            NodeRefusedError: the node has answered with an error.
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

        It may have several, if movers did not know of each other. The innermost is the true one.
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
    """Return the request for what a node has; see `Marks.found`.

    If the item is stale, it gives the reader the right to recache it; see `Found.took`. Without the
    value, what is frozen or a mark cannot be told from an item.
    """
    return _request(b"mg", key, False, b" v f t c k h l" if value else b" f t c k")


def stub(key: bytes, unique: int | None) -> bytes:
    """Return the request that puts a stub where there is nothing.

    Args:
        key: the key.
        unique: the cas unique that it gets; None for the node's choice.
    """
    flags = b" ME F%d T%d c%b" % (_STUB, STUB_SECONDS, _assigned(unique))
    return _request(b"ms", key, False, flags, _STUB_VALUE)


def mark(key: bytes, replacing: int | None) -> bytes:
    """Return the request that puts a marker in place of what has a cas unique, or of nothing.

    Args:
        key: the key.
        replacing: this unique; None for nothing.
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
    """Return the request that stores an item in place of what has a cas unique, or of nothing.

    Args:
        key: the key.
        found: the item; whether it is stale or won is not stored.
        exptime: see `exptime_of`.
        replacing: the unique of what must be there; None if there must be nothing.
        unique: the cas unique that the item gets; None for the node's choice.
    """
    condition = b" ME" if replacing is None else b" C%d" % replacing
    expiry = b" T%d" % exptime if exptime else b""
    flags = b"%b%b F%d%b c" % (condition, _assigned(unique), found.flags, expiry)
    return _request(b"ms", key, found.binary, flags, found.value)


def join(key: bytes, value: bytes, replacing: int, unique: int | None, *, append: bool) -> bytes:
    """Return the request that adds to the value of an item that has a cas unique.

    Args:
        key: the key.
        value: what is added.
        replacing: the item's unique.
        unique: the cas unique that it gets; None for the node's choice.
        append: whether it is added at the end.
    """
    flags = b" M%b C%d%b c" % (b"A" if append else b"P", replacing, _assigned(unique))
    return _request(b"ms", key, False, flags, value)


def count(key: bytes, delta: int, replacing: int, unique: int | None, *, up: bool) -> bytes:
    """Return the request that adds to, or subtracts from, a number that has a cas unique."""
    flags = b" M%b D%d C%d%b c" % (b"I" if up else b"D", delta, replacing, _assigned(unique))
    return _request(b"ma", key, False, flags)


def drop(key: bytes, unique: int) -> bytes:
    """Return the request that removes what has a cas unique."""
    return _request(b"md", key, False, b" C%d" % unique)


def invalidate(
    key: bytes,
    replacing: int,
    *,
    keeps: bool,
    unique: int | None = None,
    exptime: int | None = None,
) -> bytes:
    """Return the request that marks an item as stale, and as not won.

    Args:
        key: the key.
        replacing: its cas unique.
        keeps: whether it keeps that, which the node must be able to assign.
        unique: the cas unique that it gets otherwise; None for the node's choice.
        exptime: its new exptime; None to keep the present one.
    """
    assigned = _assigned(replacing if keeps else unique)
    expiry = b"" if exptime is None else b" T%d" % exptime
    return _request(b"md", key, False, b" I C%d%b%b" % (replacing, assigned, expiry))


def vivify(key: bytes, exptime: int, unique: int | None, *, binary: bool) -> bytes:
    """Return the request for an empty item where there is nothing, with the right to recache it.

    Whether there was nothing, the answer shows by ``W`` without ``X``.
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
