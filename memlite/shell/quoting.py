"""A key and a value as they are typed: in quotes, of which the length is counted."""

import re

from memlite.errors import MemliteError

__all__ = ["TypedError", "check_key", "quoted"]

_QUOTED = re.compile(rb"\s*(\S+)\s+(\S+)\s+(?=[\"'])")
_PIECE = re.compile(
    rb"""(?P<plain>[^"'\\]+)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<quote>["'])|\\""",
    re.DOTALL,
)
_ESCAPES = {
    b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"a": b"\a", b"b": b"\b",
    b"\\": b"\\", b'"': b'"', b"'": b"'",
}  # fmt: skip
_KEY_AT_MOST = 250


class TypedError(MemliteError):
    """What was typed cannot be sent. Its text is one line that says why.

    Attributes:
        announced: bytes of a value that follows all the same, and must not be taken for commands.
    """

    def __init__(self, text: str, announced: int | None = None) -> None:
        super().__init__(text)
        self.announced = announced


def quoted(line: bytes) -> tuple[bytes, bytes, list[bytes]] | None:
    """Return key, value and the words behind it; None of a line without a quote behind the key.

    Args:
        line: of a storage command.

    Raises:
        TypedError: the value is wrong.
    """
    found = _QUOTED.match(line)
    if found is None:
        return None
    value, end = _unquote(line, found.end())
    rest = line[end:]
    if rest[:1].strip():
        raise TypedError("there must be a space behind the closing quote")
    return found[2], value, rest.split()


def check_key(key: bytes) -> None:
    """Refuse a key that no server takes.

    Raises:
        TypedError: that is so.
    """
    if not key or len(key) > _KEY_AT_MOST:
        raise TypedError(f"a key has 1 to {_KEY_AT_MOST} bytes, this one {len(key):,}")
    if any(byte <= 0x20 or byte == 0x7F for byte in key):
        raise TypedError("a key has no spaces and no control characters")


def _unquote(line: bytes, start: int) -> tuple[bytes, int]:
    """Return the value whose opening quote is at `start`, and where what is behind it begins."""
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
            raise TypedError(rf"unknown escape {shown}; a backslash is \\")
    raise TypedError("the quote is not closed")
