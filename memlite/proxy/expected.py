"""Requests that nodes have not answered, and the check that replies fit them.

A reply of the wrong kind, or with the wrong key, shows that the node and the proxy are out of step:
all further replies may belong to other requests.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from memlite.proxy.framing import NATIVE

__all__ = ["REPLIES", "Asked", "AskedInPython", "fits", "shown"]

_ITEM: Final = (b"VALUE <key> <flags> <bytes>",)
_ITEM_WITH_UNIQUE: Final = (b"VALUE <key> <flags> <bytes> <unique>",)
_STORED: Final = (b"STORED", b"NOT_STORED", b"EXISTS", b"NOT_FOUND")
_COUNTED: Final = (b"<number>", b"NOT_FOUND")

REPLIES: Final[dict[bytes, tuple[bytes, ...]]] = {
    b"get": _ITEM,
    b"gat": _ITEM,
    b"gets": _ITEM_WITH_UNIQUE,
    b"gats": _ITEM_WITH_UNIQUE,
    b"set": _STORED,
    b"add": _STORED,
    b"replace": _STORED,
    b"append": _STORED,
    b"prepend": _STORED,
    b"cas": _STORED,
    b"delete": (b"DELETED", b"NOT_FOUND"),
    b"incr": _COUNTED,
    b"decr": _COUNTED,
    b"touch": (b"TOUCHED", b"NOT_FOUND"),
    b"mg": (b"VA ", b"HD ", b"EN ", b"OK "),
    b"ms": (b"HD ", b"NS ", b"EX ", b"NF ", b"OK ", b"ST "),
    b"md": (b"HD ", b"NF ", b"EX ", b"OK ", b"DE "),
    b"ma": (b"HD ", b"VA ", b"NF ", b"NS ", b"EX ", b"OK "),
    b"me": (b"ME ", b"EN "),
    b"flush_all": (b"OK",),
    b"version": (b"VERSION ",),
}
"""The replies to each command, except errors, which any may get; C has the same table.

