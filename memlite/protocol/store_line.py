"""The words after the key in the line of a storage command, in their usual form."""

from typing import Final, TypeAlias

from memlite.protocol.numbers import exptime_of, small_number

__all__ = ["MAX_FORMAT", "Known", "known_rest", "read_rest"]

Known: TypeAlias = tuple[int, int, int, bytes, bool]
r"""Bytes of the value, flags, exptime, the same flags and size as ``get`` sends them after the key
(`` <flags> <bytes>\r\n``), and whether the client wants no reply."""

MAX_FORMAT: Final = 200
"""The largest value, in bytes, whose reply is formatted; for larger values it is joined, which does
not over-allocate; see `memlite.memory.item.wire_form`. Formatting takes two thirds of the time."""

# Clients store most values with few different numbers. One lookup costs less than splitting the
# words, parsing three numbers and joining them again: this saves 2,000 of a set's 20,000
# instructions.
_AT_MOST: Final = 8192
# Longer ones, with leading zeros, are not remembered.
_LONGEST: Final = 48
_FLAGS_END: Final = 2**32
_SIZES_END: Final = 2**31 - 2  # with its line ending, a value's length has 31 bits
_DIGITS: Final = 10
_known: Final[dict[bytes, Known]] = {}
known_rest: Final = _known.get
"""Return a past result of `read_rest` for the same words; None if there was none recently."""


def _canonical(token: bytes, end: int) -> int | None:
    """Parse a number below `end` without leading zeros."""
    number = small_number(token)
    if number is None and token.isdigit() and token[:1] != b"0" and len(token) <= _DIGITS:
        number = int(token)
    return number if number is not None and number < end else None


def read_rest(words: bytes) -> Known | None:
    """Parse ``<flags> <exptime> <bytes> [noreply]``.

    Args:
        words: the line after the key and a space.

    Returns:
        None unless in the usual form: single spaces, flags and size without leading zeros.
    """
    parts = words.split(b" ")
    noreply = len(parts) == 4 and parts[3] == b"noreply"
    if (len(parts) != 3 and not noreply) or len(words) > _LONGEST:
        return None
    flags, size = _canonical(parts[0], _FLAGS_END), _canonical(parts[2], _SIZES_END)
    exptime = exptime_of(parts[1])
    if flags is None or size is None or exptime is None:
        return None
    if len(_known) >= _AT_MOST:
        _known.clear()
    # Such numbers have a single form, so these bytes can be part of the reply to a later get.
    head = b" %b %b\r\n" % (parts[0], parts[2])
    _known[words] = found = (size, flags, exptime, head, noreply)
    return found
