"""A client that knows the nodes, for every kind of operation, in closed loop and in open loop."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns

from memlite.loadtest.clients.connection import Answer, Batch, Sender, TextConnection, TextOwner
from memlite.loadtest.clients.nodes import Nodes
from memlite.loadtest.clients.nodes_client import NodesClient
from memlite.loadtest.clients.thinking import Thinking
from memlite.loadtest.operations import Operation

__all__ = ["TextNodesClient"]


class _Round:
    """Requests that a client makes at once.

    Attributes:
        left: how many nodes have not yet answered their share.
    """

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class _Part(Operation):
    """A node's part of an operation on several keys."""

    gather: "_Gather"


class _Gather:
    """An operation whose parts were sent to several nodes.

    Attributes:
        left: the number of outstanding parts.
        keys: the keys of the whole operation.
        hits: the keys found so far; None once a part has failed.
    """

    __slots__ = ("hits", "keys", "left")

    def __init__(self, left: int, keys: int) -> None:
        self.left = left
        self.keys = keys
        self.hits: int | None = 0


class TextNodesClient(NodesClient):
    """A client with a connection to each node. Implements `TextOwner`.

    Args:
        owner: the clients that it belongs to.
        nodes: where keys live.

    Attributes:
        take: returns the given number of operations.
        think_times: the client's; its connections note when replies arrive.
    """

    def __init__(self, owner: TextOwner, nodes: Nodes) -> None:
        super().__init__(owner, nodes)
        self.take = owner.take
        self.think_times = Thinking()
        self._connections: list[_NodeConnection] = []
        self._thinking = False

    @property
    def connections(self) -> Sequence[TextConnection]:
        """The connections, in the order of the nodes."""
        return self._connections

    def add_connection(self) -> TextConnection:
        """Return a new connection, after adding it to `connections`."""
        self._connections.append(_NodeConnection(self))
        return self._connections[-1]

    @property
    def busy(self) -> bool:
        """Whether a request is outstanding, or will be made after the think time."""
        return self._thinking or super().busy

    def fill(self) -> None:
        """Send requests until the pipeline is full."""
        self._thinking = False
        owner = self._owner
        if not owner.stopped and self.connected:
            operations = self.take(self.settings.pipeline)
            if operations:
                now = perf_counter_ns()
                self.send(operations, now)
                self.recorder.thought += self.think_times.ends(now, len(operations))
                return
        owner.idle()

    def send(self, operations: list[Operation], intended: int) -> None:
        """Send each request to the node that holds its key.

        Args:
            operations: the requests.
            intended: when they were due to be sent, in nanoseconds; 0 for now.
        """
        if len(operations) == 1 and operations[0].keys < 2:
            number = self._nodes.index(operations[0].request)
            self._connections[number].begin(_Round(1), operations, intended)
            return
        shares: dict[int, list[Operation]] = {}
        for operation in operations:
            for number, part in self._parts(operation):
                shares.setdefault(number, []).append(part)
        one_round = _Round(len(shares))
        intended = intended or perf_counter_ns()
        for number, share in shares.items():
            self._connections[number].begin(one_round, share, intended)

    def _parts(self, operation: Operation) -> Iterable[tuple[int, Operation]]:
        if operation.keys < 2:
            return [(self._nodes.index(operation.request), operation)]
        found = self._nodes.split(operation)
        gather = _Gather(len(found), operation.keys)
        parts = {number: _Part(*part) for number, part in found.items()}
        for part in parts.values():
            part.gather = gather
        return parts.items()

    # Interface for the connections

    @property
    def open_loop(self) -> bool:
        """Whether requests are sent at given times."""
        return self._owner.open_loop

    def answered(self) -> None:
        """Continue after a round."""
        owner = self._owner
        if owner.open_loop:
            owner.freed(self, 1)
            if not self.busy:
                owner.idle()
        elif self.settings.think_time and not owner.stopped:
            self._thinking = True
            owner.think(self.fill)
        else:
            self.fill()

    def freed(self, connection: Sender, count: int) -> None:
        """Do nothing: the client manages the pipeline slots."""

    def dropped(self, count: int) -> None:
        """Do nothing: the client counts requests, which may have parts on several nodes."""

    def give_up(self, kind: str) -> None:
        """Close all connections; outstanding requests have failed with this kind of error."""
        if self.connected and self.open_loop:
            rounds = {id(one) for connection in self._connections for one in connection.rounds}
            self._owner.dropped(len(rounds))
        super().give_up(kind)

    def think(self, resume: Callable[[], None]) -> None:
        """Do nothing: think times are the client's."""


class _NodeConnection(TextConnection):
    """A client's connection to one node; the client decides what comes next.

    Attributes:
        rounds: the round of each batch in the window, preceded by those of the batches just
            answered.
    """

    def __init__(self, client: TextNodesClient) -> None:
        super().__init__(client)
        self._client = client
        self._think_times = client.think_times
        self.rounds: deque[_Round] = deque()

    def begin(self, one_round: _Round, operations: list[Operation], intended: int) -> None:
        """Send the node's share of a round."""
        self.rounds.append(one_round)
        super().send(operations, intended)

    def send(self, operations: list[Operation], intended: int) -> None:
        """Send second steps; they belong to the round whose first step is being answered."""
        one_round = self.rounds[-len(self.window)]
        one_round.left += 1
        self.begin(one_round, operations, intended)

    def _continue(self, freed: int) -> None:
        for _ in range(freed):
            one_round = self.rounds.popleft()
            one_round.left -= 1
            if not one_round.left:
                self._client.answered()

    def _note(self, operation: Operation, batch: Batch, answer: Answer, now: int) -> None:
        if not isinstance(operation, _Part):
            super()._note(operation, batch, answer, now)
            return
        gather = operation.gather
        gather.left -= 1
        if type(answer) is bytes:
            gather.hits = None
            self._client.failed(answer.decode("latin-1")[:100])
        elif gather.hits is not None:
            gather.hits += answer if isinstance(answer, int) else len(answer)
        if self._check is not None and type(answer) is tuple:
            self._check_values(self._check, answer)
        if not gather.left and gather.hits is not None:
            # The slowest node determines how long it took.
            whole = operation._replace(keys=gather.keys)
            super()._note(whole, batch, gather.hits, now)
