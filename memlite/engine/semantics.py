"""What each read-modify-write command does, as pure functions.

Each takes the current item (None when there is none, or it has expired) and returns an outcome
and what to store, or None to leave things as they are. The rules are those of memcached 1.6's
``doc/protocol.txt``; where that is silent, of ``do_store_item`` and ``do_add_delta``.
"""

import enum
import re
from typing import Final, NamedTuple

from memlite.backends import Item

__all__ = [
    "Content",
    "Outcome",
    "add",
    "always",
    "append",
    "cas",
    "count",
    "expiry",
    "prepend",
    "replace",
]

MAX_RELATIVE_EXPTIME: Final = 60 * 60 * 24 * 30
"""Seconds up to which an exptime counts from now; above, it is a unix time."""

_LONG_AGO: Final = 1.0
_COUNTER_END: Final = 2**64
# strtoull(): leading white space, a sign; then white space, a NUL or the end of the value.
_COUNTER: Final = re.compile(rb"[ \t\n\v\f\r]*(\+?[0-9]+)(?:[ \t\n\v\f\r\0]|$)", re.DOTALL)
# memcached keeps longer values in chunks, and refuses to count in those.
_COUNTER_VALUE_MAX: Final = 512 * 1024


class Outcome(enum.Enum):
    """How a command ended."""

    STORED = enum.auto()
    NOT_STORED = enum.auto()
    EXISTS = enum.auto()
    NOT_FOUND = enum.auto()
    NON_NUMERIC = enum.auto()


class Content(NamedTuple):
    """What a command wants stored.

    Attributes:
        value: the bytes.
        flags: the client's flags.
        expires: unix time in seconds, 0 for never.
    """

    value: bytes
    flags: int
    expires: float


Decision = tuple[Outcome, Content | None]


def expiry(exptime: int, now: float) -> float:
    """Return the unix time at which an item with the wire's `exptime` expires, 0 for never.

    Up to 30 days count from `now`; more is a unix time; below 0 has expired already.
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
    """Store, whatever is there (set)."""
    return Outcome.STORED, new


def replace(current: Item | None, new: Content) -> Decision:
    """Store only if the key is present."""
    return (Outcome.NOT_STORED, None) if current is None else (Outcome.STORED, new)


def append(current: Item | None, new: Content) -> Decision:
    """Put the value behind the present one, whose flags and expiry stay."""
    if current is None:
        return Outcome.NOT_STORED, None
    return Outcome.STORED, Content(current.value + new.value, current.flags, current.expires)


def prepend(current: Item | None, new: Content) -> Decision:
    """Put the value before the present one, whose flags and expiry stay."""
    if current is None:
        return Outcome.NOT_STORED, None
    return Outcome.STORED, Content(new.value + current.value, current.flags, current.expires)


def cas(current: Item | None, new: Content, unique: int) -> Decision:
    """Store only if nobody has stored since the version `unique` was read."""
    if current is None:
        return Outcome.NOT_FOUND, None
    if current.version != unique:
        return Outcome.EXISTS, None
    return Outcome.STORED, new


def count(current: Item | None, delta: int) -> tuple[Outcome, int, Content | None]:
    """Add `delta` to a decimal value: up wraps at 2**64, down (a negative delta) stops at 0.

    Returns:
        The outcome, the new number, and what to store. The stored value keeps the old one's
        length where the number fits, filled with spaces: "10" less 1 is stored as "9 ".
    """
    if current is None:
        return Outcome.NOT_FOUND, 0, None
    if current.size > _COUNTER_VALUE_MAX:
        return Outcome.NON_NUMERIC, 0, None
    value = current.value
    match = _COUNTER.match(value)
    number = int(match[1]) if match and len(match[1]) <= 40 else _COUNTER_END
    if number >= _COUNTER_END:
        return Outcome.NON_NUMERIC, 0, None
    number = max(0, number + delta) if delta < 0 else (number + delta) % _COUNTER_END
    digits = b"%d" % number
    stored = digits.ljust(len(value))
    return Outcome.STORED, number, Content(stored, current.flags, current.expires)