Words may follow a reply that ends with a space. memcached before 1.6.10 says ``OK`` for ``HD``, and
1.5 says ``ST`` and ``DE``. For a retrieval, the entry is the form of each item, which may have a
cas unique in any case; ``END`` comes last.
Commands that are not listed may get any reply.
"""

_ERRORS: Final = (b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")
_KEYS_AT: Final = {b"get": 1, b"gets": 1, b"gat": 2, b"gats": 2}
_LENGTH_AT: Final = {
    b"set": 4, b"add": 4, b"replace": 4, b"append": 4, b"prepend": 4, b"cas": 4, b"ms": 2,
}  # fmt: skip
_META: Final = frozenset((b"mg", b"ms", b"md", b"ma"))
_MOST_KEPT: Final = 4096
_SHOWN: Final = 40


def shown(reply: bytes) -> str:
    """Return a reply as shown in an error: the beginning of its line, printable."""
    line = reply.partition(b"\r\n")[0]
    return repr(line[:_SHOWN])[1:] + ("..." if len(line) > _SHOWN else "")


def fits(request: bytes, reply: bytes) -> bool:
    """Return whether a reply fits a request.

    Args:
        request: the request; it may lack its value.
        reply: the whole reply.
    """
    if reply == b"STORED\r\n" and request[:4] == b"set ":
        return True
    words = _words(request)
    heads = REPLIES.get(words[0]) if words else None
    if heads is None or _is_error(reply):
        return True
    if heads[0][:6] == b"VALUE ":
        return _are_items(words[_KEYS_AT[words[0]] :], reply, heads[0].count(b" ") + 1)
    line = reply[: reply.find(b"\r\n")]
    word, space, _ = line.partition(b" ")
    for head in heads:
        if head == b"<number>":
            if line.rstrip(b" ").isdigit():
                return True
        elif head == line or (head[-1:] == b" " and head[:-1] == word):
            return not space or words[0] not in _META or _is_of(words, line)
    return False


def _words(request: bytes) -> list[bytes]:
    end = request.find(b"\n")
    line = request if end < 0 else request[:end]
    return [word for word in line.removesuffix(b"\r").split(b" ") if word]


def _is_error(reply: bytes) -> bool:
    end = reply.find(b"\r\n")
    return reply[:end].partition(b" ")[0].removesuffix(b":") in _ERRORS


def _are_items(keys: Sequence[bytes], reply: bytes, least: int) -> bool:
    """Return whether a reply consists of items of these keys, in order, and ``END`` or an error.

    Args:
        keys: the keys.
        reply: the reply.
        least: the least number of words in an item.
    """
    position, following = 0, iter(keys)
    while reply[position : position + 6] == b"VALUE ":
        end = reply.find(b"\r\n", position)
        words = reply[position:end].split(b" ")
        if not least <= len(words) <= 5 or not all(map(bytes.isdigit, words[2:])):
            return False
        if words[1] not in following:  # which continues after it
            return False
        position = end + 4 + int(words[3])
    return reply[position:] == b"END\r\n" or _is_error(reply[position:])


def _is_of(words: Sequence[bytes], line: bytes) -> bool:
    """Return whether a meta reply names the key and the opaque of its request, if it names any."""
    tokens = line.split(b" ")[1:]
    # One key may be in base64 and the other not, or in another form of it.
    encoded = b"b" in words or b"b" in tokens
    for token in tokens:
        if token[:1] == b"k" and [token[1:]] != words[1:2] and not encoded:
            return False
        if token[:1] == b"O" and token not in words:
            return False
    return True


class AskedInPython:
    """The requests that a node was sent and has not answered.

    They are kept as sent: one request, or several that have the same receiver. Of long ones only
    the lines are kept, in a tuple.
    """

    __slots__ = ("_entries", "_position")

    def __init__(self) -> None:
        self._entries: deque[bytes | tuple[bytes]] = deque()
        self._position = 0  # of the next request in the first entry

    def extend(self, requests: list[bytes]) -> None:
        """Add requests that were sent; each has one receiver."""
        for request in requests:
            self._entries.append(request if len(request) <= _MOST_KEPT else _lines(request))

    def take(self, reply: bytes, more: bool) -> bool:
        """Return whether a reply fits the next request, which it completes.

        Args:
            reply: the reply.
            more: whether the receiver takes further replies after it.
        """
        if not self._entries:
            return True
        entry = self._entries[0]
        data = entry if isinstance(entry, bytes) else entry[0]
        position = self._position
        if more or position:
            end = _end_of_request(data, position, bare=not isinstance(entry, bytes))
            self._position = end
            data = data[position:end]
        if not fits(data, reply):
            return False
        if not more:
            self.skip()
        return True

    def skip(self) -> None:
        """Forget the requests of the next receiver."""
        if self._entries:
            self._entries.popleft()
        self._position = 0

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._position = 0


def _end_of_request(data: bytes, position: int, *, bare: bool) -> int:
    """Return where a request ends, including its value unless the requests are `bare`."""
    end = data.find(b"\n", position) + 1
    if not end:
        return len(data)
    words = _words(data[position:end])
    place = None if bare or not words else _LENGTH_AT.get(words[0])
    if place is None:
        return end
    length = words[place] if place < len(words) else b""
    return min(end + int(length) + 2, len(data)) if length.isdigit() else len(data)


def _lines(data: bytes) -> bytes | tuple[bytes]:
    """Return the lines of requests without their values, or `data` if there are no values."""
    lines: list[bytes] = []
    position = 0
    while position < len(data):
        line = data.find(b"\n", position) + 1
        lines.append(data[position:line] if line else data[position:])
        position = _end_of_request(data, position, bare=False)
    kept = b"".join(lines)
    return data if len(kept) == len(data) else (kept,)


Asked: Final[Any] = AskedInPython if NATIVE is None else NATIVE.Asked
"""The class to use."""

if NATIVE is not None:
    NATIVE.expect(REPLIES)
