"""The client's side of the text protocol: what a server sends, split into replies."""

import re
from collections.abc import Callable
from typing import NamedTuple

from memlite.errors import ProtocolViolation

__all__ = ["Reply", "ReplyReader", "Value", "outliner"]

# The longest line a server sends that belongs to a reply is far shorter.
_LINE_AT_MOST = 64 * 1024
_V, _E = b"VE"


class Value(NamedTuple):
    """A found item.

    Attributes:
        key: its key.
        value: its value.
        unique: its cas unique, of gets and gats; else None.
    """

    key: bytes
    value: bytes
    unique: int | None


Reply = int | list[Value] | bytes
"""A reply: how many items a retrieval found, or the items; else the line, without its end.

A retrieval's reply begins with ``VALUE`` or is ``END``, and all others are one line; so the reader
need not be told what was asked.
"""


class ReplyReader:
    """Takes bytes as they come and gives whole replies.

    A value is framed by its declared length. What has been read of a reply that goes on is not
    looked at again.

    Args:
        keep: give the items of a retrieval rather than how many they are; needed for gets, whose
            lines end with another number.
        lite: whether it is the lite dialect's, whose ``VALUE`` lines have no flags.
    """

    def __init__(self, *, keep: bool = False, lite: bool = False) -> None:
        self._keep = keep
        self._length_at = 2 if lite else 3  # among a line's words
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0
        self._hits = 0
        self._values: list[Value] = []

    @property
    def pending(self) -> bool:
        """Whether a reply has begun that has not ended."""
        return bool(self._chunks or self._hits or self._values)

    def feed(self, data: bytes) -> list[Reply]:
        """Return the replies that `data` completes, in order.

        Raises:
            ProtocolViolation: this is not what a memcached server sends.
        """
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        replies: list[Reply] = []
        position, size, hits, keep = 0, len(data), self._hits, self._keep
        # Looked up once: a pipelined reply costs less than a microsecond here.
        find, find_back, has = data.find, data.rfind, data.startswith
        need = 0
        while position < size:
            first = data[position]
            if first == _V and has(b"VALUE ", position):
                end = find(b"\r\n", position)
                if end < 0:
                    need = size + 1
                    break
                try:
                    if keep:
                        words = data[position:end].split(b" ")
                        length = int(words[self._length_at])
                    else:
                        length = int(data[find_back(b" ", position, end) : end])
                except (IndexError, ValueError):
                    raise _violation(data[position:end]) from None
                if length < 0:
                    raise _violation(data[position:end])
                after = end + 2 + length
                if not keep and has(b"\r\nEND\r\n", after):
                    replies.append(hits + 1)
                    hits = 0
                    position = after + 7
                    continue
                after += 2
                if after > size:
                    need = after
                    break
                if not has(b"\r\n", after - 2):
                    raise _violation(data[position:end])
                if keep:
                    self._values.append(_value(words, data[end + 2 : after - 2]))
                hits += 1
                position = after
            elif first == _E and has(b"END\r\n", position):
                if keep:
                    replies.append(self._values)
                    self._values = []
                else:
                    replies.append(hits)
                hits = 0
                position += 5
            else:
                end = find(b"\r\n", position)
                if end < 0:
                    need = size + 1
                    break
                # A retrieval that fails midway ends with a line of its own.
                hits = 0
                replies.append(data[position:end])
                position = end + 2
                if keep:
                    self._values = []
        self._hits = hits
        if need:
            if position:
                data = data[position:]
            self._chunks.append(data)
            self._have = len(data)
            self._need = need - position
            if self._need == self._have + 1 and self._have > _LINE_AT_MOST:
                raise _violation(data)
        return replies


def _value(words: list[bytes], value: bytes) -> Value:
    try:
        return Value(words[1], value, int(words[4]) if len(words) > 4 else None)
    except ValueError:
        raise _violation(b" ".join(words)) from None


def _violation(line: bytes) -> ProtocolViolation:
    return ProtocolViolation(f"not a reply of memcached's: {line[:60]!r}")


def outliner(size: int, *, lite: bool = False) -> Callable[[bytes], list[bytes]]:
    """Return what tells the usual replies apart, at a fifth of what `ReplyReader.feed` costs.

    It takes what has come, and returns a letter for each reply: ``V`` for one item with a value of
    `size` bytes, ``E`` for none, ``S`` for STORED. Where anything else follows, if only a part of a
    reply, the last one is empty, and the whole is a `ReplyReader`'s business.
    """
    # The letter first, and then what it must be the first of: one group makes for a flat list.
    words = rb"[^ ]+" if lite else rb"[^ ]+ [^ ]+"
    item = rb"(?<=V)ALUE %b %d\r\n.{%d}\r\nEND\r\n" % (words, size, size)
    reply = rb"([VES])(?:%b|(?<=S)TORED\r\n|(?<=E)ND\r\n)|.+" % item
    return re.compile(reply, re.DOTALL).findall
