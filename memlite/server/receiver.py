"""Large values, read straight into the memory where their items are going to have them."""

import asyncio
from typing import TYPE_CHECKING, Final

from memlite.protocol import TextParser

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.server import Server

__all__ = ["ValueReceiver", "receive_value"]

# Bytes below which two copies cost less than to change the protocol and back.
_LEAST: Final = 64 * 1024
# Bytes for which memory may be taken before they are there, so that promises cost a server no more.
_MOST_PROMISED: Final = 64 * 1024 * 1024


def receive_value(server: "Server", connection: "Connection", transport: asyncio.Transport) -> None:
    """Put a `ValueReceiver` in a connection's place if that is worth it.

    It is for what is missing of a large value. A transport hands it over in copies, piece by piece,
    and when all are there they are copied once more: for a megabyte, a tenth of the processor's
    time. With TLS pieces are what is decrypted.
    """
    parser = connection.parser
    if not isinstance(parser, TextParser):
        return
    missing = parser.missing_of_large
    if (
        missing >= _LEAST
        and server.promised + missing <= _MOST_PROMISED
        and not transport.is_closing()
        and transport.get_extra_info("sslcontext") is None
    ):
        server.promised += missing
        _exchange(transport, ValueReceiver(server, connection, transport, parser.reserve()))


def _exchange(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    transport.pause_reading()  # as uvloop's looks at its protocol when it begins to read
    transport.set_protocol(protocol)
    transport.resume_reading()


class ValueReceiver(asyncio.BufferedProtocol):
    """Reads a value but for its line's end, which is the connection's again, as is all else.

    Args:
        server: whose connection it is.
        connection: in whose place it is.
        transport: the connection's.
        memory: where the value goes.
    """

    def __init__(
        self,
        server: "Server",
        connection: "Connection",
        transport: asyncio.Transport,
        memory: memoryview,
    ) -> None:
        self._server = server
        self._connection = connection
        self._transport = transport
        self._memory = memory  # what is not yet filled of it
        self._promised = len(memory)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to."""
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        """Make way for the connection when all of the value is there.

        It reads on when there is room. What a large value displaces goes in steps
        (`ItemTable.over`), and if the next did not wait for that, its store would have to make room
        at once: 10 ms for as many bytes of small items.
        """
        server = self._server
        server.counters.bytes_read += nbytes
        self._connection.last_command = server.clock.second
        self._memory = self._memory[nbytes:]
        if not self._memory:
            self._transport.pause_reading()
            self._transport.set_protocol(self._connection)
            server.sweeper.when_there_is_room(self._read_on)

    def _read_on(self) -> None:
        self._end()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Leave it to the connection."""
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        """Leave it to the connection: there may be replies to what came before."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Leave it to the connection."""
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        self._end()
        self._connection.connection_lost(exc)

    def _end(self) -> None:
        self._server.promised -= self._promised
        self._promised = 0
        self._memory = memoryview(b"")
