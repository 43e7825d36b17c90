"""Conversion of nodes' text replies to binary replies.

All functions take the request and the node's reply, or the error line that stands for it. They
raise one of the errors in `UNREADABLE` if memcached sends no such reply.
"""

import struct
from collections.abc import Callable
from typing import Final

from memlite.protocol import packets
from memlite.protocol.packets import QUIET, WITH_KEY, BinaryRequest, Status
from memlite.protocol.replies import NON_NUMERIC, OK, TOO_LARGE
from memlite.proxy.binary_requests import MODES

__all__ = [
    "UNREADABLE",
    "Decode",
    "counted",
    "deleted",
    "failed",
    "fetched",
    "flushed",
    "refused",
    "stored",
]

Decode = Callable[[BinaryRequest, bytes], bytes]
UNREADABLE: Final = (ValueError, OverflowError, struct.error)
_SERVER_ERROR: Final = b"SERVER_ERROR "
_CLIENT_ERROR: Final = b"CLIENT_ERROR "
_NO_FLUSHES: Final = b"CLIENT_ERROR flush_all not allowed\r\n"
_OUT_OF_MEMORY: Final = b"server_error out of memory"
_SHORTAGES: Final = {
    b"SERVER_ERROR out of memory storing object": b"Out of memory allocating item",
    b"SERVER_ERROR out of memory": b"Out of memory incrementing value",
    b"SERVER_ERROR Out of memory allocating new item": b"Out of memory allocating new item",
}
_STATUS: Final = {b"NF": Status.NOT_FOUND, b"EX": Status.EXISTS, b"NS": Status.NOT_STORED}
# The status of an add or replace that did not store.
_NOT_STORED: Final = {b" ME": Status.EXISTS, b" MR": Status.NOT_FOUND}


def fetched(request: BinaryRequest, reply: bytes) -> bytes:
    """Return the reply to GET, TOUCH, GAT or one of their variants."""
    if reply.startswith(b"VALUE "):
        words_at = len(b"VALUE  ") + len(request.key)
        end = reply.index(b"\r\n", words_at)
        # The flags, the length and, unless the node has none, the cas unique.
        words = reply[words_at:end].split(b" ")
        cas = int(words[2]) if len(words) > 2 else 0
        return _hit(request, int(words[0]), cas, reply[end + 2 : -len(b"\r\nEND\r\n")])
    if reply.startswith((b"VA ", b"HD")):
        end = reply.index(b"\r\n")
        value = reply[end + 2 : -2]
        return _hit(request, _number(reply, end, b" f"), _number(reply, end, b" c"), value)
    if reply.startswith((b"END", b"EN")):
        return packets.miss(request)
    return failed(request, reply)


def _hit(request: BinaryRequest, flags: int, cas: int, value: bytes) -> bytes:
    key = request.key if request.opcode in WITH_KEY else b""
    return packets.hit_head(request, flags, key, len(value), cas) + value


def _number(reply: bytes, end: int, flag: bytes) -> int:
    """Return the number of a flag in the first line of a reply, which ends at `end`."""
    at = reply.index(flag, 0, end) + len(flag)
    return int(reply[at:end].partition(b" ")[0])


def stored(request: BinaryRequest, reply: bytes) -> bytes:
    """Return the reply to SET, ADD, REPLACE, APPEND, PREPEND or one of their variants."""
    if reply.startswith(b"HD"):
        if request.opcode in QUIET:
            return b""
        return packets.reply(request, b"", _number(reply, len(reply) - 2, b" c"))
    if reply.startswith(b"NS"):
        mode = MODES[request.opcode]
        return packets.failure(request, _NOT_STORED.get(mode, Status.NOT_STORED))
    return failed(request, reply)


def deleted(request: BinaryRequest, reply: bytes) -> bytes:
    """Return the reply to DELETE or DELETEQ."""
    if reply.startswith(b"HD"):
        return b"" if request.opcode in QUIET else packets.reply(request)
    return failed(request, reply)


def counted(request: BinaryRequest, reply: bytes) -> bytes:
    """Return the reply to INCREMENT, DECREMENT or one of their variants."""
    if not reply.startswith(b"VA "):
        return failed(request, reply)
    if request.opcode in QUIET:
        return b""
    end = reply.index(b"\r\n")
    return packets.reply(request, int(reply[end + 2 : -2]).to_bytes(8), _number(reply, end, b" c"))


def refused(request: BinaryRequest, reply: bytes) -> bytes:
    """Return the reply to a store refused as too large, given the reply to the old item's deletion.

    If the node has not deleted the old item, the client must know.
    """
    if reply.startswith((b"HD", b"NF")):
        return packets.failure(request, Status.TOO_LARGE)
    return failed(request, reply)


def flushed(request: BinaryRequest, reply: bytes) -> bytes:
    """Return the reply to FLUSH or FLUSHQ."""
    if reply == OK:
        return b"" if request.opcode in QUIET else packets.reply(request)
    if reply == _NO_FLUSHES:
        return packets.failure(request, Status.AUTH_ERROR)
    return failed(request, reply)


def failed(request: BinaryRequest, reply: bytes) -> bytes:
    """Return the reply to a request that a node, or the proxy, did not carry out."""
    status = _STATUS.get(reply[:2])
    if status is not None:
        return packets.failure(request, status)
    if reply == NON_NUMERIC:
        return packets.failure(request, Status.NON_NUMERIC)
    if reply == TOO_LARGE:
        return packets.failure(request, Status.TOO_LARGE)
    line = reply.rstrip(b"\r\n")
    if line[: len(_OUT_OF_MEMORY)].lower() == _OUT_OF_MEMORY:
        return packets.failure(request, Status.OUT_OF_MEMORY, _SHORTAGES.get(line, b""))
    if line == b"ERROR":
        return packets.failure(request, Status.UNKNOWN_COMMAND)
    if line.startswith(_CLIENT_ERROR):
        return packets.failure(request, Status.INVALID, line.removeprefix(_CLIENT_ERROR))
    return packets.failure(request, Status.INTERNAL_ERROR, line.removeprefix(_SERVER_ERROR))
