"""Authentication: what all connections share of it, and the gate before the text protocol."""

import logging
from typing import TYPE_CHECKING

from memlite.config import Config
from memlite.protocol import Handler, Limits, replies
from memlite.protocol.login import Credentials, LoginReader
from memlite.server.throttle import Throttle, network
from memlite.server.users import Users
from memlite.stats import Counters

if TYPE_CHECKING:
    from memlite.server.connection import Connection

__all__ = ["Authenticator", "TextGate"]

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

    @classmethod
    def of(cls, config: Config, counters: Counters) -> "Authenticator | None":
        """Make what the settings ask for; None where everybody may use the server.

        Raises:
            StartError: there is no users file as it should be.
        """
        if config.auth_file is None:
            return None
        return cls(Users(config.auth_file), counters, config.auth_timeout)

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

    def wait(self, connection: "Connection", now: float) -> float | None:
        """Return the seconds an attempt has to wait; None if it is to be refused.

        Args:
            connection: whose it is.
            now: the event loop's time.
        """
        wait = self._throttle.take(network(connection.host), now)
        if wait is None:
            self._counters.auth_cmds += 1
            self._counters.auth_errors += 1
        return wait

    def check(self, connection: "Connection", credentials: Credentials, now: float) -> bool:
        """Look at an attempt that has waited; return whether it succeeded.

        Args:
            connection: whose it is.
            credentials: who it says it is.
            now: the event loop's time.
        """
        self._counters.auth_cmds += 1
        if self._users.check(*credentials):
            self._throttle.put_back(network(connection.host), now)
            self.forget(connection)
            return True
        self._counters.auth_errors += 1
        # Not the name it gave: it may be a password, in the wrong place.
        _log.info("<%d authentication failed, from %s", connection.number, connection.peer)
        return False


class TextGate:
    """Stands in the text parser's place until the client has authenticated.

    So that those who have pay nothing for it, nor the parser for those who have not.

    Args:
        connection: whose input it takes.
        auth: decides.
        limits: of the text protocol.
    """

    __slots__ = ("_asked", "_auth", "_connection", "_reader", "_share")

    def __init__(self, connection: "Connection", auth: Authenticator, limits: Limits) -> None:
        self._connection = connection
        self._auth = auth
        self._reader = LoginReader(limits)
        self._share = range(limits.commands_per_read)
        self._asked: Credentials | None = None  # those that had to wait

    @property
    def in_value(self) -> bool:
        """Whether the value of the authentication is still to come."""
        return self._reader.in_token

    @property
    def in_command(self) -> bool:
        """Whether something has begun to arrive and is not complete."""
        return self._reader.unfinished

    def receive(self, data: bytes, handler: Handler) -> bool:
        """Take bytes from the peer, as `TextParser.receive` does."""
        connection, reader, out = self._connection, self._reader, self._connection.out
        reader.feed(data)
        for _ in self._share:
            asked, self._asked = self._asked, None
            if asked is None:
                found = reader.next()
                if found is None:
                    return False
                if isinstance(found, bytes):
                    out.append(found)
                    continue
                wait = self._auth.wait(connection, connection.now())
                if wait is None:
                    out.append(replies.TOO_MANY_FAILURES)
                    reader.rest()
                    handler.quit()
                    return False
                if wait:
                    self._asked = found
                    connection.hold(wait)
                    return True
                asked = found
            if self._auth.check(connection, asked, connection.now()):
                out.append(replies.STORED)
                return connection.let_in(reader.rest(), handler)
            out.append(replies.AUTHENTICATION_FAILURE)
        return reader.unfinished
