"""Render values and lines as text that is safe for a terminal: control characters are escaped."""

import json
import re
from collections.abc import Iterator

__all__ = ["HEX", "JSON", "TEXT", "clean", "hex_dump", "indent_json", "value_format"]

TEXT, JSON, HEX = "text", "JSON", "hex"

# Control characters, and characters that are invisible or change the text direction. Joiners
# (U+200C, U+200D) are allowed because they occur in words and emoji.
_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_UNSAFE_IN_LINE = re.compile(f"[\t\n{_UNSAFE}]")
_NAMES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_MAX_JSON_LENGTH = 1024 * 1024
# Deeper levels are not indented further; otherwise a megabyte could grow to hundreds.
_MAX_INDENT_LEVEL = 20
_HEX_BYTES_PER_LINE = 16
_AS_ASCII = bytes(byte if 0x20 <= byte < 0x7F else ord(".") for byte in range(256))


def clean(data: bytes, *, lines: bool = False) -> str:
    r"""Decode `data`, and escape every character that is unsafe to show.

    Args:
        data: any bytes; those that are not valid UTF-8 are shown as, for example, ``\xff``.
        lines: keep newlines and tabs.
    """
    text = data.decode("utf-8", "backslashreplace")
    return (_UNSAFE_IN_TEXT if lines else _UNSAFE_IN_LINE).sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if code < 0x80:
        return _NAMES.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def value_format(value: bytes) -> str:
    """Return the best format for `value`: `TEXT`, `JSON` or `HEX`."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return HEX
    if text[:1] in ("{", "[") and len(text) <= _MAX_JSON_LENGTH:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return JSON
    # A few unsafe characters are escaped; a value with many of them is not text.
    unsafe = sum(1 for _ in _UNSAFE_IN_TEXT.finditer(text)) - text.count("\r\n")
    return HEX if "\0" in text or unsafe * 10 > len(text) else TEXT


def indent_json(value: bytes) -> str:
    """Indent JSON, leaving numbers and strings exactly as written.

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
            pieces.append("\n" + "  " * min(depth, _MAX_INDENT_LEVEL))
        pieces.append(": " if piece == ":" else piece)
        if piece in ("{", "["):
            depth += 1
        previous = piece
    return _UNSAFE_IN_TEXT.sub(_escape, "".join(pieces))


def hex_dump(value: bytes) -> Iterator[str]:
    """Yield a hex dump with offsets and ASCII, sixteen bytes per line, 78 columns wide."""
    for start in range(0, len(value), _HEX_BYTES_PER_LINE):
        row = value[start : start + _HEX_BYTES_PER_LINE]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        yield f"{start:08x}  {left:<23}  {right:<23}  |{row.translate(_AS_ASCII).decode()}|"
