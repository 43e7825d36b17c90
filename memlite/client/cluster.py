"""A client of a whole cluster, which connects to the nodes directly."""

import asyncio
import ssl
from collections.abc import Awaitable, Iterable
from functools import partial
from types import TracebackType
from typing import Self

from memlite.client.address import Address, parse_address
from memlite.client.commands import KeyCommands, check_key, checked
from memlite.client.connection import connect
from memlite.client.discovery import ClusterMap
from memlite.client.errors import CommandFailedError, ConnectionLostError, NodeUnreachableError
from memlite.client.follower import Follower
from memlite.client.login import Login
from memlite.client.node import LazyNode
from memlite.client.replies import Item, Reply, Shape
from memlite.core.errors import ConfigError

__all__ = ["ClusterClient"]


class ClusterClient(KeyCommands):
    """Finds the nodes of a cluster, and sends each request to the node that has its key.

    An async context manager, which discovers the nodes and closes all connections::

        async with ClusterClient("proxy:11211") as cluster:
            await cluster.set(b"greeting", b"hello", exptime=60)
            item = await cluster.get(b"greeting")

    The client connects to a node when it is first needed, with one pipelined connection; any number
    of tasks may make requests concurrently.

    The list of nodes is refreshed every `interval` seconds, and soon after a node could not be
    reached or answered with SERVER_ERROR. Lists with a lower version than the last one are
    ignored. Nodes that stay keep their connection; removed nodes still answer their outstanding
    requests.

    No request is sent twice. If nothing was sent because a node could not be reached, and its key
    now belongs to another node, the request goes there.

    Args:
        seeds: servers that list the nodes, as ``host:port``: proxies, or a configuration endpoint
            of Amazon ElastiCache.
        hash: how keys are distributed, one of `memlite.routing.HASHES`; for seeds that do not say.
            A memlite proxy does.
        hash_tag: the two characters around the part of a key that is hashed; likewise.
        tls: encrypts all connections; None for plain text.
        login: sent first on all connections; None for none.
        timeout: seconds for connecting, and for a connection without progress; see `connect`.
        interval: seconds between two requests for the list of nodes; at least 1.

    Attributes:
        failed_shards: parts of multi-gets whose keys were misses because a node failed.

    Raises:
        ConfigError: a seed is not an address, or there is none.
    """

    def __init__(
        self,
        *seeds: str | Address,
        hash: str = "ketama",  # noqa: A002 - as in the topology
        hash_tag: str = "",
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
        timeout: float | None = 5.0,
        interval: float = 60.0,
    ) -> None:
        self.failed_shards = 0
        self._connect = partial(connect, tls=tls, login=login, timeout=timeout)
        addresses = [seed if isinstance(seed, Address) else parse_address(seed) for seed in seeds]
        if not addresses:
            raise ConfigError("ClusterClient: there must be at least one seed")
        self._follower = Follower(addresses, self._connect, hash, hash_tag, self._change, interval)
        self._map = ClusterMap(0, (), hash, hash_tag)
        self._nodes: list[LazyNode] = []

    async def __aenter__(self) -> Self:
        await self._follower.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Outstanding requests fail with OutcomeUnknownError."""
        await self._follower.stop()
        await asyncio.gather(*(node.close() for node in self._nodes))

    @property
    def map(self) -> ClusterMap:
        """The nodes, as last discovered."""
        return self._map

    def _change(self, found: ClusterMap) -> None:
        kept = {node.address: node for node in self._nodes}
        addresses = [node.address for node in found.nodes]
        self._nodes = [
            kept.pop(address) if address in kept else LazyNode(address, self._connect)
            for address in addresses
        ]
        self._map, self._index = found, found.router().index
        for node in kept.values():
            node.retire()

    def _node_of(self, key: bytes) -> LazyNode:
        return self._nodes[self._index(key)]

    # Requests

    async def request(self, key: bytes, data: bytes, shape: Shape = Shape.LINE) -> Reply:
        """Send a request to the node that has a key, and return its reply.

        Args:
            key: the key that it concerns.
            data: the request, which concerns no key but `key`.
            shape: the shape of the reply.

        Raises:
            NodeUnreachableError: there is no connection to the node; nothing was sent.
            OutcomeUnknownError: the connection was lost before the reply was complete.
            ConnectionLostError: the connection was lost before; nothing was sent.
        """
        node = self._node_of(key)
        try:
            return await self._ask(node, data, shape)
        except NodeUnreachableError:
            await self._follower.refresh()
            other = self._node_of(key)
            if other is node:
                raise
            return await self._ask(other, data, shape)

    async def _ask(self, node: LazyNode, data: bytes, shape: Shape) -> Reply:
        try:
            reply = await node.request(data, shape)
        except ConnectionLostError:
            self._follower.hurry()
            raise
        if reply.line.startswith(b"SERVER_ERROR"):
            self._follower.hurry()
        return reply

    async def get_many(self, keys: Iterable[bytes]) -> dict[bytes, Item]:
        """Return the existing items by key, with one request to each node.

        Keys on a node that fails are misses; `failed_shards` counts these failures.

        Raises:
            ValueError: a key cannot be sent.
            ConnectionLostError: all nodes have failed.
            CommandFailedError: likewise; this is the answer of the first of them.
        """
        parts: dict[LazyNode, list[bytes]] = {}
        for key in dict.fromkeys(keys):
            parts.setdefault(self._node_of(check_key(key)), []).append(key)
        found: dict[bytes, Item] = {}
        failures: list[_Failure] = []
        for reply in await _all(self._get_part(node, some) for node, some in parts.items()):
            if isinstance(reply, Reply):
                found.update((item.key or b"", item) for item in reply.items)
            else:
                failures.append(reply)
        if failures and len(failures) == len(parts):
            raise failures[0]
        self.failed_shards += len(failures)
        return found

    async def _get_part(self, node: LazyNode, keys: list[bytes]) -> Reply:
        return checked(await self._ask(node, b"get %b\r\n" % b" ".join(keys), Shape.ITEMS))

    async def flush_all(self) -> None:
        """Remove all items from all nodes.

        Raises:
            ConnectionLostError: at least one node has failed; the others have removed their items.
            CommandFailedError: likewise; this is its answer.
        """
        await self._ask_all(b"flush_all\r\n")

    async def version(self) -> dict[str, str]:
        """Return the versions of the nodes, by their names; raises the errors of `flush_all`."""
        nodes = self._map.nodes
        replies = await self._ask_all(b"version\r\n")
        return {
            node.name: reply.line.decode("ascii", "backslashreplace").removeprefix("VERSION ")
            for node, reply in zip(nodes, replies, strict=True)
        }

    async def _ask_all(self, data: bytes) -> list[Reply]:
        replies = await _all(self._ask_checked(node, data) for node in self._nodes)
        for reply in replies:
            if not isinstance(reply, Reply):
                raise reply
        return [reply for reply in replies if isinstance(reply, Reply)]

    async def _ask_checked(self, node: LazyNode, data: bytes) -> Reply:
        return checked(await self._ask(node, data, Shape.LINE))


_Failure = ConnectionLostError | CommandFailedError


async def _all(requests: Iterable[Awaitable[Reply]]) -> list[Reply | _Failure]:
    """Wait for all replies; a failed request has its error in place of a reply."""
    return await asyncio.gather(*map(_outcome, requests))


async def _outcome(request: Awaitable[Reply]) -> Reply | _Failure:
    try:
        return await request
    except (ConnectionLostError, CommandFailedError) as error:
        return error
