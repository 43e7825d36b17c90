"""A node of a cluster with a connection that is opened on demand."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from memlite.client.address import Address
from memlite.client.connection import Connection
from memlite.client.errors import NodeUnreachableError
from memlite.client.replies import Reply, Shape

__all__ = ["LazyNode", "Opener", "reason_of"]

Opener = Callable[[Address], Awaitable[Connection]]
"""Opens a connection; raises OSError."""

# After a failure, no further attempt is made for this many seconds.
_PAUSE: Final = 1.0


class LazyNode:
    """A node that is connected to on the first request, and again after a connection was lost.

    Args:
        address: the node's address.
        connect: opens a connection.
    """

    def __init__(self, address: Address, connect: Opener) -> None:
        self.address = address
        self._connect = connect
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._failure = ""
        self._retry_at = 0.0  # by the loop's clock
        self._using = 0  # unfinished requests
        self._retired = self._closed = False

    async def request(self, data: bytes, shape: Shape) -> Reply:
        """Send a request and return the reply; see `Connection.request`.

        Raises:
            NodeUnreachableError: there is no connection.
            ConnectionLostError: the connection was lost.
        """
        self._using += 1
        try:
            connection = self._connection
            if connection is None or connection.lost is not None:
                connection = await self._connected()
            return await connection.request(data, shape)
        finally:
            self._using -= 1
            if self._retired and not self._using:
                self.abort()

    def retire(self) -> None:
        """Close the connection once all requests are answered; no more may be sent."""
        self._retired = True
        if not self._using:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once. Outstanding requests fail."""
        self._closed = True
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        """Close the connection at once, and wait until it is closed."""
        self.abort()
        if self._connection is not None:
            await self._connection.close()

    async def _connected(self) -> Connection:
        async with self._connecting:
            connection = self._connection
            if connection is not None and connection.lost is None:
                return connection  # opened by another request in the meantime
            loop = asyncio.get_running_loop()
            if self._closed or loop.time() < self._retry_at:
                raise self._error(None)
            try:
                connection = await self._connect(self.address)
            except OSError as error:
                self._failure = reason_of(error)
                self._retry_at = loop.time() + _PAUSE
                raise self._error(error) from None
            self._connection = connection
            if self._closed:
                connection.abort()
                raise self._error(None)
            return connection

    def _error(self, cause: Exception | None) -> NodeUnreachableError:
        reason = "closed" if self._closed else self._failure
        return NodeUnreachableError(f"{self.address}: {reason}", cause)


def reason_of(error: Exception) -> str:
    """Return a few words on why there is no connection."""
    if isinstance(error, TimeoutError) and not error.args:  # not the system's
        return "it does not answer"
    return (isinstance(error, OSError) and error.strerror) or str(error)
