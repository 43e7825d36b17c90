"""Authentication: what all connections share of it, and the gate before each of them."""

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

from memlite.protocol.login import Attempt, Credentials, Farewell, LoginReader
from memlite.server.throttle import Throttle, network
from memlite.server.users import Users
from memlite.stats import Counters

if TYPE_CHECKING:
    from memlite.server.connection import Connection

__all__ = ["Authenticator", "Gate"]

_log = logging.getLogger("memlite")


class Authenticator:
    """Knows the users, counts attempts, and who has not authenticated yet.

    Args:
        users: who may use the server.
        counters: where attempts are counted.
        timeout: seconds a connection may take to authenticate; 0 for any time.
    """

    def __init__(self, users: Users, counters: Counters, timeout: int) -> None:
        self._users = users
        self._counters = counters
        self._timeout = timeout
        self._throttle = Throttle()
        # Since when, by the clock's seconds: the oldest first.
        self._strangers: dict[Connection, int] = {}

    def reload(self) -> None:
        """Read the users file again.

        Raises:
            StartError: it cannot be read; the users are those there were.
        """
        self._users.load()

    # Connections that have not authenticated

    def meet(self, connection: "Connection", second: int) -> None:
        """Let `connection` in as far as the gate; `forget` must follow."""
        self._strangers[connection] = second

    def forget(self, connection: "Connection") -> None:
        """Count it no longer among those who have not authenticated."""
        self._strangers.pop(connection, None)

    def oldest_stranger(self) -> "Connection | None":
        """Forget, and return, the one among them that has been there longest."""
        oldest = next(iter(self._strangers), None)
        if oldest is not None:
            self.forget(oldest)
        return oldest

    def leave_out(self, seconds: int) -> None:
        """Give everybody that much more time."""
        for connection in self._strangers:
            self._strangers[connection] += seconds

    def close_overdue(self, second: int) -> None:
        """Close connections that have taken too long. The server calls it once a second."""
        if not self._timeout:
            return
        since = second - self._timeout
        for connection in [one for one, met in self._strangers.items() if met < since]:
            self.forget(connection)
            _log.info("<%d connection closed: not authenticated in time", connection.number)
            connection.kick()

    # Attempts

    def gate(self, connection: "Connection", reader: LoginReader, share: int) -> "Gate":
        """Return what is to stand before a connection; see there for the arguments."""
        return Gate(connection, self, reader, share)

    def wait(self, connection: "Connection") -> float | None:
        """Return the seconds an attempt of it has to wait; None if it is to be refused."""
        wait = self._throttle.take(network(connection.host), monotonic())
        if wait is None:
            self._counters.auth_cmds += 1
            self._counters.auth_errors += 1
        return wait

    def check(self, connection: "Connection", credentials: Credentials | None) -> bool:
        """Look at an attempt that has waited; return whether the client is to be let in.

        Args:
            connection: whose it is.
            credentials: who it says it is; None for what is nobody.
        """
        self._counters.auth_cmds += 1
        if credentials is not None and self._users.check(*credentials):
            self._throttle.put_back(network(connection.host), monotonic())
            self.forget(connection)
            return True
        self._counters.auth_errors += 1
        # Not the name it gave: it may be a password, in the wrong place.
        _log.info("<%d authentication failed, from %s", connection.number, connection.peer)
        return False


class Gate:
    """Stands in the parser's place until the client has authenticated.

    So that those who have pay nothing for it, nor the parser for those who have not.

    Args:
        connection: whose input it takes.
        auth: decides.
        reader: makes something of the input.
        share: attempts and other requests looked at in a turn.
    """

    __slots__ = ("_auth", "_connection", "_reader", "_share", "_waiting")

    def __init__(
        self, connection: "Connection", auth: Authenticator, reader: LoginReader, share: int
    ) -> None:
        self._connection = connection
        self._auth = auth
        self._reader = reader
        self._share = range(share)
        self._waiting: Attempt | None = None

    @property
    def in_value(self) -> bool:
        """Whether half of an attempt has arrived."""
        return self._reader.in_token

    @property
    def in_command(self) -> bool:
        """Whether something has begun to arrive and is not complete."""
        return self._reader.unfinished

    def receive(self, data: bytes, handler: Any) -> bool:
        """Take bytes from the peer, as a parser does; the handler gets none of it."""
        connection, reader, out = self._connection, self._reader, self._connection.out
        reader.feed(data)
        if self._waiting is not None:
            waited, self._waiting = self._waiting, None
            if self._succeeds(waited):
                return connection.let_in(reader.rest())
        for _ in self._share:
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
                connection.hold(seconds)
                return True
            if self._succeeds(found):
                return connection.let_in(reader.rest())
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
