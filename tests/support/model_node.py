"""A model of a memcached node: the meta commands that move keys, on a table in memory."""

import base64
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ModelItem:
    """An item of the model."""

    value: bytes
    unique: int
    flags: int = 0
    expires: int = 0
    stale: bool = False
    sent: bool = False
    binary: bool = False


class ModelNode:
    """Answers ``mg``, ``ms`` and ``md`` as memcached does.

    Args:
        assigns: whether it supports the flag E.
        largest: the maximum size of a value, in bytes.
        first: the first cas unique.
    """

    def __init__(self, *, assigns: bool = True, largest: int = 1 << 20, first: int = 1) -> None:
        self.items: dict[bytes, ModelItem] = {}
        self.assigns = assigns
        self.largest = largest
        self.now = 1000
        self.log: list[bytes] = []
        self.following = first

    def handle(self, request: bytes) -> bytes:
        """Carry out a request; return the reply."""
        self.log.append(request)
        line, _, rest = request.partition(b"\r\n")
        command, word, *flags = line.split()
        value = b""
        if command == b"ms":
            value = rest[: int(flags.pop(0))]
        options = {flag[:1]: flag[1:] for flag in flags}
        if b"E" in options and not self.assigns:
            return b"CLIENT_ERROR invalid flag\r\n"
        key = base64.b64decode(word) if b"b" in options else word
        item = self.items.get(key)
        if item is not None and item.expires and item.expires <= self.now:
            del self.items[key]
            item = None
        if command == b"mg":
            return self._get(word, key, item, options)
        if command == b"ms":
            return self._set(key, item, options, value)
        assert command == b"md"
        return self._delete(key, item, options)

    def _unique(self, options: dict[bytes, bytes]) -> int:
        if b"E" in options:
            return int(options[b"E"])
        self.following += 1
        return self.following - 1

    def _get(
        self, word: bytes, key: bytes, item: ModelItem | None, options: dict[bytes, bytes]
    ) -> bytes:
        if item is None:
            return b"EN\r\n"
        won = item.stale and not item.sent
        left = item.expires - self.now if item.expires else -1
        if b"R" in options and not item.sent and item.expires and left < int(options[b"R"]):
            won = True
        words = []
        for name in options:
            shown = {
                b"f": item.flags,
                b"t": left,
                b"c": item.unique,
                b"s": len(item.value),
                b"l": 0,
                b"h": 0,
            }.get(name)
            if shown is not None:
                words.append(b"%b%d" % (name, shown))
            elif name == b"k":
                words += [b"k" + word, b"b"] if item.binary else [b"k" + word]
        words += [
            mark for mark, there in ((b"W", won), (b"X", item.stale), (b"Z", item.sent)) if there
        ]
        if won:
            self.items[key] = replace(item, sent=True)
        if b"v" in options:
            head = b" ".join([b"VA %d" % len(item.value), *words])
            return head + b"\r\n" + item.value + b"\r\n"
        return b" ".join([b"HD", *words]) + b"\r\n"

    def _set(
        self, key: bytes, item: ModelItem | None, options: dict[bytes, bytes], value: bytes
    ) -> bytes:
        mode = options.get(b"M", b"S")
        exptime = int(options.get(b"T", b"0"))
        flags = int(options.get(b"F", b"0"))
        if item is not None and b"C" in options and int(options[b"C"]) != item.unique:
            return b"EX c0\r\n"
        if item is None and mode == b"A":
            return b"NS c0\r\n"
        if item is None and b"C" in options:
            return b"NF c0\r\n"
        if item is not None and mode == b"E":
            return b"NS c0\r\n"
        expires = self.now + exptime if exptime else 0
        if mode == b"A" and item is not None:
            value, flags, expires = item.value + value, item.flags, item.expires
        if len(value) > self.largest:
            return b"NS c0\r\n" if mode == b"A" else b"SERVER_ERROR object too large for cache\r\n"
        unique = self._unique(options)
        self.items[key] = ModelItem(value, unique, flags, expires, binary=b"b" in options)
        return b"HD c%d\r\n" % unique

    def _delete(self, key: bytes, item: ModelItem | None, options: dict[bytes, bytes]) -> bytes:
        if item is None:
            return b"NF\r\n"
        if b"C" in options and int(options[b"C"]) != item.unique:
            return b"EX\r\n"
        if b"I" in options:
            self.items[key] = replace(item, stale=True, sent=False, unique=self._unique(options))
        else:
            del self.items[key]
        return b"HD\r\n"
