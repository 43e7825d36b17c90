"""Bounds the input that has been read from clients but not yet carried out."""

import asyncio
from typing import Final, cast

__all__ = ["FULL_READ", "Intake"]

FULL_READ: Final = 16 * 1024
"""The most bytes to read at a time from a client that sends faster than it is served.

memcached reads as much (``READ_BUFFER_SIZE``); uvloop reads up to 256 KB.
"""
_SMALL_READ: Final = 2 * 1024
# The input held for all clients together, in bytes, above which smaller reads are made.
_PLENTY: Final = 4 * 1024 * 1024
# After so many reads in a row that are carried out at once, a client counts as calm. A single one
# tells little: the kernel often passes on a small part first.
_CALM_READS: Final = 8


class Intake:
    """Counts the input that is held, and reads less at a time from clients that flood the server.

    A connection yields to others when it has used its share of commands, and holds the rest of its
    input meanwhile. If a hundred clients send without a pause, that would be tens of megabytes, at
    the expense of items. Input that is not read stays in the kernel, which slows the client down.

    Attributes:
        held: bytes that connections hold until their commands are carried out.
    """

    def __init__(self) -> None:
        self.held = 0
        self._buffer = memoryview(bytearray(FULL_READ))

    def slow_down(self, transport: asyncio.Transport) -> None:
        """Stop reading; when the connection resumes, read less at a time.

        Lasts until the client sends no more than can be carried out.
        """
        transport.pause_reading()
        socket = cast("asyncio.Transport", transport.get_extra_info("socket_transport", transport))
        protocol = socket.get_protocol()
        if not isinstance(protocol, _SmallReads):
            socket.set_protocol(_SmallReads(self, socket, cast("asyncio.Protocol", protocol)))

    def buffer(self) -> memoryview:
        """Return the memory for one read, which all connections share."""
        return self._buffer if self.held < _PLENTY else self._buffer[:_SMALL_READ]


class _SmallReads(asyncio.BufferedProtocol):
    """Stands in for a transport's protocol and passes it the input in small parts.

    Args:
        intake: provides the memory to read into.
        transport: the transport.
        protocol: the protocol it stands in for.
    """

    def __init__(
        self, intake: Intake, transport: asyncio.Transport, protocol: asyncio.Protocol
    ) -> None:
        self._intake = intake
        self._transport = transport
        self._protocol = protocol
        self._memory = memoryview(b"")
        self._calm_reads = 0  # in a row

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into."""
        self._memory = self._intake.buffer()
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the input; return the transport if the client has calmed down."""
        full = nbytes == len(self._memory)
        self._protocol.data_received(bytes(self._memory[:nbytes]))
        transport = self._transport
        if full or not transport.is_reading():
            self._calm_reads = 0
            return
        self._calm_reads += 1
        if self._calm_reads < _CALM_READS or transport.get_protocol() is not self:
            return
        transport.pause_reading()  # uvloop inspects the protocol only when it starts to read
        transport.set_protocol(self._protocol)
        transport.resume_reading()

    def eof_received(self) -> bool | None:
        """Notify the protocol."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Notify the protocol."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Notify the protocol."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the protocol."""
        self._protocol.connection_lost(exc)
