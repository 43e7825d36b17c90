"""The frame header of UDP datagrams (memcached's ``doc/protocol.txt``, "UDP protocol"), sans-IO.

The header is four 16-bit numbers in network byte order: the request id, which the reply repeats;
the datagram's sequence number, from 0; the number of datagrams in the message; and 0.
"""

import struct
from collections.abc import Iterator, Sequence

__all__ = ["MESSAGE_SIZE", "PAYLOAD_SIZE", "split", "unwrap"]

_HEADER = struct.Struct(">HHHH")
_MAX_DATAGRAMS = 0xFFFF

PAYLOAD_SIZE = 1400 - _HEADER.size
"""The most bytes of a reply in one datagram, which is 1,400 bytes long with its frame header."""

MESSAGE_SIZE = _MAX_DATAGRAMS * PAYLOAD_SIZE
"""The most bytes a reply can have, given the 16-bit sequence numbers."""


def unwrap(datagram: bytes) -> tuple[int, bytes] | None:
    """Return the id and payload of a request, None if the datagram is not a request.

    As in memcached, a datagram without a payload or from a message of several (or no) datagrams is
    not a request. Unlike memcached, neither is a payload that begins with a capital letter. Replies
    do, requests never: if they were answered with ``ERROR``, an attacker who forges one sender's
    address could make two servers, or a server and itself, bounce errors forever.
    """
    if len(datagram) <= _HEADER.size:
        return None
    request_id, _, total, _ = _HEADER.unpack_from(datagram)
    if total != 1 or 0x41 <= datagram[_HEADER.size] <= 0x5A:
        return None
    return request_id, datagram[_HEADER.size :]


def split(request_id: int, parts: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """Yield the datagrams of a reply, in order.

    Each is built on demand, so a queued reply takes no more memory than its parts.

    Args:
        request_id: the id of the request.
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
