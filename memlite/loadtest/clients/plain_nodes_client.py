"""A client that knows the nodes, for gets and sets of values of one size."""

from collections.abc import Sequence
from time import perf_counter_ns

from memlite.loadtest.clients.connection import TextOwner
from memlite.loadtest.clients.nodes import Nodes
from memlite.loadtest.clients.nodes_client import NodesClient
from memlite.loadtest.clients.plain import PlainConnection
from memlite.loadtest.clients.thinking import Thinking
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
        self._think_times = Thinking()

    @property
    def connections(self) -> Sequence[PlainConnection]:
        """The connections, in the order of the nodes."""
        return self._connections

    def add_connection(self) -> PlainConnection:
        """Return a new connection, after adding it to `connections`."""
        self._connections.append(_NodeConnection(self, self._operations))
        return self._connections[-1]

    def fill(self) -> None:
        """Send requests until the pipeline is full, each to the node that has its key."""
        if self._owner.stopped or not self.connected:
            self._owner.idle()
        elif self._pipeline == 1:
            request, letter = self._take(1)
            if request:
                self._left = 1
                now = self._connections[self._index(request)].begin(request, letter)
                self.recorder.thought += self._think_times.ends(now, 1)
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
        moments, count = 0, 0
        for number, (requests, letters) in shares.items():
            now = self._connections[number].begin(b"".join(requests), b"".join(letters))
            moments += now * len(letters)
            count += len(letters)
        if shares:
            self.recorder.thought += self._think_times.ends(moments // count, count)
        else:
            self._owner.idle()

    def answered(self, count: int) -> None:
        """Send more once all nodes have answered.

        Args:
            count: the number of replies from the node that has just answered.
        """
        self._think_times.replied(self.recorder.last, count)
        self._left -= 1
        if not self._left:
            self.fill()


class _NodeConnection(PlainConnection):
    """A client's connection to one node; the client decides what comes next."""

    def __init__(self, client: PlainNodesClient, operations: PlainOperations) -> None:
        super().__init__(client, operations)
        self._client = client

    def begin(self, requests: bytes, expected: bytes) -> int:
        """Send requests; `expected` has a letter for the reply to each.

        Returns:
            When they were sent, in nanoseconds.
        """
        self._expected = expected
        self._recorder.counts.sent += len(requests)
        self._sent = perf_counter_ns()
        self._transport.write(requests)
        return self._sent

    def fill(self) -> None:
        """Leave it to the client."""
        count, self._expected = len(self._expected), b""
        self._client.answered(count)
