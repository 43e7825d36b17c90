"""A cluster's objects in one memcached or memlite, using ``gets`` and ``cas``."""

import asyncio
from typing import Final, cast

from memlite.client import (
    END,
    Address,
    Connection,
    ConnectionLostError,
    Line,
    Reply,
    Shape,
    connect,
)
from memlite.client.login import TextLogin
from memlite.client.tls import TlsSettings
from memlite.cluster.membership.store import Conflict, Stored, StoreUnavailableError
from memlite.core.errors import StartError

__all__ = ["MemcachedStore"]

# Seconds without a reply after which the connection is lost; much less than a lease.
_PATIENCE: Final = 2.0


class MemcachedStore:
    """Keeps objects as items; see `memlite.cluster.membership.store.Store`.

    Args:
        address: the server's address.
        prefix: the prefix of all keys.
        login: carried out first; None for none.
        tls: how the connection is encrypted; None for plain text.
    """

    def __init__(
        self,
        address: Address,
        prefix: str,
        *,
        login: TextLogin | None = None,
        tls: TlsSettings | None = None,
    ) -> None:
        self._address = address
        self._prefix = prefix
        self._login = login
        self._tls = None if tls is None else tls.context()
        self._scheme = "memcached" if tls is None else "memcacheds"
        self._connection: Connection | None = None

    async def open(self) -> None:
        """Connect.

        Raises:
            StartError: there is no connection.
        """
        try:
            await self.read("topology")
        except StoreUnavailableError as error:
            raise StartError(f"{self._scheme}://{self._address}: {error}") from None

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            await self._connection.close()

    async def read(self, name: str) -> Stored | None:
        """Return an object, or None."""
        reply = await self._ask(b"gets %b\r\n" % self._key(name), Shape.ITEMS)
        for item in reply.items:
            return Stored(bytes(item.value), item.unique)
        if reply.parts[-1] != END:
            raise StoreUnavailableError(_text(reply))
        return None

    async def write(self, name: str, data: bytes, replacing: Stored | None) -> None:
        """Write an object in place of another, or of none."""
        key = self._key(name)
        if replacing is None:
            request = b"add %b 0 0 %d\r\n%b\r\n" % (key, len(data), data)
        else:
            version = cast("int", replacing.version)
            request = b"cas %b 0 0 %d %d\r\n%b\r\n" % (key, len(data), version, data)
        reply = await self._ask(request, Shape.LINE)
        match _text(reply):
            case "STORED":
                return
            case "EXISTS" | "NOT_FOUND" | "NOT_STORED":
                raise Conflict(name)
            case other:
                raise StoreUnavailableError(other)

    def _key(self, name: str) -> bytes:
        return f"{self._prefix}{name}".encode()

    async def _ask(self, request: bytes, shape: Shape) -> Reply:
        """Send a request; after a failure, the next one connects again."""
        connection = self._connection
        try:
            if connection is None or connection.lost is not None:
                connection = self._connection = await connect(
                    self._address, tls=self._tls, login=self._login, timeout=_PATIENCE
                )
            async with asyncio.timeout(_PATIENCE):
                return await connection.request(request, shape)
        except (OSError, ConnectionLostError, TimeoutError) as error:
            if connection is not None:
                connection.abort()
            raise StoreUnavailableError(_reason(error)) from None


def _text(reply: Reply) -> str:
    part = reply.parts[-1]
    return part.text.decode("ascii", "backslashreplace") if isinstance(part, Line) else "an item"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not error.args:  # not from the system
        return f"no reply in {_PATIENCE:g} s"
    if isinstance(error, ConnectionLostError) and error.cause is not None:
        return str(error.cause)
    return (isinstance(error, OSError) and error.strerror) or str(error)
