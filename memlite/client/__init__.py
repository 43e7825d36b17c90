r"""The client's side of memcached's protocol, for asyncio.

The same connection, replies, login and TLS settings serve ``memlite bench``, ``memlite shell`` and
whatever else talks to a server::

    from memlite import client

    async with await client.connect(client.parse_address("localhost:11211")) as connection:
        await connection.request(b"set greeting 0 0 5\r\nhello\r\n")
        reply = await connection.request(b"gets greeting\r\n", client.Shape.ITEMS)
        for item in reply.items:
            print(item.key, item.flags, item.unique, item.value)

Requests are bytes, and the caller names the shape of their replies. Reading replies is sans-IO:
`ReplyReader` and `ReplyScanner` work without a connection.
"""

from memlite.client.address import Address, parse_address
from memlite.client.connection import Connection, connect
from memlite.client.errors import ConnectionLostError, OutcomeUnknownError
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
from memlite.client.scanner import Outcome, ReplyScanner, fixed_size_matcher
from memlite.client.stream import ReplyStream
from memlite.client.tls import TlsFileError, TlsSettings
from memlite.client.transport import open_transport

__all__ = [
    "END",
    "FENCE",
    "Address",
    "Connection",
    "ConnectionLostError",
    "Fault",
    "Item",
    "Line",
    "Login",
    "LoginRefusedError",
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
]
