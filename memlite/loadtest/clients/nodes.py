"""Where the keys of requests live, for clients that know the nodes."""

from collections import defaultdict
from typing import TYPE_CHECKING

from memlite.client.address import Address
from memlite.cluster.topology import Topology

if TYPE_CHECKING:
    from memlite.loadtest.operations import Operation

__all__ = ["Nodes"]

# Where so many keys live is remembered, which costs a fifth of hashing them again.
_REMEMBERED = 1 << 17


class Nodes:
    """The nodes of a cluster, and where keys live.

    Args:
        topology: the nodes.

    Attributes:
        addresses: of the nodes, in order.
    """

    def __init__(self, topology: Topology) -> None:
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


class _Index(dict[bytes, int]):
    """The numbers of nodes by the words of requests that have their keys."""

    def __init__(self, topology: Topology) -> None:
        self._index = topology.router().index

    def __missing__(self, word: bytes) -> int:
        number = self._index(word.rstrip(b"\r\n"))
        if len(self) < _REMEMBERED:
            self[word] = number
        return number
