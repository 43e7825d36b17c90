"""TLS connections: a transport for `Connection` on top of the socket's transport.

The TLS transports of asyncio and uvloop do not report handshakes in progress or failed ones, end
failed ones without a TLS alert, cannot be half-closed, and take 50 KB of memory per connection
(asyncio's: 300 KB). This one behaves the same on both loops.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from memlite.core.logs import failure
from memlite.protocol import replies
from memlite.server.connections.connection import Connection
from memlite.server.connections.listeners import address_label
from memlite.server.connections.register import Register
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import Counters

if TYPE_CHECKING:
    from memlite.telemetry.snapshot import SocketState

__all__ = ["HANDSHAKE_SECONDS", "TlsTransport"]

HANDSHAKE_SECONDS = 10.0
"""How long a client may take for its handshake, in seconds."""

# OpenSSL returns at most one record per read.
_RECORD_BYTES = 16 * 1024

_log = logging.getLogger("memlite")


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """The protocol of the socket's transport; after the handshake, a `Connection`'s transport.

    Args:
        context: the TLS settings.
        connect: creates the connection to be served after the handshake.
        register: tracks handshakes.
        counters: count handshakes and TLS errors.
        scheduler: schedules the handshake timeout.
        second: the current unix time, in whole seconds.

    Attributes:
        last_command: unix time at which the connection was accepted, in whole seconds.
        on_lost: called when it is closed; None for no callback.
        state: its activity during the handshake.
    """

    __slots__ = (
        "_closing", "_connect", "_connection", "_context", "_counters", "_deadline", "_ended",
        "_incoming", "_outgoing", "_paused", "_register", "_scheduler", "_session", "_socket",
        "last_command", "on_lost",
    )  # fmt: skip

    state: "SocketState" = "reading"

    _socket: asyncio.Transport
    _session: ssl.SSLObject

    def __init__(
        self,
        context: ssl.SSLContext,
        connect: Callable[[], Connection],
        *,
        register: Register,
        counters: Counters,
        scheduler: Scheduler,
        second: int,
    ) -> None:
        self._register = register
        self._counters = counters
        self._scheduler = scheduler
        self._context = context
        self._connect = connect
        self._connection: Connection | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._deadline: asyncio.TimerHandle | None = None
        self._paused = False  # whether the connection has paused reading
        self._ended = False  # whether the peer has half-closed the connection
        self._closing = False
        self.last_command = second
        self.on_lost: Callable[[], None] | None = None

    # Shown by stats conns during the handshake

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
        """The address the client connected to."""
        return self._address("sockname")

    def _address(self, name: str) -> str:
        family = self._socket.get_extra_info("socket").family
        return address_label(family, self._socket.get_extra_info(name))

    # asyncio.Protocol, towards the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's handshake, or reject the client if there are too many."""
        self._socket = cast("asyncio.Transport", transport)
        register = self._register
        if not register.make_room():
            self._closing = True
            self._socket.write(replies.TOO_MANY_CONNECTIONS)  # unencrypted, as memcached does
            self._socket.close()
            return
        register.handshakes[self] = None
        self._deadline = self._scheduler.call_later(
            HANDSHAKE_SECONDS, self.give_up, "took too long"
        )

    def data_received(self, data: bytes) -> None:
        """Decrypt `data`."""
        self._incoming.write(data)
        if self._connection is not None or self._advance_handshake():
            self._deliver()

    def eof_received(self) -> bool:
        """Stay open while commands have yet to be answered."""
        if self._connection is None:
            self.give_up("closed by the client")
            return False
        self._deliver()
        self._deliver_eof()
        return not self._closing

    def pause_writing(self) -> None:
        """Tell the connection that the peer has stopped reading."""
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Tell the connection that the peer is reading again."""
        if self._connection is not None:
            self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Abandon the handshake or notify the connection."""
        if self._connection is None:
            self.give_up(exc or "closed by the client")
        else:
            self._closing = True
            self._connection.connection_lost(exc)
            self._connection = None
        if self.on_lost is not None:
            self.on_lost()

    # The handshake

    def _advance_handshake(self) -> bool:
        """Continue with the input so far; return whether the handshake is complete."""
        if self._closing:
            return False
        if not hasattr(self, "_session"):  # created late: a silent client costs almost nothing
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
        self._leave_handshakes()
        if not self._session.session_reused:
            self._counters.ssl_new_sessions += 1
        self._connection = connection = self._connect()
        connection.connection_made(self)
        return True

    def _leave_handshakes(self) -> bool:
        """Remove this from the register's handshakes; return whether it was among them."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        return self._register.handshakes.pop(self, self) is None

    def give_up(self, reason: object) -> None:
        """Abandon the handshake and count it as failed; do nothing if it is complete.

        Args:
            reason: why, for the log.
        """
        if self._leave_handshakes():
            self._counters.ssl_handshake_errors += 1
            _log.info(
                "<%d TLS handshake with %s failed: %s",
                self.number,
                self.peer,
                reason,
                extra=failure("tls_handshake_failed", client=self.peer),
            )
            self._closing = True
            self._socket.close()

    # Between the socket and the connection

    def _deliver(self) -> None:
        """Decrypt complete records and pass them to the connection."""
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
        except ssl.SSLWantReadError:  # the last record is incomplete
            pass
        except ssl.SSLError as error:
            self._fail(error)
            return
        if found:
            self._connection.data_received(found[0] if len(found) == 1 else b"".join(found))
        if self._outgoing.pending:  # protocol messages of TLS itself
            self._send()
        if ended:
            self._deliver_eof()

    def _send(self) -> None:
        data = self._outgoing.read()
        if data:
            self._socket.write(data)

    def _fail(self, error: ssl.SSLError) -> None:
        self._counters.ssl_proto_errors += 1
        _log.info(
            "<%d TLS connection with %s failed: %s",
            self.number,
            self.peer,
            error,
            extra=failure("tls_failed", client=self.peer),
        )
        self._closing = True
        self._send()  # the alert
        self._socket.close()

    def _deliver_eof(self) -> None:
        """Tell the connection that the peer has half-closed it."""
        if self._ended or self._closing or self._connection is None:
            return
        self._ended = True
        if self._connection.eof_received():
            self._socket.pause_reading()  # further input would be discarded
        else:
            self.close()

    # asyncio.Transport, for the connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send `data`."""
        if self._closing or not data:
            return
        try:
            self._session.write(data)
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._socket.write(self._outgoing.read())

    def pause_reading(self) -> None:
        """Stop delivering input; input that has arrived stays encrypted."""
        self._paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Deliver input again."""
        self._paused = False
        if self._incoming.pending or self._session.pending():
            self._scheduler.call_soon(self._deliver)
        self._socket.resume_reading()

    def close(self) -> None:
        """Close once everything is sent, with a close_notify that the peer need not answer."""
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(ssl.SSLError):  # raised because the peer has not answered
            self._session.unwrap()
        self._send()
        self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._socket.abort()

    def is_closing(self) -> bool:
        """Return whether this or the socket's transport is closing."""
        return self._closing or self._socket.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes not yet sent to the peer."""
        return self._socket.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Return False: half-closing from this side is not supported."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the socket's transport, that transport, or the TLS context."""
        if name == "sslcontext":
            return self._context
        if name == "socket_transport":
            return self._socket
        return self._socket.get_extra_info(name, default)
