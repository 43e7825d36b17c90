"""TLS connections from being accepted to being agreed on; then a `Connection` goes on with them."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from memlite.protocol import replies
from memlite.server.sockets import Listener, address_label
from memlite.server.tls import Tls

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.server import Server

__all__ = ["HANDSHAKE_SECONDS", "Acceptor", "Handshake"]

HANDSHAKE_SECONDS = 10.0
"""How long a client may take for its handshake."""

_SHUTDOWN_SECONDS = 2.0
# Above so many unsent bytes a connection is told to wait, as it is without TLS.
_UNSENT_BYTES = 64 * 1024
_PAUSE_SECONDS = 1.0

_log = logging.getLogger("memlite")


class Acceptor:
    """Accepts a listener's connections, in place of an `asyncio.Server`.

    That one tells nobody of a handshake that fails, nor counts one that goes on, nor changes its
    certificate.

    Args:
        server: whose listener.
        listener: the bound socket.
        tls: what connections are made with.
        connect: makes the protocol of one that is agreed on.
    """

    def __init__(
        self, server: "Server", listener: Listener, tls: Tls, connect: "Callable[[], Connection]"
    ) -> None:
        self._server = server
        self._listener = listener
        self._tls = tls
        self._connect = connect
        self._task = server.loop.create_task(self._accept())

    def close(self) -> None:
        """Accept no more; the socket may be closed one turn of the event loop later."""
        self._task.cancel()

    async def _accept(self) -> None:
        loop = self._server.loop
        while True:
            try:
                sock, _ = await loop.sock_accept(self._listener.sock)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                loop.call_exception_handler({"message": "accept() failed", "exception": error})
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._begin(sock)
            # While there are more, asyncio's loop returns them at once: let others have a turn.
            await asyncio.sleep(0)

    def _begin(self, sock: socket.socket) -> None:
        server = self._server
        if not server.make_room():
            with sock, contextlib.suppress(OSError):
                sock.send(replies.TOO_MANY_CONNECTIONS)  # unencrypted, as memcached does
            return
        handshake = Handshake(server, sock, self._connect)
        server.handshakes[handshake] = None
        server.spawn(handshake.run(self._tls.context(self._listener.tls)))


class Handshake(asyncio.Protocol):
    """A connection the two sides of which have not agreed yet.

    Args:
        server: what all connections share.
        sock: the connection.
        connect: makes its protocol, once it is agreed on.

    Attributes:
        number: the socket's file descriptor.
        peer: the client's address.
        listener: the address it connected to.
        state: what it is doing, in memcached's words.
        last_command: unix second at which it was accepted.
    """

    state = "conn_read"

    def __init__(
        self, server: "Server", sock: socket.socket, connect: "Callable[[], Connection]"
    ) -> None:
        self._server = server
        self._sock = sock
        self._connect = connect
        self._agreed = False
        self.number = sock.fileno()
        self.peer = "tcp:?"
        with contextlib.suppress(OSError):  # gone already
            self.peer = address_label(sock.family, sock.getpeername())
        self.listener = address_label(sock.family, sock.getsockname())
        self.last_command = server.clock.second

    async def run(self, context: ssl.SSLContext) -> None:
        """Go through with it, and count it if it fails.

        Args:
            context: what it is made with.
        """
        server = self._server
        reason: BaseException | str = "closed"
        try:
            await server.loop.connect_accepted_socket(
                lambda: self,
                self._sock,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except OSError as error:
            reason = error
        if not self._agreed:
            server.handshakes.pop(self, None)
            server.counters.ssl_handshake_errors += 1
            _log.info("<%d TLS handshake with %s failed: %s", self.number, self.peer, reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Leave the rest to a `Connection`: the two sides have agreed."""
        server = self._server
        if server.handshakes.pop(self, self) is self:  # abandoned meanwhile
            cast("asyncio.Transport", transport).abort()
            return
        self._agreed = True
        if not transport.get_extra_info("ssl_object").session_reused:
            server.counters.ssl_new_sessions += 1
        made = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(_UNSENT_BYTES)
        connection = self._connect()
        made.set_protocol(connection)
        connection.connection_made(made)

    def abandon(self) -> None:
        """Give it up."""
        self._server.handshakes.pop(self, None)
        # Its transport takes this for the peer's doing, and fails; here and in every state.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
