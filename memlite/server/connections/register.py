"""The register of a server's connections: admission, the connection limit, idle timeouts."""

import logging
from typing import TYPE_CHECKING, Protocol

from memlite.core.clock import Clock
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.interfaces import ConnectionInfo, Peer
from memlite.telemetry.counters import Counters

if TYPE_CHECKING:
    from memlite.server.auth.auth import Authenticator  # only for servers with authentication

__all__ = ["ConnectionWatcher", "Handshake", "Register"]

_log = logging.getLogger("memlite")


class Handshake(ConnectionInfo, Protocol):
    """A connection whose TLS handshake is in progress."""

    def give_up(self, reason: object) -> None:
        """Abandon the handshake and count it as failed."""


class ConnectionWatcher(Protocol):
    """An observer of connections that open and close."""

    def opened(self, connection: Peer) -> None:
        """Handle a new connection."""

    def closed(self, connection: Peer) -> None:
        """Handle the end of a connection."""


class Register:
    """Keeps track of open connections, up to a limit.

    Args:
        limit: the most connections that may be open (``-c``), handshakes included.
        counters: count accepted and rejected connections.
        clock: provides the time at which connections open.
        instrumentation: decides whether connections may take the fast path.
        auth: tracks connections that have not authenticated; None if clients need not authenticate.

    Attributes:
        connections: the open connections.
        handshakes: connections whose TLS handshake is in progress, the oldest first.
        watcher: notified of connections; None while connections are not watched.
    """

    def __init__(
        self,
        limit: int,
        counters: Counters,
        clock: Clock,
        instrumentation: Instrumentation,
        auth: "Authenticator | None",
    ) -> None:
        self._limit = limit
        self._counters = counters
        self._clock = clock
        self._instrumentation = instrumentation
        self._auth = auth
        # A set takes three times the memory of a dict.
        self.connections: dict[Peer, None] = {}
        self.handshakes: dict[Handshake, None] = {}
        self.watcher: ConnectionWatcher | None = None
        instrumentation.on_activation = self._leave_fast_paths

    def admit(self, connection: Peer) -> bool:
        """Register a new connection; return False if that would exceed the limit."""
        if not self.make_room():
            return False
        self._counters.total_connections += 1
        self.connections[connection] = None
        if self._auth is not None:
            self._auth.add_pending(connection, self._clock.second)
        if self._instrumentation.closes_fast_path:
            connection.leave_fast_path()  # it may have been created before observation began
        if self.watcher is not None:
            self.watcher.opened(connection)
        if self._instrumentation.tracing:
            _log.debug("<%d new client connection", connection.number)
        return True

    def make_room(self) -> bool:
        """Return whether ``-c`` allows one more connection; if not, count it as rejected.

        Idle unauthenticated connections cannot exhaust the limit: if necessary, this closes the
        oldest connection that has not finished its handshake, or else the oldest that has not
        authenticated.
        """
        if self._has_room():
            return True
        if self.handshakes:
            next(iter(self.handshakes)).give_up("the connection limit was reached")
            return True
        pending = self._auth.take_oldest_pending() if self._auth is not None else None
        if pending is not None:
            self.dismiss(pending)
            pending.abort()
            return True
        self._counters.rejected_connections += 1
        return False

    def _has_room(self) -> bool:
        return len(self.connections) + len(self.handshakes) < self._limit

    def dismiss(self, connection: Peer) -> None:
        """Remove a connection; do nothing if it is not registered."""
        if connection not in self.connections:
            return
        if self.watcher is not None:
            self.watcher.closed(connection)
        del self.connections[connection]
        self._instrumentation.forget(connection)
        if self._auth is not None:
            self._auth.forget(connection)
        if self._instrumentation.tracing:
            _log.debug("<%d connection closed.", connection.number)

    def close_idle(self, since: int) -> None:
        """Close connections without activity since before unix second `since`."""
        for connection in [one for one in self.connections if one.idle_since(since)]:
            self._counters.idle_kicks += connection.kick()

    def excuse_pause(self, seconds: int) -> None:
        """Exclude a pause of the process from all idle times, as input may still be unread."""
        for connection in self.connections:
            connection.last_command += seconds
        if self._auth is not None:
            self._auth.excuse_pause(seconds)

    def close_finished(self) -> None:
        """Close connections with no work in progress (the server is stopping)."""
        for connection in list(self.connections):
            if not connection.busy:
                connection.close()

    def give_up_handshakes(self, reason: str) -> None:
        """Abandon all handshakes."""
        for handshake in list(self.handshakes):
            handshake.give_up(reason)

    def abort_all(self) -> None:
        """Close all connections at once."""
        for connection in list(self.connections):
            connection.abort()

    def _leave_fast_paths(self) -> None:
        for connection in self.connections:
            connection.leave_fast_path()
