"""Replies to an mg on a plain item that requests only data that any item has."""

from typing import Final

from memlite.memory import Item
from memlite.memory.item import END

__all__ = ["PlainFlags", "plain_flags", "read_plain_flags"]

_USUAL: Final = frozenset((b"v", b"s", b"f", b"t", b"k", b"q"))
# Offset of the flags and the size in the reply to a get with an empty key.
_NUMBERS_AT: Final = len(b"VALUE  ")
# The number of cached heads. They depend on the flags of the request and of the item, and on the
# size: most clients always use the same flags, for items of few sizes.
_AT_MOST: Final = 8192
_heads: Final[dict[tuple[bytes, bytes], bytes]] = {}


class PlainFlags:
    """The flags of an mg.

    Args:
        words: the flags, separated by spaces: some of v, s, f, t, k and q, each once.

    Attributes:
        key: whether the reply has the key.
        quiet: whether a miss has no reply.
    """

    __slots__ = ("_value", "_value_only", "_words", "key", "quiet")

    def __init__(self, words: bytes) -> None:
        self._words = words
        self._value = b"v" in words
        self._value_only = words == b"v"
        self.key = b"k" in words
        self.quiet = b"q" in words

    def reply(self, key: bytes, item: Item) -> bytes:
        """Return the reply of an item with a key that the text protocol can express."""
        wire = item.wire
        if self._value_only:
            # "VA", and the part after the flags in the reply to a get: size and value.
            return b"VA" + wire[wire.index(b" ", _NUMBERS_AT + len(key)) : -END]
        end = wire.index(b"\n") + 1
        numbers = wire[_NUMBERS_AT + len(key) : end]
        head = _heads.get((self._words, numbers)) or self._head(numbers)
        if self.key:
            head = head % key
        return head + wire[end:-END] if self._value else head

    def _head(self, numbers: bytes) -> bytes:
        """Return the first line, with %b for the key; `numbers` as a get sends them."""
        flags, size = numbers.split()
        parts = [b"VA " + size if self._value else b"HD"]
        shown = {b"s": b"s" + size, b"f": b"f" + flags, b"t": b"t-1", b"k": b"k%b"}
        parts += [shown[word] for word in self._words.split() if word in shown]
        if len(_heads) >= _AT_MOST:
            _heads.clear()
        _heads[self._words, numbers] = head = b" ".join(parts) + b"\r\n"
        return head


_known: Final[dict[bytes, PlainFlags]] = {}  # at most 1,957: combinations, in any order
plain_flags: Final = _known.get
"""Return what `read_plain_flags` returned for the same words; None if it has not been called."""


def read_plain_flags(words: bytes) -> PlainFlags | None:
    """Return the flags of an mg; None if a flag is not in `_USUAL`, or is repeated.

    Args:
        words: the part of the line after the key and a space.
    """
    flags = words.split(b" ") if words else []
    if not _USUAL.issuperset(flags) or len({*flags}) != len(flags):
        return None
    _known[words] = found = PlainFlags(words)
    return found
