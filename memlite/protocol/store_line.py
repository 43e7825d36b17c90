"""What follows the key in the line of a storage command, in its usual form."""

from typing import Final, TypeAlias

from memlite.protocol.numbers import exptime_of, small_number

__all__ = ["Known", "known_rest", "read_rest"]

Known: TypeAlias = tuple[int, int, int, bytes, bool]
r"""Bytes of the value, flags, exptime, the same flags and size as ``get`` sends them after the key
(`` <flags> <bytes>\r\n``), and whether the client wants no reply."""

# Clients store most values with few different numbers. One lookup costs less than taking the words
# apart, parsing three numbers and joining them again: of a set of 20,000 instructions, 2,000.
_AT_MOST: Final = 8192
# Longer ones, with leading zeros, are not remembered.
_LONGEST: Final = 48
_known: Final[dict[bytes, Known]] = {}
known_rest: Final = _known.get
"""Return what `read_rest` returned for the same words; None if that was long ago, or never."""


def read_rest(words: bytes) -> Known | None:
    """Parse ``<flags> <exptime> <bytes> [noreply]``.

    Args:
        words: what follows the key and a space.

    Returns:
        None for any but the usual form: a single space between words, flags and size up to 4096.
    """
    parts = words.split(b" ")
    noreply = len(parts) == 4 and parts[3] == b"noreply"
    if (len(parts) != 3 and not noreply) or len(words) > _LONGEST:
        return None
    flags, size = small_number(parts[0]), small_number(parts[2])
    exptime = exptime_of(parts[1])
    if flags is None or size is None or exptime is None:
        return None
    if len(_known) >= _AT_MOST:
        _known.clear()
    # Small numbers have a single spelling, so these bytes are part of the reply to a later get.
    head = b" %b %b\r\n" % (parts[0], parts[2])
    _known[words] = found = (size, flags, exptime, head, noreply)
    return found
