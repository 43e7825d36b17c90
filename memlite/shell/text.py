"""Values and lines as text a terminal may be given: nothing in them moves its cursor."""

import json
import re
from collections.abc import Iterator

__all__ = ["HEX", "JSON", "TEXT", "clean", "form", "hex_dump", "indent"]

TEXT, JSON, HEX = "text", "JSON", "hex"

# Controls, and characters that are invisible or change the direction of what follows. Joiners
# (U+200C, U+200D) are part of words and emoji.
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_UNSAFE_IN_LINE = re.compile(f"[\t\n{_UNSAFE}]")
_NAMES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_JSON_AT_MOST = 1024 * 1024
# Deeper is not indented further, or a megabyte would become hundreds.
_DEPTH_AT_MOST = 20
_HEX_ROW = 16
_AS_ASCII = bytes(byte if 0x20 <= byte < 0x7F else ord(".") for byte in range(256))


def clean(data: bytes, *, lines: bool = False) -> str:
    r"""Return `data` as text in which each character that is not safe to show is escaped.

    Args:
        data: UTF-8, or anything: other bytes become ``\xff``.
        lines: leave line ends and tabs as they are.
    """
    text = data.decode("utf-8", "backslashreplace")
    return (_UNSAFE_IN_TEXT if lines else _UNSAFE_IN_LINE).sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if code < 0x80:
        return _NAMES.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def form(value: bytes) -> str:
    """Return which of `TEXT`, `JSON` and `HEX` shows `value` best."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return HEX
    if text[:1] in ("{", "[") and len(text) <= _JSON_AT_MOST:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return JSON
    # A stray escape is shown as one; what is full of them is no text.
    strange = sum(1 for _ in _UNSAFE_IN_TEXT.finditer(text)) - text.count("\r\n")
    return HEX if "\0" in text or strange * 10 > len(text) else TEXT


def indent(value: bytes) -> str:
    """Return JSON indented, its numbers and strings as they were written.

    Args:
        value: valid JSON.
    """
    pieces: list[str] = []
    depth = 0
    previous = ""
    for piece in _TOKEN.findall(value.decode()):
        closes = piece in ("}", "]")
        if closes:
            depth -= 1
        opened = previous in ("{", "[")
        if (opened and not closes) or (closes and not opened) or previous == ",":
            pieces.append("\n" + "  " * min(depth, _DEPTH_AT_MOST))
        pieces.append(": " if piece == ":" else piece)
        if piece in ("{", "["):
            depth += 1
        previous = piece
    return _UNSAFE_IN_TEXT.sub(_escape, "".join(pieces))


def hex_dump(value: bytes) -> Iterator[str]:
    """Yield lines of sixteen bytes: where they are, what they are, and as ASCII; 78 columns."""
    for start in range(0, len(value), _HEX_ROW):
        row = value[start : start + _HEX_ROW]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        yield f"{start:08x}  {left:<23}  {right:<23}  |{row.translate(_AS_ASCII).decode()}|"
