"""A client with a connection to each node of a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from memlite.client.transport import open_transport
from memlite.loadtest.clients.admission import Admission
from memlite.loadtest.clients.connection import TextOwner
from memlite.loadtest.clients.measured import MeasuredClient, MeasuredConnection
from memlite.loadtest.clients.nodes import Nodes

__all__ = ["NodesClient"]

_LOST = "connection closed"


class NodesClient(ABC):
    """One client, with a connection to each node. Implements `MeasuredClient` and `Owner`.

    Args:
        owner: the clients that it belongs to.
        nodes: where keys live.

    Attributes:
        connected: whether it is connected to all nodes.
        settings: how it behaves.
        recorder: takes the measurements.
    """

    def __init__(self, owner: TextOwner, nodes: Nodes) -> None:
        self.connected = False
        self.settings = owner.settings
        self.recorder = owner.recorder
        self._owner = owner
        self._nodes = nodes

    @property
    @abstractmethod
    def connections(self) -> Sequence[MeasuredConnection]:
        """The connections, in the order of the nodes."""

    @abstractmethod
    def add_connection(self) -> MeasuredConnection:
        """Return a new connection, after adding it to `connections`."""

    @abstractmethod
    def fill(self) -> None:
        """Send requests until the pipeline is full."""

    async def open(self, admission: Admission) -> None:
        """Connect to all nodes.

        Raises:
            OSError: as for `open_transport`, or a connection is closed already.
        """
        for address in self._nodes.addresses:
            await open_transport(
                self.add_connection, address, tls=self.settings.tls, login=admission
            )
        if not all(one.connected for one in self.connections):
            raise ConnectionResetError
        self.connected = True

    # Interface for the clients

    @property
    def busy(self) -> bool:
        """Whether a request is outstanding, or will be made after the think time."""
        return any(one.busy for one in self.connections)

    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been outstanding since `moment`, in nanoseconds, or longer."""
        return any(one.waiting_since(moment) for one in self.connections)

    def give_up(self, kind: str) -> None:
        """Close all connections; outstanding requests have failed with this kind of error."""
        was_connected, self.connected = self.connected, False
        for one in self.connections:
            if one.connected and one.busy:
                one.give_up(kind)
            elif one.connected:
                one.close()
        if was_connected:
            self._owner.lost(self)

    def close(self) -> None:
        """Close all connections."""
        self.connected = False
        for one in self.connections:
            if one.connected:
                one.close()

    # Interface for the connections

    @property
    def stopped(self) -> bool:
        """Whether no more requests are to be made."""
        return self._owner.stopped

    def failed(self, kind: str, count: int = 1) -> None:
        """Count errors."""
        self._owner.failed(kind, count)

    def gained(self, connection: MeasuredClient) -> None:  # noqa: B027 - as it says
        """Do nothing: the client can be used when it is connected to all nodes."""

    def lost(self, connection: MeasuredClient) -> None:
        """Give up all other connections, and have the client replaced."""
        if self.connected:
            self.give_up(_LOST)

    def idle(self) -> None:
        """Note that a connection has nothing outstanding."""
        self._owner.idle()
