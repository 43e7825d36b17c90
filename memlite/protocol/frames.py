"""The frame around UDP datagrams (memcached's ``doc/protocol.txt``, "UDP protocol"), sans-IO.

Eight bytes, four 16-bit numbers in network order: the request's id, which its reply carries too;
the datagram's place in the message, from 0; how many datagrams the message has; and 0.
"""

import struct
from collections.abc import Iterator, Sequence

__all__ = ["MESSAGE_SIZE", "PAYLOAD_SIZE", "split", "unwrap"]

_HEADER = struct.Struct(">HHHH")
_MOST_DATAGRAMS = 0xFFFF

PAYLOAD_SIZE = 1400 - _HEADER.size
"""Bytes of a reply in one datagram, which has at most 1,400 with its frame."""

MESSAGE_SIZE = _MOST_DATAGRAMS * PAYLOAD_SIZE
"""Bytes of a reply that can be numbered."""


def unwrap(datagram: bytes) -> tuple[int, bytes] | None:
    """Return a request's id and its commands; None for what is not one.

    That is, as for memcached: nothing behind the frame, or one of several datagrams (or of none).
    And more than memcached refuses, what begins with a capital letter. Replies do, and requests
    never: answered with ``ERROR``, they would go to and fro between two servers without an end,
    or between a server and itself, once somebody has forged one sender's address.
    """
    if len(datagram) <= _HEADER.size:
        return None
    request_id, _, total, _ = _HEADER.unpack_from(datagram)
    if total != 1 or 0x41 <= datagram[_HEADER.size] <= 0x5A:
        return None
    return request_id, datagram[_HEADER.size :]


def split(request_id: int, parts: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """Yield the datagrams of a reply, in order.

    Each is made when it is asked for, so that a reply that waits is no more than its parts.

    Args:
        request_id: of the request.
        parts: the reply, 1 to `MESSAGE_SIZE` bytes.
    """
    total = -(-sum(map(len, parts)) // PAYLOAD_SIZE)
    if total == 1:
        yield b"".join((_HEADER.pack(request_id, 0, 1, 0), *parts))
        return
    sequence = 0
    datagram = bytearray(_HEADER.pack(request_id, sequence, total, 0))
    room = PAYLOAD_SIZE
    for part in parts:
        view = memoryview(part)
        while len(view) > room:
            datagram += view[:room]
            yield bytes(datagram)
            view = view[room:]
            sequence += 1
            datagram = bytearray(_HEADER.pack(request_id, sequence, total, 0))
            room = PAYLOAD_SIZE
        datagram += view
        room -= len(view)
    yield bytes(datagram)
