"""Authentication: the state shared by all connections, and the gate in front of each."""

import logging
from time import monotonic
from typing import Protocol

from memlite.core.logs import failure
from memlite.memory import Part
from memlite.protocol import Handler
from memlite.protocol.login import Attempt, Credentials, Farewell, LoginReader
from memlite.server.auth.throttle import Throttle, network
from memlite.server.auth.users import Users
from memlite.server.interfaces import Peer
from memlite.telemetry.counters import Counters

__all__ = ["Authenticator", "Gate"]

_log = logging.getLogger("memlite")


class Guarded(Peer, Protocol):
    """A connection behind a gate.

    Attributes:
        out: receives replies.
    """

    @property
    def out(self) -> list[Part]: ...

    def admit(self, data: bytes) -> bool:
        """Start to serve the client with `data`; return the result of `Parser.receive`."""

    def postpone(self, seconds: float) -> None:
        """Stop reading from the client for `seconds`."""


class Throttling(Protocol):
    """Delays attempts; see `memlite.server.auth.throttle.Throttle`."""

    def take(self, address: str, now: float) -> float | None:
        """Return the seconds that an attempt must wait; None if it must be refused."""

    def put_back(self, address: str, now: float) -> None:
        """Record that an attempt has succeeded."""


class Authenticator:
    """Checks credentials, counts attempts and tracks connections that have not authenticated.

    Args:
        users: the users of the server.
        counters: count attempts.
        timeout: seconds a connection may take to authenticate; 0 for no limit.
        throttle: delays attempts; by default, a throttle local to this process.
    """

    def __init__(
        self, users: Users, counters: Counters, timeout: int, throttle: Throttling | None = None
    ) -> None:
        self._users = users
        self._counters = counters
        self._timeout = timeout
        self._throttle = Throttle() if throttle is None else throttle
        # Connections that have not authenticated, with the second they opened, the oldest first.
        self._pending: dict[Peer, int] = {}

    def reload(self) -> None:
        """Reload the users file.

        Raises:
            StartError: the file cannot be used; the old users stay in effect.
        """
        self._users.load()

    # Connections that have not authenticated

    def add_pending(self, connection: Peer, second: int) -> None:
        """Track a new connection until it authenticates, or until `forget` is called."""
        self._pending[connection] = second

    def forget(self, connection: Peer) -> None:
        """Stop tracking a connection, if it is tracked."""
        self._pending.pop(connection, None)

    def take_oldest_pending(self) -> Peer | None:
        """Remove and return the oldest connection that has not authenticated."""
        oldest = next(iter(self._pending), None)
        if oldest is not None:
            self.forget(oldest)
        return oldest

    def excuse_pause(self, seconds: int) -> None:
        """Extend all deadlines by `seconds`."""
        for connection in self._pending:
            self._pending[connection] += seconds

    def close_overdue(self, second: int) -> None:
        """Close connections that have taken too long to authenticate. Called once a second."""
        if not self._timeout:
            return
        since = second - self._timeout
        for connection in [one for one, opened in self._pending.items() if opened < since]:
            self.forget(connection)
            _log.info(
                "<%d connection closed: not authenticated in time",
                connection.number,
                extra=failure("authentication_overdue", client=connection.peer),
            )
            connection.kick()

    # Attempts

    def gate(self, connection: Guarded, reader: LoginReader, share: int) -> "Gate":
        """Return the gate for a connection; see `Gate` for the arguments."""
        return Gate(connection, self, reader, share)

    def wait(self, connection: Peer) -> float | None:
        """Return the seconds an attempt must wait; None if it must be refused."""
        wait = self._throttle.take(network(connection.host), monotonic())
        if wait is None:
            self._counters.auth_cmds += 1
            self._counters.auth_errors += 1
        return wait

    def check(self, connection: Peer, credentials: Credentials | None) -> bool:
        """Check the credentials of an attempt; return whether they are valid.

        Args:
            connection: the connection that made the attempt.
            credentials: the credentials; None if they are malformed.
        """
        self._counters.auth_cmds += 1
        if credentials is not None and self._users.check(*credentials):
            self._throttle.put_back(network(connection.host), monotonic())
            self.forget(connection)
            return True
        self._counters.auth_errors += 1
        # The user name is not logged: it may be a mistyped password.
        _log.info(
            "<%d authentication failed, from %s",
            connection.number,
            connection.peer,
            extra=failure("authentication_failed", client=connection.peer),
        )
        return False


class Gate:
    """Stands in for the parser until the client has authenticated.

    So authentication costs nothing once it has succeeded, and parsers need no support for it.

    Args:
        connection: the connection.
        auth: checks attempts.
        reader: parses the input.
        share: the most requests to handle in one turn.
    """

    __slots__ = ("_auth", "_connection", "_reader", "_requests_per_turn", "_waiting")

    def __init__(
        self, connection: Guarded, auth: Authenticator, reader: LoginReader, share: int
    ) -> None:
        self._connection = connection
        self._auth = auth
        self._reader = reader
        self._requests_per_turn = range(share)
        self._waiting: Attempt | None = None

    backlog = 0  # logins are short

    @property
    def in_value(self) -> bool:
        """Whether an attempt is incomplete."""
        return self._reader.in_token

    @property
    def in_command(self) -> bool:
        """Whether there is input that has not been handled."""
        return self._reader.unfinished

    def receive(self, data: bytes, handler: Handler) -> bool:
        """Take bytes from the peer; same interface as a parser, but `handler` is not called."""
        connection, reader, out = self._connection, self._reader, self._connection.out
        reader.feed(data)
        if self._waiting is not None:
            waited, self._waiting = self._waiting, None
            if self._succeeds(waited):
                return connection.admit(reader.rest())
        for _ in self._requests_per_turn:
            found = reader.next()
            if found is None:
                return False
            if isinstance(found, bytes):
                out.append(found)
                continue
            if isinstance(found, Farewell):
                return self._end(found.reply)
            seconds = self._auth.wait(connection)
            if seconds is None:
                return self._end(found.too_many)
            if seconds:
                self._waiting = found
                connection.postpone(seconds)
                return True
            if self._succeeds(found):
                return connection.admit(reader.rest())
        return reader.unfinished

    def _succeeds(self, attempt: Attempt) -> bool:
        right = self._auth.check(self._connection, attempt.credentials)
        self._connection.out.append(attempt.success if right else attempt.failure)
        return right

    def _end(self, reply: bytes) -> bool:
        self._connection.out.append(reply)
        self._reader.rest()
        self._connection.close()
        return False
