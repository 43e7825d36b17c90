"""A client that knows the nodes, for gets and sets of values of one size."""

from collections.abc import Sequence
from time import perf_counter_ns

from memlite.loadtest.clients.connection import TextOwner
from memlite.loadtest.clients.nodes import Nodes
from memlite.loadtest.clients.nodes_client import NodesClient
from memlite.loadtest.clients.plain import PlainConnection
from memlite.loadtest.plain import PlainOperations

__all__ = ["PlainNodesClient"]


class PlainNodesClient(NodesClient):
    """A client with a connection to each node. Sends requests, and more when all are answered.

    Args:
        owner: the clients that it belongs to.
        nodes: where keys live.
        operations: the source of requests.
    """

    def __init__(self, owner: TextOwner, nodes: Nodes, operations: PlainOperations) -> None:
        super().__init__(owner, nodes)
        self._operations = operations
        self._take = operations.take
        self._index = nodes.index
        self._pipeline = owner.settings.pipeline
        self._connections: list[_NodeConnection] = []
        self._left = 0

    @property
    def connections(self) -> Sequence[PlainConnection]:
        """The connections, in the order of the nodes."""
        return self._connections

    def add_connection(self) -> PlainConnection:
        """Return a new connection, after adding it to `connections`."""
        self._connections.append(_NodeConnection(self, self._operations))
        return self._connections[-1]

    def fill(self) -> None:
        """Send as many requests as may be outstanding, each to the node that has its key."""
        if self._owner.stopped or not self.connected:
            self._owner.idle()
        elif self._pipeline == 1:
            request, letter = self._take(1)
            if request:
                self._left = 1
                self._connections[self._index(request)].begin(request, letter)
            else:
                self._owner.idle()
        else:
            self._fill_several()

    def _fill_several(self) -> None:
        shares: dict[int, tuple[list[bytes], list[bytes]]] = {}
        for _ in range(self._pipeline):
            request, letter = self._take(1)
            if not request:
                break
            requests, letters = shares.setdefault(self._index(request), ([], []))
            requests.append(request)
            letters.append(letter)
        self._left = len(shares)
        for number, (requests, letters) in shares.items():
            self._connections[number].begin(b"".join(requests), b"".join(letters))
        if not shares:
            self._owner.idle()

    def answered(self) -> None:
        """Send more once all nodes have answered."""
        self._left -= 1
        if not self._left:
            self.fill()


class _NodeConnection(PlainConnection):
    """A client's connection to one node, which leaves it to the client what comes next."""

    def __init__(self, client: PlainNodesClient, operations: PlainOperations) -> None:
        super().__init__(client, operations)
        self._client = client

    def begin(self, requests: bytes, expected: bytes) -> None:
        """Send requests; `expected` has a letter for the reply to each."""
        self._expected = expected
        self._recorder.counts.sent += len(requests)
        self._sent = perf_counter_ns()
        self._transport.write(requests)

    def fill(self) -> None:
        """Leave it to the client."""
        self._expected = b""
        self._client.answered()
