"""The human-readable display: values formatted by type, statistics as a table."""

import re
from collections.abc import Iterator
from itertools import islice

from memlite.client.replies import Item, Line, Part, Shape, is_error
from memlite.shell.display import Style
from memlite.shell.flags import describe_reply_flag
from memlite.shell.hot_keys import hot_keys_table
from memlite.shell.text import HEX, JSON, clean, hex_dump, indent_json, value_format
from memlite.shell.typed import Request

__all__ = ["Pretty"]

_MAX_TABLE_ROWS = 1000
# How much of a value a terminal shows; other outputs get all of it.
_MAX_CHARACTERS = 16 * 1024
_MAX_HEX_LINES = 16
# Statistics whose numbers are identifiers, not quantities.
_IDENTIFIERS = {"pid", "time", "tcpport", "udpport"}
_OUTCOMES = {b"HD": "done", b"EN": "not found", b"NF": "not found", b"NS": "not stored",
             b"EX": "exists, with another cas unique"}  # fmt: skip


class Pretty:
    """Shows replies in human-readable form.

    Args:
        style: the capabilities of the output.
    """

    def __init__(self, style: Style) -> None:
        self.style = style
        self._request = Request(b"", Shape.LINE, ())
        self._rows: list[tuple[str, str]] = []
        self._parts = 0
        self._found = 0

    def begin(self, request: Request) -> None:
        """Start a reply to `request`."""
        self._request = request
        self._parts = self._found = 0

    def part(self, part: Part) -> Iterator[bytes]:
        """Yield the lines for the next part."""
        for line in self._lines(part):
            yield f"{line}\n".encode()

    def _lines(self, part: Part) -> Iterator[str]:
        self._parts += 1
        if isinstance(part, Item):
            self._found += 1
            yield from self._take_table()
            yield self.style.dim(self._header(part))
            yield from self._value(part.value)
            return
        word, _, rest = part.text.partition(b" ")
        if word == b"STAT" and rest:
            name, _, value = rest.partition(b" ")
            self._found += 1
            self._rows.append((clean(name), clean(value)))
            if len(self._rows) < _MAX_TABLE_ROWS:
                return
            yield from self._take_table()
        else:
            yield from self._take_table()
            yield from self._line(part)

    def end(self, *, whole: bool = True) -> bytes:
        """Return the rest of a table, or a note that there was no reply."""
        lines = self._take_table()
        if whole and not self._parts:
            closed = self._request.shape is Shape.LAST
            note = "(the server closed the connection)" if closed else "(no reply)"
            lines.append(self.style.dim(note))
        return "".join(f"{line}\n" for line in lines).encode()

    def _line(self, line: Line) -> list[str]:
        text, shown = line.text, clean(line.text)
        if is_error(line):
            return [self.style.red(shown)]
        shape = self._request.shape
        if shape in (Shape.ITEMS, Shape.ITEM) and text == b"END":
            return self._misses()
        if shape in (Shape.ROWS, Shape.DUMP):
            if text in (b"END", b"EN"):
                return [] if self._found else [self.style.dim("(nothing)")]
            if shape is Shape.DUMP and text == b"OK":
                return []
            self._found += 1
        word, *flags = shown.split(" ")
        outcome = _OUTCOMES.get(text[:2]) if len(word) == 2 else None
        if outcome is None or shape not in (Shape.META, Shape.FENCED):
            return [shown]
        explanation = ", ".join([outcome, *map(describe_reply_flag, filter(None, flags))])
        return [f"{shown}  {self.style.dim(f'({explanation})')}"]

    def _misses(self) -> list[str]:
        words = self._request.words
        requested = len(words) - (2 if words[0] in (b"gat", b"gats") else 1)
        if not self._found:
            return [self.style.dim("(not found)")]
        if self._found < requested:
            return [self.style.dim(f"({self._found} of {requested} found)")]
        return []

    def _header(self, item: Item) -> str:
        """Return a line with an item's key, size and metadata."""
        words = [clean(word) for word in item.head.split(b" ")]
        if words[0] == "VALUE":
            key, details = words[1], []
            if len(words) > 3:
                details.append(f"flags {words[2]}")
            if len(words) > 4:
                details.append(f"cas {words[4]}")
        else:
            key = next((word[1:] for word in words[2:] if word[:1] == "k"), "")
            if not key and len(self._request.words) > 1:
                key = clean(self._request.words[1])
            details = [describe_reply_flag(word) for word in words[2:] if word[:1] not in ("k", "")]
        size = len(item.value)
        size_text = f"{self.style.number(size)} byte{'' if size == 1 else 's'}"
        return f"{key}: {', '.join([size_text, *details])}"

    def _value(self, value: bytes) -> Iterator[str]:
        if not value:
            yield self.style.dim("(empty)")
            return
        chosen = value_format(value)
        if chosen == HEX:
            yield from self._hex(value)
            return
        if chosen == JSON:
            text = indent_json(value)
        else:
            # Truncate before escaping, so that only the shown part of a large value is processed.
            part = value[: _MAX_CHARACTERS * 4 + 4] if self.style.terminal else value
            text = clean(_without_partial_character(part), lines=True).removesuffix("\n")
        if self.style.terminal and len(text) > _MAX_CHARACTERS:
            yield text[:_MAX_CHARACTERS]
            yield self._truncation_note(_MAX_CHARACTERS, "characters", len(value))
        else:
            yield text

    def _hex(self, value: bytes) -> Iterator[str]:
        rows = hex_dump(value)
        yield from islice(rows, _MAX_HEX_LINES) if self.style.terminal else rows
        if self.style.terminal and len(value) > _MAX_HEX_LINES * 16:
            yield self._truncation_note(_MAX_HEX_LINES * 16, "bytes", len(value))

    def _truncation_note(self, shown: int, unit: str, size: int) -> str:
        return self.style.dim(f"(the first {shown:,} {unit} of {size:,} bytes; see help get)")

    def _take_table(self) -> list[str]:
        """Format and clear the rows collected so far: names left-aligned, numbers right-aligned."""
        rows, self._rows = self._rows, []
        if not rows:
            return []
        if self._request.words[:2] == (b"stats", b"hotkeys"):
            return hot_keys_table(rows, self.style)
        values = [self._cell(name, value) for name, value in rows]
        names_width = max(len(name) for name, _ in rows)
        if self.style.terminal:
            names_width = min(names_width, self.style.width // 2)
        numbers_width = max((len(value) for value in values if _is_number(value)), default=0)
        lines = []
        for (name, _), value in zip(rows, values, strict=True):
            cell = value.rjust(numbers_width) if _is_number(value) else value
            cell = self.style.clip(cell, self.style.width - names_width - 2)
            lines.append(
                f"{self.style.clip(name, names_width).ljust(names_width)}  {cell}".rstrip()
            )
        return lines

    def _cell(self, name: str, value: str) -> str:
        if (
            self.style.terminal
            and name not in _IDENTIFIERS
            and re.fullmatch(r"-?[0-9]{4,20}", value)
        ):
            return f"{int(value):,}"
        return value


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9][0-9,]*(\.[0-9]+)?", text) is not None


def _without_partial_character(data: bytes) -> bytes:
    """Return `data` without an incomplete UTF-8 character at its end."""
    for length in range(1, min(4, len(data) + 1)):
        if data[-length] & 0xC0 != 0x80:
            needed = (
                1 if data[-length] < 0xC0 else 2 + (data[-length] >= 0xE0) + (data[-length] >= 0xF0)
            )
            return data[:-length] if needed > length else data
    return data
