"""Parse the quoted values of typed storage commands, and validate keys."""

import re

from memlite.core.errors import MemliteError

__all__ = ["MAX_KEY_LENGTH", "TypedError", "check_key", "quoted"]

_QUOTED = re.compile(rb"\s*(\S+)\s+(\S+)\s+(?=[\"'])")
_PIECE = re.compile(
    rb"""(?P<plain>[^"'\\]+)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<quote>["'])|\\""",
    re.DOTALL,
)
_ESCAPES = {
    b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"a": b"\a", b"b": b"\b",
    b"\\": b"\\", b'"': b'"', b"'": b"'",
}  # fmt: skip
MAX_KEY_LENGTH = 250
"""memcached's limit on keys, in bytes."""


class TypedError(MemliteError):
    """A typed command cannot be sent. The message is one line that explains why.

    Attributes:
        announced: length of a value that follows nevertheless, and must not be read as commands.
    """

    def __init__(self, text: str, announced: int | None = None) -> None:
        super().__init__(text)
        self.announced = announced


def quoted(line: bytes) -> tuple[bytes, bytes, list[bytes]] | None:
    """Parse a storage command with a quoted value.

    Args:
        line: the line of a storage command.

    Returns:
        The key, the value and the words after it; None if the key is not followed by a quote.

    Raises:
        TypedError: the value is malformed.
    """
    match = _QUOTED.match(line)
    if match is None:
        return None
    value, end = _unquote(line, match.end())
    rest = line[end:]
    if rest[:1].strip():
        raise TypedError("there must be a space after the closing quote")
    return match[2], value, rest.split()


def check_key(key: bytes) -> None:
    """Reject a key that no server accepts.

    Raises:
        TypedError: the key is too long, empty, or contains forbidden characters.
    """
    if not key or len(key) > MAX_KEY_LENGTH:
        raise TypedError(f"a key must have 1 to {MAX_KEY_LENGTH} bytes, not {len(key):,}")
    if any(byte <= 0x20 or byte == 0x7F for byte in key):
        raise TypedError("a key must not contain spaces or control characters")


def _unquote(line: bytes, start: int) -> tuple[bytes, int]:
    """Return the value whose opening quote is at `start`, and the position after its end."""
    quote = line[start : start + 1]
    pieces: list[bytes] = []
    position = start + 1
    while found := _PIECE.match(line, position):
        position = found.end()
        escape = found["escape"]
        if found["quote"] == quote:
            return b"".join(pieces), position
        if found["plain"] is not None or found["quote"]:
            pieces.append(found[0])
        elif quote == b"'":
            pieces.append(escape if escape in (b"\\", b"'") else found[0])
        elif found["hex"] is not None:
            pieces.append(bytes.fromhex(found["hex"].decode()))
        elif escape in _ESCAPES:
            pieces.append(_ESCAPES[escape])
        else:
            shown = found[0].decode("utf-8", "backslashreplace")
            raise TypedError(rf"unknown escape {shown}; write a backslash as \\")
    raise TypedError("the quote is not closed")
