r"""The client's side of memcached's protocol, for asyncio.

The same connection, replies, login and TLS settings serve ``memlite bench``, ``memlite shell`` and
any other program that talks to a server::

    from memlite import client

    async with await client.connect(client.parse_address("localhost:11211")) as connection:
        await connection.request(b"set greeting 0 0 5\r\nhello\r\n")
        reply = await connection.request(b"gets greeting\r\n", client.Shape.ITEMS)
        for item in reply.items:
            print(item.key, item.flags, item.unique, item.value)

`ClusterClient` does the same for all nodes of a cluster, and has a method for each command.

Requests are bytes, and the caller names the shape of their replies. Reading replies is sans-IO:
`ReplyReader` and `ReplyScanner` work without a connection.
"""

from typing import TYPE_CHECKING

from memlite.client.address import Address, parse_address
from memlite.client.connection import Connection, connect
from memlite.client.errors import (
    CommandFailedError,
    ConnectionLostError,
    DiscoveryError,
    NodeUnreachableError,
    OutcomeUnknownError,
)
from memlite.client.login import Login, LoginRefusedError, SaslPlainLogin, TextLogin
from memlite.client.replies import (
    END,
    FENCE,
    Fault,
    Item,
    Line,
    Part,
    Reply,
    ReplyError,
    ReplyReader,
    Shape,
    is_error,
)
from memlite.client.scanner import Outcome, ReplyScanner, fixed_size_matcher, split_gets
from memlite.client.stream import ReplyStream
from memlite.client.tls import TlsFileError, TlsSettings
from memlite.client.transport import open_transport

if TYPE_CHECKING:
    from memlite.client.cluster import ClusterClient

__all__ = [
    "END",
    "FENCE",
    "Address",
    "ClusterClient",
    "CommandFailedError",
    "Connection",
    "ConnectionLostError",
    "DiscoveryError",
    "Fault",
    "Item",
    "Line",
    "Login",
    "LoginRefusedError",
    "NodeUnreachableError",
    "Outcome",
    "OutcomeUnknownError",
    "Part",
    "Reply",
    "ReplyError",
    "ReplyReader",
    "ReplyScanner",
    "ReplyStream",
    "SaslPlainLogin",
    "Shape",
    "TextLogin",
    "TlsFileError",
    "TlsSettings",
    "connect",
    "fixed_size_matcher",
    "is_error",
    "open_transport",
    "parse_address",
    "split_gets",
]


def __getattr__(name: str) -> object:
    # Imported on demand: a program that talks to one server does not need the key distribution.
    if name == "ClusterClient":
        from memlite.client.cluster import ClusterClient

        return ClusterClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
