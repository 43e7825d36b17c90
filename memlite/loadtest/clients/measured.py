"""What the measured connections have in common: how they begin and end, and whose they are."""

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
        """Send as many requests as may be outstanding."""

    def give_up(self, kind: str) -> None:
        """Close it; what is outstanding has failed with this kind of error."""

    def close(self) -> None:
        """Close it."""


class Owner(Protocol):
    """What a connection needs from the clients that it belongs to.

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

    It reads replies with `memlite.client`, but is a protocol of its own: a future for each request
    would cost more than everything that is measured.

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
        """Send as many requests as may be outstanding."""

    @abstractmethod
    def _forget(self) -> int:
        """Forget what is outstanding; return how many replies that were."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self.connected = True
        self._owner.gained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count what was outstanding as failed, and have the connection replaced."""
        self.connected = False
        if not self._closing:
            self._abandon("connection reset" if exc else "connection closed")

    def give_up(self, kind: str) -> None:
        """Close the connection; what is outstanding has failed with this kind of error."""
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
