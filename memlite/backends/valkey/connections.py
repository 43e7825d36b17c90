"""Connections to a server of the store."""

import ssl
from typing import Any

from redis.asyncio.connection import Connection, SSLConnection
from redis.backoff import NoBackoff
from redis.retry import Retry

from memlite.backends.valkey.node import Address
from memlite.backends.valkey.options import Options

__all__ = ["connection_of", "sentinel_connection_of", "tracking_connection_of"]


class _TlsConnection(SSLConnection):
    """A connection with TLS, using an SSL context that is shared by all connections."""

    def __init__(self, context: ssl.SSLContext, **settings: Any) -> None:
        super().__init__(**settings)
        self._context = context

    def _connection_arguments(self) -> dict[str, Any]:
        return {"host": self.host, "port": self.port, "ssl": self._context}


def connection_of(options: Options, address: Address) -> Connection:
    """Return a connection to a server with items; it is not connected yet."""
    return _connection(options, address, db=options.database, **_access(options))


def sentinel_connection_of(options: Options, address: Address) -> Connection:
    """Return a connection to a Sentinel; it is not connected yet."""
    return _connection(options, address, password=options.sentinel_password or None)


def tracking_connection_of(options: Options, address: Address) -> Connection:
    """Return a connection for messages from the store; it is not connected yet."""
    return _connection(options, address, protocol=3, **_access(options))


def _access(options: Options) -> dict[str, Any]:
    if options.tokens is not None:
        return {"credential_provider": options.tokens}
    return {"username": options.user or None, "password": options.password or None}


def _connection(
    options: Options, address: Address, *, protocol: int = 2, **access: Any
) -> Connection:
    host, port = address
    settings: dict[str, Any] = {
        "host": host,
        "port": port,
        **access,
        "protocol": protocol,
        # Time limits and retries are the sender's responsibility.
        "socket_timeout": None,
        "socket_connect_timeout": options.timeout,
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,
    }
    if options.tls is not None:
        return _TlsConnection(options.tls, **settings)
    return Connection(**settings)
