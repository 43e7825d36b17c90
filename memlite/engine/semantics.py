"""The semantics of each read-modify-write command, as pure functions.

Each takes the current item (None if it is absent or expired) and returns an outcome, and the
content to store, or None to store nothing. The rules are those of memcached 1.6's
``doc/protocol.txt`` or, where that is silent, of its functions ``do_store_item`` and
``do_add_delta``.
"""

import enum
import re
from typing import Final, NamedTuple

from memlite.core.meta_flags import MetaFlags
from memlite.memory import Item

__all__ = [
    "Content",
    "Mode",
    "Outcome",
    "add",
    "always",
    "append",
    "cas",
    "count",
    "expiry",
    "prepend",
    "replace",
    "store",
]

MAX_RELATIVE_EXPTIME: Final = 60 * 60 * 24 * 30
"""Seconds up to which an exptime is relative; above, it is a unix time."""

_LONG_AGO: Final = 1.0
_COUNTER_END: Final = 2**64
# As strtoull(): leading white space, a sign, digits; then white space, a NUL or the end.
_COUNTER: Final = re.compile(rb"[ \t\n\v\f\r]*(\+?[0-9]+)(?:[ \t\n\v\f\r\0]|$)", re.DOTALL)
# memcached stores longer values in chunks, and refuses to increment those.
_MAX_COUNTER_VALUE: Final = 512 * 1024


class Outcome(enum.Enum):
    """The outcome of a command."""

    STORED = enum.auto()
    NOT_STORED = enum.auto()
    EXISTS = enum.auto()
    NOT_FOUND = enum.auto()
    NON_NUMERIC = enum.auto()
    DELETED = enum.auto()


class Mode(enum.Enum):
    """The ways to store."""

    SET = enum.auto()
    ADD = enum.auto()
    REPLACE = enum.auto()
    APPEND = enum.auto()
    PREPEND = enum.auto()


class Content(NamedTuple):
    """The content that a command is to store.

    Attributes:
        value: the value.
        flags: the client's flags.
        expires: unix time in seconds, 0 for never.
        meta_flags: see `Item`.
    """

    value: bytes
    flags: int
    expires: float
    meta_flags: MetaFlags | None = None


Decision = tuple[Outcome, Content | None]


def expiry(exptime: int, now: float) -> float:
    """Return the unix time at which an item with a client's `exptime` expires, 0 for never.

    Up to 30 days are relative to `now`; more is a unix time; negative means already expired.
    """
    if exptime == 0:
        return 0.0
    if exptime < 0:
        return _LONG_AGO
    if exptime > MAX_RELATIVE_EXPTIME:
        return float(exptime)
    return now + exptime


def add(current: Item | None, new: Content) -> Decision:
    """Store only if the key is absent."""
    return (Outcome.STORED, new) if current is None else (Outcome.NOT_STORED, None)


def always(current: Item | None, new: Content) -> Decision:
    """Store unconditionally (set)."""
    return Outcome.STORED, new


def replace(current: Item | None, new: Content) -> Decision:
    """Store only if the key is present."""
    return (Outcome.NOT_STORED, None) if current is None else (Outcome.STORED, new)


def append(current: Item | None, new: Content) -> Decision:
    """Append to the value; flags and expiry stay."""
    if current is None:
        return Outcome.NOT_STORED, None
    return Outcome.STORED, _joined(current, current.value + new.value, new)


def prepend(current: Item | None, new: Content) -> Decision:
    """Prepend to the value; flags and expiry stay."""
    if current is None:
        return Outcome.NOT_STORED, None
    return Outcome.STORED, _joined(current, new.value + current.value, new)


def _joined(current: Item, value: bytes, new: Content) -> Content:
    return Content(value, current.flags, current.expires, new.meta_flags)


def cas(current: Item | None, new: Content, unique: int) -> Decision:
    """Store only if the item still has the cas unique `unique`."""
    if current is None:
        return Outcome.NOT_FOUND, None
    if current.unique != unique:
        return Outcome.EXISTS, None
    return Outcome.STORED, new


_PLAIN: Final = {Mode.ADD: add, Mode.REPLACE: replace, Mode.APPEND: append, Mode.PREPEND: prepend}


def store(
    current: Item | None,
    new: Content,
    mode: Mode,
    *,
    unique: int | None = None,
    accept_older: bool = False,
    ordered: bool = True,
    vivify: bool = False,
) -> Decision:
    """Store as the meta and binary protocols do: in any mode, optionally on a condition.

    Args:
        current: the current item.
        new: what to store.
        mode: how to store it.
        unique: the cas unique that the current item must have; None for any. With 0, which no item
            has, set and replace never store, and append and prepend always do.
        accept_older: if the current item is newer than `unique`, store nonetheless, as stale and
            with the expiry of the current item.
        ordered: whether the greater of two cas uniques is the newer one. If not, a unique other
            than the current one counts as older, as a client can only have seen it earlier.
        vivify: whether append and prepend create an item that is absent.
    """
    replaces = mode in (Mode.SET, Mode.REPLACE)
    joins = mode in (Mode.APPEND, Mode.PREPEND)
    if current is None:
        if unique is not None and replaces:
            return Outcome.NOT_FOUND, None
        stores = mode in (Mode.SET, Mode.ADD) or (vivify and joins)
        return (Outcome.STORED, new) if stores else (Outcome.NOT_STORED, None)
    if unique is not None and (replaces or (joins and unique != 0)):
        if unique != 0 and unique == current.unique:
            return (Outcome.STORED, new) if replaces else _PLAIN[mode](current, new)
        older = unique != 0 and (unique < current.unique or not ordered)
        if accept_older and replaces and older:
            return Outcome.STORED, _as_stale(current, new)
        return Outcome.EXISTS, None
    return (Outcome.STORED, new) if mode is Mode.SET else _PLAIN[mode](current, new)


def _as_stale(current: Item, new: Content) -> Content:
    won = current.meta_flags is not None and current.meta_flags.won
    meta_flags = (new.meta_flags or MetaFlags())._replace(stale=True, won=won)
    return new._replace(expires=current.expires, meta_flags=meta_flags)


def count(current: Item | None, delta: int) -> tuple[Outcome, int, Content | None]:
    """Add `delta` to a decimal value: wraps at 2**64, and stops at 0 if `delta` is negative.

    Returns:
        The outcome, the new number, and what to store. The stored value is not shorter than the
        old one, but padded with spaces: "10" minus 1 is stored as "9 ".
    """
    if current is None:
        return Outcome.NOT_FOUND, 0, None
    if current.size > _MAX_COUNTER_VALUE:
        return Outcome.NON_NUMERIC, 0, None
    value = current.value
    match = _COUNTER.match(value)
    # Converting many digits is slow, and only zeros may precede the 20 of the largest number.
    number = int(match[1].lstrip(b"0")[:21] or b"0") if match else _COUNTER_END
    if number >= _COUNTER_END:
        return Outcome.NON_NUMERIC, 0, None
    number = max(0, number + delta) if delta < 0 else (number + delta) % _COUNTER_END
    digits = b"%d" % number
    stored = digits.ljust(len(value))
    meta_flags = current.meta_flags
    if meta_flags is not None and meta_flags.unique is not None:
        meta_flags = meta_flags._replace(unique=None)
    return Outcome.STORED, number, Content(stored, current.flags, current.expires, meta_flags)
