"""Auto discovery: replies that list a cluster's nodes, as in Amazon ElastiCache."""

from collections.abc import Iterable
from typing import Final

from memlite.protocol import packets, replies
from memlite.protocol.limits import CLUSTER_KEY
from memlite.protocol.packets import BinaryRequest, Status

__all__ = [
    "CLUSTER_KEY",
    "CONFIG_GET",
    "config_packet",
    "config_reply",
    "item_packet",
    "item_reply",
    "listing",
    "old_form",
]

CONFIG_GET: Final = 0x60
"""The opcode of ``config get`` in the binary protocol. memcached does not know it."""


def listing(version: int, nodes: Iterable[tuple[str, str, int]]) -> bytes:
    """Return the payload that lists nodes: a line with the version, and a line with the nodes.

    Args:
        version: a number that rises with each change.
        nodes: the host name, the IP address (may be empty) and the port of each node.
    """
    shown = " ".join(f"{host}|{ip}|{port}" for host, ip, port in nodes)
    return f"{version}\n{shown}\n".encode()


def config_reply(name: bytes, payload: bytes) -> bytes:
    """Return the reply to ``config get <name>``."""
    return b"CONFIG %b 0 %d\r\n%b\r\nEND\r\n" % (name, len(payload), payload)


def item_reply(payload: bytes, unique: int | None = None) -> bytes:
    """Return the reply to a retrieval of `CLUSTER_KEY`; for ``gets``, with its cas unique."""
    last = b"" if unique is None else b" %d" % unique
    return b"VALUE %b 0 %d%b\r\n%b\r\nEND\r\n" % (CLUSTER_KEY, len(payload), last, payload)


def old_form(reply: bytes, *, with_unique: bool = False) -> bytes:
    """Return the reply to a retrieval of `CLUSTER_KEY` from a server that has no such item.

    Args:
        reply: its reply to ``config get cluster``.
        with_unique: whether to show a cas unique, which is the version.
    """
    if reply == replies.ERROR:
        return replies.END
    if not reply.startswith(b"CONFIG "):
        return reply
    payload = _payload(reply)
    return item_reply(payload, _version(payload) if with_unique else None)


def item_packet(request: BinaryRequest, key: bytes, reply: bytes) -> bytes:
    """Return the reply to a packet that retrieves `CLUSTER_KEY`; empty if it is a miss.

    Args:
        request: the packet.
        key: the key to show.
        reply: as for `old_form`.
    """
    if reply == replies.ERROR:
        return b""
    if not reply.startswith(b"CONFIG "):
        return config_packet(request, reply)
    payload = _payload(reply)
    return packets.hit_head(request, 0, key, len(payload), _version(payload)) + payload


def _payload(reply: bytes) -> bytes:
    return reply[reply.index(b"\r\n") + 2 : -len(b"\r\nEND\r\n")]


def _version(payload: bytes) -> int:
    return int(payload.split(b"\n", 1)[0])


def config_packet(request: BinaryRequest, reply: bytes) -> bytes:
    """Return the reply to a packet with `CONFIG_GET`, whose key names the requested setting.

    Args:
        request: the packet.
        reply: the reply to the same command as text.
    """
    if reply.startswith(b"CONFIG "):
        payload = _payload(reply)
        return packets.hit_head(request, 0, b"", len(payload), 0) + payload
    if reply == replies.ERROR:
        return packets.failure(request, Status.UNKNOWN_COMMAND)
    text = reply.removeprefix(b"SERVER_ERROR ").removesuffix(b"\r\n")
    return packets.failure(request, Status.INTERNAL_ERROR, text)
