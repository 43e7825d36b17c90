"""TLS connections: a transport for `Connection` on top of one for the socket.

asyncio and uvloop have one of their own. It tells nobody of handshakes that fail or how many are
under way, ends those without the alert that says why, cannot be half-closed, and takes 50 KB
(asyncio: 300) for each connection; this one is the same on both loops.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from memlite.protocol import replies
from memlite.server.sockets import address_label

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.server import Server

__all__ = ["HANDSHAKE_SECONDS", "TlsTransport"]

HANDSHAKE_SECONDS = 10.0
"""How long a client may take for its handshake."""

# What OpenSSL hands out at a time is no more than a record.
_RECORD_BYTES = 16 * 1024

_log = logging.getLogger("memlite")


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket's transport, and a transport itself once both sides have agreed.

    Args:
        server: what all connections share.
        context: what clients are shown and asked for.
        connect: makes the connection that is served when the handshake is over.

    Attributes:
        last_command: unix second at which it was accepted.
        state: what it is doing until then, in memcached's words.
    """

    __slots__ = (
        "_closing", "_connect", "_connection", "_context", "_deadline", "_ended", "_incoming",
        "_outgoing", "_paused", "_server", "_session", "_socket", "last_command",
    )  # fmt: skip

    state = "conn_read"

    _socket: asyncio.Transport
    _session: ssl.SSLObject

    def __init__(
        self, server: "Server", context: ssl.SSLContext, connect: "Callable[[], Connection]"
    ) -> None:
        self._server = server
        self._context = context
        self._connect = connect
        self._connection: Connection | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._deadline: asyncio.TimerHandle | None = None
        self._paused = False  # the connection takes no more for now
        self._ended = False  # the peer has said that it sends no more
        self._closing = False
        self.last_command = server.clock.second

    # What stats conns shows while it is not a `Connection`'s

    @property
    def number(self) -> int:
        """The socket's file descriptor."""
        return int(self._socket.get_extra_info("socket").fileno())

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._address("peername")

    @property
    def listener(self) -> str:
        """The address it connected to."""
        return self._address("sockname")

    def _address(self, name: str) -> str:
        family = self._socket.get_extra_info("socket").family
        return address_label(family, self._socket.get_extra_info(name))

    # asyncio.Protocol, towards the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client to begin, or turn it away when there are too many."""
        self._socket = cast("asyncio.Transport", transport)
        server = self._server
        if not server.make_room():
            self._closing = True
            self._socket.write(replies.TOO_MANY_CONNECTIONS)  # unencrypted, as memcached does
            self._socket.close()
            return
        server.handshakes[self] = None
        self._deadline = server.loop.call_later(HANDSHAKE_SECONDS, self.give_up, "took too long")

    def data_received(self, data: bytes) -> None:
        """Decrypt it."""
        self._incoming.write(data)
        if self._connection is not None or self._shake_hands():
            self._deliver()

    def eof_received(self) -> bool:
        """Go on while there is something left to be answered."""
        if self._connection is None:
            self.give_up("closed by the client")
            return False
        self._deliver()
        self._end()
        return not self._closing

    def pause_writing(self) -> None:
        """Tell the connection that the peer does not take its replies."""
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Tell the connection that it does again."""
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        if self._connection is None:
            self.give_up(exc or "closed by the client")
        else:
            self._closing = True
            self._connection.connection_lost(exc)
            self._connection = None

    # The handshake

    def _shake_hands(self) -> bool:
        """Go on with it as far as what has come allows; return whether it is over."""
        if self._closing:
            return False
        if not hasattr(self, "_session"):  # who never says a word costs next to nothing
            self._session = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            self._send()  # the alert
            self.give_up(error)
            return False
        self._send()
        self._leave()
        if not self._session.session_reused:
            self._server.counters.ssl_new_sessions += 1
        self._connection = connection = self._connect()
        connection.connection_made(self)
        return True

    def _leave(self) -> bool:
        """Be no longer among the handshakes; return whether it was."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        return self._server.handshakes.pop(self, self) is None

    def give_up(self, reason: object) -> None:
        """End the handshake, and count it as failed; nothing when it is over.

        Args:
            reason: for the log.
        """
        if self._leave():
            self._server.counters.ssl_handshake_errors += 1
            _log.info("<%d TLS handshake with %s failed: %s", self.number, self.peer, reason)
            self._closing = True
            self._socket.close()

    # Between

    def _deliver(self) -> None:
        """Hand what has come to the connection, as far as it is complete."""
        if self._paused or self._closing or self._connection is None:
            return
        incoming, session = self._incoming, self._session
        found = []
        ended = False
        try:
            while incoming.pending or session.pending():
                data = session.read(_RECORD_BYTES)
                if not data:
                    ended = True
                    break
                found.append(data)
        except ssl.SSLWantReadError:  # the rest of a record is still to come
            pass
        except ssl.SSLError as error:
            self._break_off(error)
            return
        if found:
            self._connection.data_received(found[0] if len(found) == 1 else b"".join(found))
        if self._outgoing.pending:  # what TLS itself answers
            self._send()
        if ended:
            self._end()

    def _send(self) -> None:
        data = self._outgoing.read()
        if data:
            self._socket.write(data)

    def _break_off(self, error: ssl.SSLError) -> None:
        self._server.counters.ssl_proto_errors += 1
        _log.info("<%d TLS connection with %s broken off: %s", self.number, self.peer, error)
        self._closing = True
        self._send()  # the alert
        self._socket.close()

    def _end(self) -> None:
        """Tell the connection that the peer sends no more."""
        if self._ended or self._closing or self._connection is None:
            return
        self._ended = True
        if self._connection.eof_received():
            self._socket.pause_reading()  # what comes now is nobody's
        else:
            self.close()

    # asyncio.Transport, for the connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send it."""
        if self._closing or not data:
            return
        try:
            self._session.write(data)
        except ssl.SSLError as error:
            self._break_off(error)
        else:
            self._socket.write(self._outgoing.read())

    def pause_reading(self) -> None:
        """Deliver nothing for now; what is on its way stays encrypted."""
        self._paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Deliver again."""
        self._paused = False
        if self._incoming.pending or self._session.pending():
            self._server.loop.call_soon(self._deliver)
        self._socket.resume_reading()

    def close(self) -> None:
        """Close once everything is sent. The peer is told, and its answer not waited for."""
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(ssl.SSLError):  # the answer is missing
            self._session.unwrap()
        self._send()
        self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether it is, or the socket's transport."""
        return self._closing or self._socket.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the peer has not taken."""
        return self._socket.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Return False: nobody needs it."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket's transport knows, and which settings of TLS it has."""
        if name == "sslcontext":
            return self._context
        return self._socket.get_extra_info(name, default)
