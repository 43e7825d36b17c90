"""Reads input in small parts, and the rest of a large value directly into its memory."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

__all__ = ["Destination", "PartReader", "part_reader"]

# After this many reads in a row that do not fill the memory, a client counts as calm. A single one
# tells little: the kernel often passes on a small part first.
_CALM_READS: Final = 8
# Reading the beginning of the next value in a small part saves copies if the value is as long as
# the last one, and that one filled at least this many bytes of its destination. Otherwise the
# transport reads faster by itself, up to 256 KiB at a time: then the first value lacks less.
_WORTHWHILE: Final = 320 * 1024
_WORTHWHILE_AT_FIRST: Final = 128 * 1024


class Destination(Protocol):
    """Memory that input is read into directly.

    Attributes:
        memory: the part not yet filled.
    """

    memory: memoryview

    def filled(self, nbytes: int) -> bool:
        """Take note that the next bytes have been read; return whether the memory is full."""
        ...

    def lost(self) -> None:
        """Take note that the connection was lost before the memory was full."""
        ...


class PartReader(asyncio.BufferedProtocol):
    """Stands in for a transport's protocol while its client sends long values or too much.

    Args:
        buffer: returns the memory for the next read, which may be shared.
        transport: the transport.
        protocol: the protocol it stands in for.
    """

    def __init__(
        self,
        buffer: Callable[[], memoryview],
        transport: asyncio.Transport,
        protocol: asyncio.Protocol,
    ) -> None:
        self._buffer = buffer
        self._transport = transport
        self._protocol = protocol
        self._memory = memoryview(b"")
        self._destination: Destination | None = None
        self._size = 0  # of the destination
        self._worthwhile = _WORTHWHILE_AT_FIRST
        self._slow = False  # whether the client is to be slowed down
        self._calm_reads = 0  # in a row

    def read_into(self, destination: Destination) -> None:
        """Read the next input directly into `destination` until it is full."""
        self._destination = destination
        self._size = len(destination.memory)

    def slow_down(self) -> None:
        """Read in small parts until the client sends no more than can be carried out."""
        self._slow = True

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into."""
        destination = self._destination
        if destination is not None:
            return destination.memory
        self._memory = memory = self._buffer()
        return memory

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the input; return the transport if reading in parts no longer helps."""
        destination = self._destination
        if destination is not None:
            if destination.filled(nbytes):
                self._destination = None
                if self._size < self._worthwhile and not self._slow:
                    self._return()
                self._worthwhile = _WORTHWHILE
            return
        full = nbytes == len(self._memory)
        self._protocol.data_received(bytes(self._memory[:nbytes]))
        transport = self._transport
        if self._destination is not None or not transport.is_reading() or (full and self._slow):
            self._calm_reads = 0
            return
        self._calm_reads += 1
        if (
            full or self._calm_reads >= _CALM_READS
        ):  # full: the client sends more, but no long value
            self._return()

    def _return(self) -> None:
        """Return the transport to the protocol."""
        if self._transport.get_protocol() is self:
            _switch_protocol(self._transport, self._protocol)

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
        """Notify the destination and the protocol."""
        if self._destination is not None:
            self._destination.lost()
            self._destination = None
        self._protocol.connection_lost(exc)


def part_reader(transport: asyncio.Transport, buffer: Callable[[], memoryview]) -> PartReader:
    """Return the reader of a transport, and put it in its protocol's place if there is none.

    The reader returns the transport to that protocol once the client has calmed down.

    Args:
        transport: the transport; it need not be reading, and is left as it is.
        buffer: returns the memory for the next read, which may be shared.
    """
    protocol = transport.get_protocol()
    if not isinstance(protocol, PartReader):
        protocol = PartReader(buffer, transport, cast("asyncio.Protocol", protocol))
        _switch_protocol(transport, protocol)
    return protocol


def _switch_protocol(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    if not transport.is_reading():
        transport.set_protocol(protocol)
        return
    transport.pause_reading()  # uvloop inspects the protocol only when it starts to read
    transport.set_protocol(protocol)
    transport.resume_reading()
