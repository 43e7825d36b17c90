"""The first exchange on a connection, which tells whether the server serves it."""

from dataclasses import dataclass

from memlite.client.login import TextLogin
from memlite.loadtest.dialects import Dialect
from memlite.loadtest.resp import PING
from memlite.protocol import replies

__all__ = ["Admission", "RefusedError"]

# No client stores this key: the request only has to bring a reply.
_FIRST = {
    Dialect.MEMCACHED: b"version\r\n",
    Dialect.LITE: b"get memlite-bench-admission\r\n",
    Dialect.RESP: PING,
}
_LONGEST = 2000


class RefusedError(ConnectionError):
    """The server does not serve a connection, because it has too many."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A login, if any, and a first request.

    A server at its connection limit accepts another connection only to close it, or leaves it in
    the backlog. Only a reply shows that the client was admitted. Implements
    `memlite.client.login.Login`.

    Attributes:
        login: sent first; None for none.
        dialect: the protocol that the server speaks; only memcached's own has ``version``.
    """

    login: TextLogin | None = None
    dialect: Dialect = Dialect.MEMCACHED

    @property
    def request(self) -> bytes:
        """The bytes to send."""
        login = self.login.request if self.login is not None else b""
        return login + _FIRST[self.dialect]

    def complete(self, received: bytes) -> bool:
        """Return whether `received` contains a line for each request, or a refusal."""
        lines = received.count(b"\n")
        return (
            lines > (self.login is not None)
            or len(received) > _LONGEST
            or (lines > 0 and _refuses(received))
        )

    def check(self, reply: bytes) -> None:
        """Check the server's reply.

        Raises:
            RefusedError: the server does not serve the connection.
            ConnectionResetError: the server has closed the connection.
            LoginRefusedError: the server does not accept the login.
        """
        if not reply:
            raise ConnectionResetError
        if _refuses(reply):
            raise RefusedError("too many open connections")
        if self.login is not None:
            self.login.check(reply)


def _refuses(received: bytes) -> bool:
    return received.startswith(replies.TOO_MANY_CONNECTIONS)
