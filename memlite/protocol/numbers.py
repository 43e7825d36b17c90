"""Numbers as the text protocol spells them."""

from typing import Final

__all__ = ["signed", "signed_32", "small_number", "unsigned"]

_MAX_DIGITS: Final = 20  # of 2**64

# Numbers on the wire are mostly small: a dict hit costs a quarter of a checked int().
_SMALL_NUMBERS: Final = {str(number).encode(): number for number in range(4097)}
small_number: Final = _SMALL_NUMBERS.get
"""Return the number of these that a token spells, or None."""


def unsigned(token: bytes, end: int) -> int | None:
    """Return the number that `token` spells in decimal digits if it is below `end`."""
    number = _SMALL_NUMBERS.get(token)
    # isdigit() as int() alone would take "1_0" and "+1".
    if number is None and token.isdigit():
        digits = token.lstrip(b"0") or b"0"
        if len(digits) <= _MAX_DIGITS:
            number = int(digits)
    return number if number is not None and number < end else None


def signed(token: bytes) -> int | None:
    """Return the number that `token` spells, perhaps with a minus sign, if 64 bits hold it."""
    if not token.startswith(b"-"):
        return unsigned(token, 2**63)
    number = unsigned(token[1:], 2**63 + 1)
    return None if number is None else -number


def signed_32(token: bytes) -> int | None:
    """Return what `signed` does if 32 bits hold it."""
    number = signed(token)
    return number if number is not None and -(2**31) <= number < 2**31 else None
