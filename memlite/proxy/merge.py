"""Merging of several nodes' replies to the parts of one retrieval."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from memlite.proxy.framing import NATIVE

__all__ = ["ITEMS", "Merger"]

_END: Final = b"END\r\n"
_LF: Final = ord("\n")
_LENGTH_DIGITS: Final = 19
# The memory for headers is bounded.
_MAX_REMEMBERED: Final = 32_768


_Items: TypeAlias = Callable[[list[bytes], bytes, int], tuple[list[bytes], int]]
ITEMS: Final[_Items | None] = None if NATIVE is None else NATIVE.items
"""The C version of `Merger.items`; None if it was not compiled."""


class Merger:
    """Merges replies.

    In Python, an item's header, its ``VALUE`` line, is cached: if the same bytes are in the same
    place, they need not be parsed again. That takes a third of the time.
    """

    def __init__(self) -> None:
        # For each key its last header, its length, and the size of an item with this header.
        self._headers: dict[bytes, tuple[bytes, int, int]] = {}

    def merge(self, keys: Sequence[tuple[bytes, int]], replies: Sequence[bytes]) -> bytes:
        r"""Return the items of several replies in the order of the request.

        Args:
            keys: each key with the index of the reply that has it, in the order of the request. The
                items of a reply come in the same order, and may lack some.
            replies: ``VALUE …\r\n<value>\r\n`` for each item, then ``END\r\n``. A reply that
                begins with something else counts as one without items.
        """
        of_replies: list[list[bytes]] = [[] for _ in replies]
        for key, index in keys:
            of_replies[index].append(key)
        items = [
            iter(self.items(own, reply)[0]) for own, reply in zip(of_replies, replies, strict=True)
        ]
        return b"".join([*(next(items[index]) for _, index in keys), _END])

    def items(self, keys: list[bytes], reply: bytes, position: int = 0) -> tuple[list[bytes], int]:
        """Find the items of a reply.

        Args:
            keys: the keys that were asked for.
            reply: begins with the items, in the order of the keys; some may be missing. It may end
                anywhere.
            position: where the items begin.

        Returns:
            The item of each key, empty if it is missing, and where the last item ends. If
            ``END`` does not begin there, the reply is not complete.
        """
        if ITEMS is not None:
            return ITEMS(keys, reply, position)
        return self.items_in_python(keys, reply, position)

    def items_in_python(
        self, keys: list[bytes], reply: bytes, position: int
    ) -> tuple[list[bytes], int]:
        """See `items`."""
        remembered = self._headers.get
        found: list[bytes] = []
        add = found.append
        looked_at, there = -1, b""  # a position, and the key of the item there
        for key, known in zip(keys, map(remembered, keys), strict=True):
            if known is not None:
                header, length, size = known
                item = reply[position : position + size]
                # The item is complete, not just a part that happens to end with a line feed.
                if item[:length] == header and len(item) == size and item[-1] == _LF:
                    add(item)
                    position += size
                    continue
            if position != looked_at:
                looked_at, there = position, _key_at(reply, position)
            if key != there:
                if not there:
                    break
                add(b"")
                continue
            size = self._parse(key, reply, position)
            item = reply[position : position + size]
            if len(item) != size or item[-2:] != b"\r\n":  # or empty
                break
            add(item)
            position += size
        found += [b""] * (len(keys) - len(found))
        return found, position

    def _parse(self, key: bytes, reply: bytes, position: int) -> int:
        """Return the size of an item, and remember its header.

        The size is 0 if the header is missing or incomplete.
        """
        end = reply.find(b"\r\n", position) + 2
        if end < 2:
            return 0
        header = reply[position:end]
        words = header[:-2].split(b" ")
        if len(words) not in (4, 5) or not words[3].isdigit() or len(words[3]) > _LENGTH_DIGITS:
            return 0
        if len(self._headers) >= _MAX_REMEMBERED:
            self._headers.clear()
        size = len(header) + int(words[3]) + 2
        self._headers[key] = header, len(header), size
        return size


def _key_at(reply: bytes, position: int) -> bytes:
    """Return the key of the item at a position; empty if there is none."""
    end = reply.find(b" ", position + 6)
    if end < 0 or reply[position : position + 6] != b"VALUE ":
        return b""
    return reply[position + 6 : end]
