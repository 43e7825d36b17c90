"""Reading of servers' statistics, each independently, so that a hung server delays no other."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from memlite.client.address import Address
from memlite.client.connection import Connection
from memlite.client.discovery import discover
from memlite.client.errors import ConnectionLostError, DiscoveryError
from memlite.client.node import reason_of
from memlite.client.replies import Line, Reply, Shape
from memlite.top.readings import Figures, Reading, figures, hot_keys
from memlite.top.table import Row

__all__ = ["Servers"]

Opener = Callable[[Address], Awaitable[Connection]]
"""Opens a connection; raises OSError."""

_FIRST: Final = "no reply yet"


class Servers:
    """The servers that were named, or the nodes that they list.

    Args:
        addresses: the addresses of the named servers.
        connect: opens a connection.
        discovers: whether to show the nodes that a server lists in place of the server.
        timeout: seconds within which a server must answer.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        connect: Opener,
        *,
        discovers: bool,
        timeout: float,
    ) -> None:
        self._named = [_Server(one, connect, timeout, discovers=discovers) for one in addresses]
        self._nodes: dict[Address, _Server] = {}
        self._connect = connect
        self._timeout = timeout

    def rows(self) -> list[Row]:
        """Return the current rows of the table."""
        return [server.row() for server in self._shown()]

    async def read(self) -> None:
        """Query all servers; return when each of them has answered or failed."""
        await asyncio.gather(*(server.read() for server in self._named))
        self._follow()
        await asyncio.gather(*(server.read() for server in self._nodes.values()))

    async def read_twice(self, interval: float) -> None:
        """Query all servers twice, as needed for rates.

        Args:
            interval: the pause in seconds.
        """
        await self.read()
        await asyncio.sleep(interval)
        await self.read()

    def begin(self) -> None:
        """Query all servers that are not already being queried, in the background."""
        self._follow()
        for server in (*self._named, *self._nodes.values()):
            if server.asking is None or server.asking.done():
                server.asking = asyncio.ensure_future(server.read())

    def _follow(self) -> None:
        """Update the nodes to the ones that are listed now."""
        listed = {node for server in self._named for node in server.nodes}
        for address in self._nodes.keys() - listed:
            self._nodes.pop(address).end()
        for address in listed - self._nodes.keys():
            self._nodes[address] = _Server(address, self._connect, self._timeout, discovers=False)

    def close(self) -> None:
        """Close all connections."""
        for server in (*self._named, *self._nodes.values()):
            server.end()

    def _shown(self) -> "list[_Server]":
        plain = [server for server in self._named if not server.nodes]
        named = {server.address for server in plain}
        return plain + [one for one in self._nodes.values() if one.address not in named]


class _Server:
    """A server.

    Attributes:
        address: where it listens.
        asking: the current or last task that queries it; None if there was none yet.
        nodes: the nodes that it lists; if there are any, it is not shown itself.
    """

    def __init__(
        self, address: Address, connect: Opener, timeout: float, *, discovers: bool
    ) -> None:
        self.address = address
        self.asking: asyncio.Future[None] | None = None
        self.nodes: tuple[Address, ...] = ()
        self._connect = connect
        self._timeout = timeout
        self._discovers = discovers
        self._connection: Connection | None = None
        self._refused: set[bytes] = set()  # requests it does not support
        self._refusal = ""  # the last error
        self._before: Reading | None = None
        self._now: Reading | None = None
        self._trouble = _FIRST

    def row(self) -> Row:
        now = self._now
        found = Figures() if now is None or self._trouble else figures(self._before, now)
        keys = () if now is None else now.hot_keys
        return Row(str(self.address), found, self._trouble, keys)

    async def read(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._read()
        except TimeoutError:
            self._fail("timed out")
        except ConnectionLostError as error:
            closed = reason_of(error.cause) if error.cause else "connection closed"
            self._fail(self._refusal or closed)
        except OSError as error:
            self._fail(reason_of(error))
        except UnicodeError:
            self._fail("not a valid host name")

    async def _read(self) -> None:
        self._refusal = ""
        connection = self._connection
        if connection is None or connection.lost is not None:
            connection = self._connection = await self._connect(self.address)
            self._refused.clear()
            self._before = self._now = None
        if self._discovers and await self._has_nodes(connection):
            self._trouble = ""
            return
        stats = await self._rows(connection, b"stats")
        if "uptime" not in stats:
            self._fail(self._refusal or "no statistics")
            return
        at = asyncio.get_running_loop().time()
        latency = await self._rows(connection, b"stats latency")
        hottest = await self._rows(connection, b"stats hotkeys")
        self._before, self._now = self._now, Reading(at, stats, latency, hot_keys(hottest))
        self._trouble = ""

    async def _has_nodes(self, connection: Connection) -> bool:
        """Look for the nodes that the server lists; do not ask a server that once had none."""
        request = b"config get cluster"
        if request in self._refused:
            return False
        try:
            found = await discover(connection, "ketama", "")
        except DiscoveryError as error:
            self.nodes = ()
            if connection.lost is not None:  # as after a request for a password
                self._refusal = str(error)
                raise connection.lost from None
            self._refused.add(request)
            return False
        self.nodes = tuple(node.address for node in found.nodes)
        return True

    async def _rows(self, connection: Connection, request: bytes) -> Mapping[str, str]:
        """Return a group of statistics; empty if the server does not have it."""
        self._refusal = ""
        if request in self._refused:
            return {}
        reply = await connection.request(request + b"\r\n", Shape.ROWS)
        if reply.error is not None:
            self._refusal = reply.error.decode("utf-8", "backslashreplace")
            if request != b"stats":
                self._refused.add(request)
        return dict(_pairs(reply))

    def _fail(self, reason: str) -> None:
        self._trouble = reason
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    def end(self) -> None:
        if self.asking is not None:
            self.asking.cancel()
        self.close()


def _pairs(reply: Reply) -> list[tuple[str, str]]:
    found = []
    for part in reply.parts:
        words = part.text.split(b" ", 2) if isinstance(part, Line) else []
        if len(words) == 3 and words[0] == b"STAT":
            name, value = (word.decode("utf-8", "backslashreplace") for word in words[1:])
            found.append((name, value))
    return found
