"""Where the keys of requests live, for clients that know the nodes."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from memlite.client import connect
from memlite.client.address import Address
from memlite.client.discovery import discover
from memlite.client.errors import DiscoveryError
from memlite.cluster.topology import DEFAULT_HASH
from memlite.loadtest.clients.settings import Settings
from memlite.routing import Router

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation

__all__ = ["Nodes", "ask"]

# The number of keys whose node is cached; a lookup costs a fifth of hashing the key again.
_REMEMBERED = 1 << 17


class _Node(Protocol):
    @property
    def address(self) -> Address: ...


class _Map(Protocol):
    @property
    def nodes(self) -> Sequence[_Node]: ...

    def router(self) -> Router: ...


class Nodes:
    """The nodes of a cluster, and where keys live.

    Args:
        topology: the nodes: a `Topology`, or a server's description of them.

    Attributes:
        topology: as above.
        addresses: the addresses of the nodes, in order.
    """

    def __init__(self, topology: _Map) -> None:
        self.topology = topology
        self.addresses = [node.address for node in topology.nodes]
        self._index = _Index(topology)

    def index(self, request: bytes) -> int:
        """Return the number of the node that has the first key of a request."""
        return self._index[request.split(b" ", 2)[1]]

    def address(self, request: bytes) -> Address:
        """Return the address of the node that has the first key of a request."""
        return self.addresses[self.index(request)]

    def split(self, operation: "Operation") -> "dict[int, Operation]":
        """Return an operation's part for each node, by the number of the node.

        Args:
            operation: has several keys, so it is a retrieval.
        """
        name, *keys = operation.request.split()
        parts: dict[int, list[bytes]] = defaultdict(list)
        for key in keys:
            parts[self._index[key]].append(key)
        return {
            number: operation._replace(
                request=b" ".join([name, *of_node]) + b"\r\n", keys=len(of_node)
            )
            for number, of_node in parts.items()
        }


async def ask(settings: Settings, address: Address, known: Nodes | None = None) -> Nodes:
    """Ask a proxy for its nodes, on a connection for this question.

    Args:
        settings: how to connect.
        address: the proxy's.
        known: the expected nodes, returned if the proxy lists them.

    Raises:
        OSError: the proxy cannot be reached, or lists no nodes.
        TimeoutError: it took too long.
    """
    async with await connect(
        address,
        tls=settings.tls,
        login=settings.login,
        timeout=settings.timeout,
    ) as connection:
        try:
            found = await discover(connection, DEFAULT_HASH, "")
        except DiscoveryError as error:
            raise ConnectionError(str(error)) from None
    return known if known is not None and known.topology == found else Nodes(found)


class _Index(dict[bytes, int]):
    """Node numbers by the words of requests that contain the keys."""

    def __init__(self, topology: _Map) -> None:
        self._index = topology.router().index

    def __missing__(self, word: bytes) -> int:
        number = self._index(word.rstrip(b"\r\n"))
        if len(self) < _REMEMBERED:
            self[word] = number
        return number
