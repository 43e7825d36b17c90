"""The display for programs: a JSON object for each reply."""

import base64
import json
import re
from collections.abc import Iterator

from memlite.client.replies import Item, Part, Shape, is_error
from memlite.shell.text import clean
from memlite.shell.typed import Request

__all__ = ["JsonLines"]

_SINGLE = (Shape.ITEMS, Shape.ITEM, Shape.META, Shape.ROWS)
# Larger numbers lose digits in readers that only have floating point.
_EXACT = 2**53


class JsonLines:
    """Writes each reply as a line of JSON.

    Items become ``{"items": [{"key", "value", …}]}``, statistics ``{"stats": {name: value}}``, and
    other lines ``{"reply": …}`` or ``{"error": …}``. A value that is not UTF-8 is in
    ``value_base64`` instead. For a reply without a known end, such as that of ``watch``, each line
    is a separate object.
    """

    def __init__(self) -> None:
        self._request = Request(b"", Shape.LINE, ())
        self._items: list[dict[str, object]] = []
        self._stats: dict[str, object] = {}
        self._said = False

    def begin(self, request: Request) -> None:
        """Start a reply to `request`."""
        self._request = request
        self._items, self._stats, self._said = [], {}, False

    def part(self, part: Part) -> Iterator[bytes]:
        """Yield the object of a line that is not a part of a larger one."""
        if isinstance(part, Item):
            self._items.append(self._item(part))
            return
        word, _, rest = part.text.partition(b" ")
        if word == b"STAT" and rest:
            name, _, value = rest.partition(b" ")
            self._stats[clean(name)] = _number(clean(value))
        elif part.text not in (b"END", b"EN") or self._request.shape is Shape.META:
            self._said = True
            yield _line({"error" if is_error(part) else "reply": clean(part.text)})

    def end(self, *, whole: bool = True) -> bytes:
        """Return the object of all items or statistics."""
        if self._stats or (self._request.shape is Shape.ROWS and whole and not self._said):
            return _line({"stats": self._stats})
        asked = self._request.shape in (Shape.ITEMS, Shape.ITEM)
        if self._items or (asked and whole and not self._said):
            return _line({"items": self._items})
        return b""

    def _item(self, item: Item) -> dict[str, object]:
        words = [clean(word) for word in item.head.split(b" ")]
        found: dict[str, object] = {}
        if words[0] == "VALUE":
            found["key"] = words[1]
            found |= zip(("flags", "cas"), map(_number, (*words[2:3], *words[4:5])), strict=False)
        else:
            asked = self._request.words
            found["key"] = clean(asked[1]) if len(asked) > 1 else ""
            found["meta"] = words[2:]
        try:
            found["value"] = item.value.decode()
        except UnicodeDecodeError:
            found["value_base64"] = base64.b64encode(item.value).decode()
        return found


def _number(text: str) -> int | float | str:
    """Return a number that JSON can hold exactly, else the text."""
    if re.fullmatch(r"-?(0|[1-9][0-9]*)", text) and abs(int(text)) <= _EXACT:
        return int(text)
    if re.fullmatch(r"-?(0|[1-9][0-9]*)\.[0-9]{1,9}", text):
        return float(text)
    return text


def _line(found: dict[str, object]) -> bytes:
    return json.dumps(found, ensure_ascii=False).encode() + b"\n"
