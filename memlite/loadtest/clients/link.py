"""What all connections of the built-in client have in common: how they begin and end."""

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlite.loadtest.clients.text import TextClients

__all__ = ["Link"]


class Link(ABC, asyncio.Protocol):
    """A connection to the server, and the requests under way on it.

    Args:
        clients: whose connection it is.

    Attributes:
        connected: whether it is.
    """

    def __init__(self, clients: "TextClients") -> None:
        self.connected = False
        self._closing = False
        self._clients = clients
        self._recorder = clients.recorder

    _transport: asyncio.Transport

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether something is under way, or will be after a pause."""

    @abstractmethod
    def waiting_since(self, moment: int) -> bool:
        """Return whether a reply has been waited for since `moment`, in nanoseconds, or longer."""

    @abstractmethod
    def fill(self) -> None:
        """Make as many requests as may be under way."""

    @abstractmethod
    def _forget(self) -> int:
        """Give up what is under way; return how many replies are still to come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready."""
        self._transport = transport  # type: ignore[assignment]
        self.connected = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Count what was under way as failed, and be replaced."""
        self.connected = False
        if not self._closing:
            self._abandon("connection reset" if exc else "connection closed")

    def give_up(self, kind: str) -> None:
        """Close the connection: what is under way has failed."""
        self._abandon(kind)
        self._transport.abort()

    def _abandon(self, kind: str) -> None:
        self._closing = True
        self.connected = False
        self._clients.failed(kind, max(1, self._forget()))
        self._clients.lost(self)
        self._clients.settle()

    def close(self) -> None:
        """Close it."""
        self._closing = True
        self.connected = False
        self._transport.abort()
