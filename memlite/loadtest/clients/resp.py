"""Finds where replies of Redis and Valkey end, without building objects and without I/O."""

import re
from collections.abc import Callable
from typing import Final

from memlite.client.replies import LINE_LENGTH, Fault, ReplyError
from memlite.client.scanner import Outcome

__all__ = ["RespScanner", "fixed_size_resp_matcher"]

_BULK: Final = ord("$")
_STORED: Final = b"STORED"


class RespScanner:
    """Splits bytes, as they arrive, into replies to GET, SET and PING.

    Returns the same outcomes as `memlite.client.scanner.ReplyScanner` does for memcached's: 1 for a
    value, 0 for none, ``STORED`` for ``OK``, and the line of an error.
    """

    def __init__(self) -> None:
        # An incomplete reply: its bytes so far, and how many are needed to continue.
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0

    @property
    def in_reply(self) -> bool:
        """Whether a part of a reply was received, but not all of it."""
        return bool(self._chunks)

    def feed(self, data: bytes) -> list[Outcome]:
        """Return the outcomes of the replies that `data` completes, in order.

        Raises:
            ReplyError: the bytes are not such replies.
        """
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        outcomes: list[Outcome] = []
        position, size, need = 0, len(data), 0
        while position < size:
            end = data.find(b"\r\n", position)
            if end < 0:
                if size - position > LINE_LENGTH:
                    raise _not_a_reply(data[position:])
                need = size + 1
                break
            if data[position] == _BULK:
                length = _length(data[position:end])
                after = end + 2 if length < 0 else end + 4 + length
                if after > size:
                    need = after
                    break
                outcomes.append(int(length >= 0))
                position = after
            else:
                outcomes.append(_line(data[position:end]))
                position = end + 2
        if position < size:
            self._chunks.append(data[position:])
            self._have, self._need = size - position, need - position
        return outcomes


def _length(line: bytes) -> int:
    try:
        return int(line[1:])
    except ValueError:
        raise _not_a_reply(line) from None


def _line(line: bytes) -> bytes:
    if line[:1] not in (b"+", b"-"):
        raise _not_a_reply(line)
    return _STORED if line == b"+OK" else line[1:]


def _not_a_reply(line: bytes) -> ReplyError:
    return ReplyError(Fault.FOREIGN, "not a Redis reply", line[:80])


def fixed_size_resp_matcher(size: int) -> Callable[[bytes], list[bytes]]:
    """Return a function like that of `memlite.client.scanner.fixed_size_matcher`.

    Args:
        size: the size of the values, in bytes.
    """
    first, rest = str(size)[0].encode(), str(size)[1:].encode()
    item = rb"(?<=%b)%b\r\n.{%d}\r\n" % (first, rest, size)
    reply = rb"(?:\$(?=[-%b])|(?=\+))([-+%b])(?:%b|(?<=\+)OK\r\n|(?<=-)1\r\n)|.+" % (
        (first, first, item)
    )
    find = re.compile(reply, re.DOTALL).findall
    letters = {first: b"V", b"-": b"E", b"+": b"S", b"": b""}

    def match(data: bytes) -> list[bytes]:
        return [letters[found] for found in find(data)]

    return match
