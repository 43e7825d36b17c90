"""Finds where replies of the text protocol end, without building objects and without I/O.

For clients that only count replies, and for those that forward them unchanged.
"""

import re
from collections.abc import Callable
from typing import Final

from memlite.client.replies import LINE_LENGTH, VALUE_LENGTH, Fault, ReplyError
from memlite.protocol.numbers import small_number

__all__ = ["Outcome", "ReplyScanner", "fixed_size_matcher", "split_gets"]

Outcome = int | bytes
"""The outcome of a reply: the number of items, or its line without the line ending.

``END`` alone is 0; a meta command's item (``VA``) is 1.
"""

_V: Final = ord("V")
_E: Final = ord("E")
_LF: Final = ord("\n")
_LENGTH_DIGITS: Final = 19
_NONE: Final = -3
"""The length that stands for no value, line ending included."""
_END: Final = b"END\r\n"


class ReplyScanner:
    """Splits bytes, as they arrive, into replies to retrievals, storage and meta commands.

    These replies can be told apart: one that begins with ``VALUE`` or is ``END`` belongs to a
    retrieval, with or without cas uniques, in memcached's dialect or the lite one; ``VA`` announces
    a single value; any other reply is one line. Replies to ``stats``, dumps and ``watch`` need a
    `memlite.client.replies.ReplyReader`.

    Values are framed by their declared length, and no byte is searched twice.

    Args:
        line_length: limit for a line, in bytes.
        value_length: limit for a value, in bytes.
    """

    def __init__(self, *, line_length: int = LINE_LENGTH, value_length: int = VALUE_LENGTH) -> None:
        self._line_length = line_length
        self._value_length = value_length
        # The last part of an incomplete reply, from the line that must be parsed again.
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0  # bytes required to continue; 0: a line ending is required
        self._items = 0  # complete items of that reply
        self._carried: list[bytes] = []  # their bytes, if `split` is called
        self._data = b""

    @property
    def in_reply(self) -> bool:
        """Whether a part of a reply was received, but not all of it."""
        return bool(self._chunks or self._items)

    def split(self, data: bytes) -> list[bytes]:
        """Return the replies that `data` completes, each as it was received.

        Do not alternate with `feed` while a reply is incomplete.

        Raises:
            ReplyError: the data does not come from a memcached server.
        """
        if self._chunks or self._items:
            return self._split_any(data)
        # The fast path, at two thirds of the cost, for complete replies of the usual kinds: items
        # of a `get`, `gets` or `mg`, and lines. `_split_any` handles everything from the first
        # other reply on, including errors. Slices are compared because calling `startswith` takes
        # longer.
        replies: list[bytes] = []
        start = position = 0  # of the reply, and of its next line
        size, find, most = len(data), data.find, self._value_length
        while position < size:
            end = find(b"\r\n", position)
            if end < 0:
                break
            if data[position] == _V:
                words = data[position:end].split(b" ")
                retrieved = words[0] == b"VALUE" and 4 <= len(words) <= 5
                if not retrieved and (words[0] != b"VA" or len(words) < 2):
                    break
                try:
                    length = int(words[3] if retrieved else words[1])
                except ValueError:
                    break
                if not 0 <= length <= most:
                    break
                after = end + 2 + length
                if retrieved and data[after : after + 7] == b"\r\nEND\r\n":
                    position = after + 7
                elif data[after : after + 2] == b"\r\n":
                    position = after + 2
                    if retrieved:
                        continue
                else:
                    break
            else:
                position = end + 2
            replies.append(data[start:position])
            start = position
        if start < size:
            replies += self._split_any(data[start:])
        return replies

    def _split_any(self, data: bytes) -> list[bytes]:
        """Return the replies that `data` completes, of any kind and however they arrive."""
        ends: list[int] = []
        self.feed(data, ends)
        data, self._data = self._data, b""
        replies: list[bytes] = []
        start = 0
        for end in ends:
            replies.append(data[start:end])
            start = end
        if replies and self._carried:
            replies[0] = b"".join([*self._carried, replies[0]])
            self._carried.clear()
        if self._items:
            size = len(data) - (self._have if self._chunks else 0)
            self._carried.append(data[start:size])
        return replies

    def feed(self, data: bytes, ends: list[int] | None = None) -> list[Outcome]:
        """Return the outcomes of the replies that `data` completes, in order.

        Args:
            data: the bytes that have arrived.
            ends: for `split`: receives the position after each reply.

        Raises:
            ReplyError: the data does not come from a memcached server.
        """
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need or (not self._need and b"\n" not in data):
                if not self._need and self._have > self._line_length:
                    raise _not_a_reply(b"".join(self._chunks))
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        if ends is not None:
            self._data = data
        outcomes: list[Outcome] = []
        position, size, items = 0, len(data), self._items
        need = -1
        # Looked up once: scanning a pipelined reply takes less than a microsecond.
        find, find_back, starts = data.find, data.rfind, data.startswith
        most = self._value_length
        while position < size:
            first = data[position]
            if first == _V and starts(b"VALUE ", position):
                end = find(b"\r\n", position)
                if end < 0:
                    need = 0
                    break
                space, after_length = find_back(b" ", position, end), end
                if data.count(b" ", position, end) == 4:
                    # A cas unique follows the length.
                    space, after_length = find_back(b" ", position, space), space
                try:
                    length = int(data[space:after_length])
                except ValueError:
                    raise _not_a_reply(data[position:end]) from None
                if not 0 <= length <= most:
                    raise self._wrong_length(data[position:end], length)
                after = end + 2 + length
                if starts(b"\r\nEND\r\n", after):
                    outcomes.append(items + 1)
                    items = 0
                    position = after + 7
                    if ends is not None:
                        ends.append(position)
                    continue
                after += 2
                if after > size:
                    need = after
                    break
                if not starts(b"\r\n", after - 2):
                    raise _not_a_reply(data[position:end])
                items += 1
                position = after
                continue
            if first == _E and starts(b"END\r\n", position):
                outcomes.append(items)
                position += 5
            else:
                end = find(b"\r\n", position)
                if end < 0:
                    need = 0
                    break
                if first == _V and starts(b"VA ", position):
                    try:
                        length = int(data[position + 3 : end].partition(b" ")[0])
                    except ValueError:
                        raise _not_a_reply(data[position:end]) from None
                    if not 0 <= length <= most:
                        raise self._wrong_length(data[position:end], length)
                    after = end + 4 + length
                    if after > size:
                        need = after
                        break
                    if not starts(b"\r\n", after - 2):
                        raise _not_a_reply(data[position:end])
                    outcomes.append(1)
                    position = after
                else:
                    # A retrieval that fails midway also ends with such a line.
                    outcomes.append(data[position:end])
                    position = end + 2
            items = 0
            if ends is not None:
                ends.append(position)
        self._items = items
        if need >= 0:
            if position:
                data = data[position:]
            self._chunks.append(data)
            self._have = len(data)
            self._need = need - position if need else 0
            if not need and self._have > self._line_length:
                raise _not_a_reply(data)
        return outcomes

    def _wrong_length(self, line: bytes, length: int) -> ReplyError:
        if length < 0:
            return _not_a_reply(line)
        text = f"a value of {length:,} bytes exceeds the limit of {self._value_length:,}"
        return ReplyError(Fault.TOO_LARGE, text, b"")


