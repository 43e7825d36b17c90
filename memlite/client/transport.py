"""Opening connections: TCP or a UNIX socket, TLS, and the login that may come first."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar, cast

from memlite.client.address import Address
from memlite.client.login import Login

__all__ = ["open_transport"]

_P = TypeVar("_P", bound=asyncio.Protocol)

_UNLIMITED = 86400.0


async def open_transport(
    factory: Callable[[], _P],
    address: Address,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    login: Login | None = None,
) -> _P:
    """Connect to a server, log in, and hand the connection to a protocol.

    There is no limit to the time this takes: use ``asyncio.timeout``.

    Args:
        factory: makes the protocol, whose ``connection_made`` is called after the login.
        address: the server's address.
        tls: encrypts the connection; None for plain text.
        server_name: the name that the server's certificate must have, if not the host.
        login: carried out first; None for none.

    Returns:
        The protocol.

    Raises:
        OSError: there is no connection. Its class and ``errno`` are those of the failed call, for
            the last address tried if a name has several.
        LoginRefusedError: the server does not accept the login.
    """
    protocol = factory()
    server_name = server_name or address.host
    if login is None:
        await _connect(protocol, address, tls, server_name)
        return protocol
    first = _LoginProtocol(login, protocol)
    await _connect(first, address, tls, server_name)
    try:
        await first.done
    finally:
        first.abandon()
    return protocol


async def _connect(
    protocol: asyncio.Protocol, address: Address, tls: ssl.SSLContext | None, server_name: str
) -> None:
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {}
    if tls is not None:
        # The caller's timeout applies, which may be longer than asyncio's own for the handshake.
        options = {
            "ssl": tls,
            "server_hostname": server_name,
            "ssl_handshake_timeout": _UNLIMITED,
        }
    try:
        if address.path:
            await loop.create_unix_connection(lambda: protocol, address.path, **options)
            return
        hosts = await _resolve(loop, address)
        for number, host in enumerate(hosts, 1):
            try:
                await loop.create_connection(lambda: protocol, host, address.port, **options)
            except OSError as error:
                if number == len(hosts) or isinstance(error, ssl.SSLError):
                    raise
            else:
                return
    except OSError as error:
        raise _plain(error) from None


async def _resolve(loop: asyncio.AbstractEventLoop, address: Address) -> list[str]:
    """Return a host's IP addresses, in the order in which to try them.

    Event loops also try all of them, but then raise their own error, which hides the cause.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, address.host.partition("%")[0])
            return [address.host]
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _plain(error: OSError) -> OSError:
    """Return the error with the system's text, in place of the event loop's."""
    if error.errno is None or isinstance(error, ssl.SSLError | socket.gaierror):
        return error
    return OSError(error.errno, os.strerror(error.errno))


class _LoginProtocol(asyncio.Protocol):
    """Carries out a login, then gives the connection to another protocol.

    Attributes:
        done: resolves with None once the server has accepted the login.
    """

    def __init__(self, login: Login, successor: asyncio.Protocol) -> None:
        self._login = login
        self._successor = successor
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._login.request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._login.complete(self._received):
            self._decide()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self.done.done():
            self.done.set_exception(exc)
        self._decide()

    def abandon(self) -> None:
        """Close the connection unless the login has succeeded."""
        accepted = self.done.done() and not self.done.cancelled() and not self.done.exception()
        if not accepted and self._transport is not None:
            self._transport.abort()

    def _decide(self) -> None:
        if self.done.done():
            return
        try:
            self._login.check(self._received)
        except ConnectionError as error:
            self.done.set_exception(error)
            return
        assert self._transport is not None  # noqa: S101 - for the type checker
        self._transport.set_protocol(self._successor)
        self._successor.connection_made(self._transport)
        self.done.set_result(None)
