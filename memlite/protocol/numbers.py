"""Parsing of the text protocol's decimal numbers."""

from typing import Final

__all__ = [
    "exptime_of",
    "length_of",
    "signed",
    "signed_32",
    "small_number",
    "unsigned",
    "without_plus",
]

_MAX_DIGITS: Final = 20  # the digits of 2**64
_LENGTHS_END: Final = 2**31 - 2  # with its line ending, a value's length has 31 bits

# Numbers on the wire are mostly small: a dict lookup costs a quarter of a validated int().
_SMALL_NUMBERS: Final = {str(number).encode(): number for number in range(4097)}
small_number: Final = _SMALL_NUMBERS.get
"""Parse a number from 0 to 4096 in canonical form; return None for any other token."""


def unsigned(token: bytes, end: int) -> int | None:
    """Parse a decimal number; return None if it is invalid or not below `end`."""
    number = _SMALL_NUMBERS.get(token)
    # int() alone would accept "1_0" and "+1".
    if number is None and token.isdigit():
        digits = token.lstrip(b"0") or b"0"
        if len(digits) <= _MAX_DIGITS:
            number = int(digits)
    return number if number is not None and number < end else None


def signed(token: bytes) -> int | None:
    """Parse a decimal number with an optional minus sign; return None if it exceeds 64 bits."""
    if not token.startswith(b"-"):
        return unsigned(token, 2**63)
    number = unsigned(token[1:], 2**63 + 1)
    return None if number is None else -number


def signed_32(token: bytes) -> int | None:
    """Parse like `signed`, but return None if the number exceeds 32 bits.

    As in memcached, a minus sign alone is 0.
    """
    number = 0 if token == b"-" else signed(token)
    return number if number is not None and -(2**31) <= number < 2**31 else None


def without_plus(token: bytes) -> bytes:
    """Strip a leading plus sign, which memcached accepts in the numbers it parses with strtol."""
    return token[1:] if token.startswith(b"+") and token[1:].isdigit() else token


def exptime_of(token: bytes) -> int | None:
    """Return the exptime of a storage command, None if `token` is not a valid exptime."""
    return signed(without_plus(token))


def length_of(token: bytes) -> int | None:
    """Parse the length of a value like `signed_32`; return None if no value can be that long."""
    number = signed_32(token)
    return number if number is not None and 0 <= number < _LENGTHS_END else None