def _not_a_reply(line: bytes) -> ReplyError:
    return ReplyError(Fault.FOREIGN, "not a memcached reply", line[:80])


def split_gets(data: bytes) -> tuple[list[bytes], int]:
    """Return the replies to single-key gets at the start of `data`, each without its ``END``.

    It costs a quarter of `ReplyScanner.split`: the bytes are cut at every ``END``, and each piece
    must be empty, a miss, or an item of just the length that it announces. So a value may contain
    ``END`` without being cut: its piece would be too short.

    Args:
        data: the bytes sent by a server, from the beginning of a reply.

    Returns:
        The replies, and where they end. The rest is another kind of reply, or a part of one.
    """
    pieces = data.split(_END)
    size = len(data) - len(pieces.pop())
    for piece in pieces:
        if not piece:
            continue
        line, _, value = piece.partition(b"\r\n")
        words = line.split(b" ")
        length = small_number(words[-1])
        if length is None:
            known = words[-1].isdigit() and len(words[-1]) <= _LENGTH_DIGITS
            length = int(words[-1]) if known else _NONE
        if (
            len(value) != length + 2
            or len(words) != 4  # a fifth is a cas unique
            or piece[0] != _V  # no other reply of four words ends with a number
            or value[-1] != _LF
        ):
            break
    else:
        return pieces, size
    first = pieces.index(piece)  # an equal piece before it would also have ended the loop
    rest = pieces[first:]
    del pieces[first:]
    return pieces, size - sum(map(len, rest)) - len(_END) * len(rest)


def fixed_size_matcher(size: int, *, lite: bool = False) -> Callable[[bytes], list[bytes]]:
    """Return a function that recognizes the usual replies to gets and sets of values of one size.

    It costs a fifth of `ReplyScanner.feed`. It takes the bytes that have arrived and returns a
    letter for each reply: ``V`` for one item with a value of `size` bytes, ``E`` for a miss, ``S``
    for ``STORED``. If there is anything else, even just a part of a reply, the last element is
    empty, and the bytes must be passed to a `ReplyScanner`.

    Args:
        size: the size of the values, in bytes.
        lite: whether the server speaks the lite dialect, whose items have no flags.
    """
    # The letter comes first, then the text that must follow it: with a single group, the list is
    # flat.
    words = rb"[^ ]+" if lite else rb"[^ ]+ [^ ]+"
    item = rb"(?<=V)ALUE %b %d\r\n.{%d}\r\nEND\r\n" % (words, size, size)
    reply = rb"([VES])(?:%b|(?<=S)TORED\r\n|(?<=E)ND\r\n)|.+" % item
    return re.compile(reply, re.DOTALL).findall
