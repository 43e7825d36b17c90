"""The common base of measured connections: how they begin and end, and who owns them."""

import asyncio
from abc import ABC, abstractmethod
from typing import Protocol, cast

from memlite.loadtest.clients.settings import Settings
from memlite.loadtest.recorder import Recorder

__all__ = ["MeasuredClient", "MeasuredConnection", "Owner"]


class MeasuredClient(Protocol):
    """A client that is measured: a connection, or one that has several.

    Attributes:
        connected: whether it is connected.
    """

    connected: bool

    @property
    def busy(self) -> bool:
        """Whether a request is outstanding, or will be made after the think time."""

    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been outstanding since `moment`, in nanoseconds, or longer."""

    def fill(self) -> None:
        """Send requests until the pipeline is full."""

    def give_up(self, kind: str) -> None:
        """Close it; outstanding requests have failed with this kind of error."""

    def close(self) -> None:
        """Close it."""


class Owner(Protocol):
    """The interface that a connection needs from the clients that own it.

    Attributes:
        settings: how they behave.
        recorder: takes the measurements.
    """

    settings: Settings
    recorder: Recorder

    @property
    def stopped(self) -> bool:
        """Whether no more requests are to be made."""

    def failed(self, kind: str, count: int = 1) -> None:
        """Count errors."""

    def gained(self, connection: MeasuredClient) -> None:
        """Note that a connection can be used."""

    def lost(self, connection: MeasuredClient) -> None:
        """Replace a connection."""

    def idle(self) -> None:
        """Note that a connection has nothing outstanding."""


class MeasuredConnection(ABC, asyncio.Protocol):
    """A connection to the server, and the requests outstanding on it.

    It reads replies with `memlite.client`, but is a separate protocol: a future for each request
    would cost more than everything being measured.

    Args:
        owner: the clients that it belongs to.

    Attributes:
        connected: whether it is connected.
    """

    def __init__(self, owner: Owner) -> None:
        self.connected = False
        self._closing = False
        self._owner = owner
        self._recorder = owner.recorder

    _transport: asyncio.Transport

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a request is outstanding, or will be made after the think time."""

    @abstractmethod
    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been outstanding since `moment`, in nanoseconds, or longer."""

    @abstractmethod
    def fill(self) -> None:
        """Send requests until the pipeline is full."""

    @abstractmethod
    def _forget(self) -> int:
        """Forget outstanding requests; return the number of replies they were waiting for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self.connected = True
        self._owner.gained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count outstanding requests as failed, and have the connection replaced."""
        self.connected = False
        if not self._closing:
            self._abandon("connection reset" if exc else "connection closed")

    def give_up(self, kind: str) -> None:
        """Close the connection; outstanding requests have failed with this kind of error."""
        self._abandon(kind)
        self._transport.abort()

    def _abandon(self, kind: str) -> None:
        self._closing = True
        self.connected = False
        self._owner.failed(kind, max(1, self._forget()))
        self._owner.lost(self)
        self._owner.idle()

    def close(self) -> None:
        """Close the connection."""
        self._closing = True
        self.connected = False
        self._transport.abort()
