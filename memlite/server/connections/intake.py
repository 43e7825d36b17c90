"""Bounds the input that has been read from clients but not yet carried out."""

import asyncio
from typing import Final, cast

from memlite.server.connections.part_reader import part_reader

__all__ = ["FULL_READ", "Intake"]

FULL_READ: Final = 16 * 1024
"""The most bytes to read at a time from a client that sends faster than it is served.

memcached reads as much (``READ_BUFFER_SIZE``); uvloop reads up to 256 KB.
"""
_SMALL_READ: Final = 2 * 1024
# The input held for all clients together, in bytes, above which smaller reads are made.
_PLENTY: Final = 4 * 1024 * 1024


class Intake:
    """Counts the input that is held, and reads less at a time from clients that flood the server.

    A connection that has used its share of commands yields to others, and holds the rest of its
    input in the meantime. If a hundred clients send without a pause, that would be tens of
    megabytes, at the expense of items. Input that is not read stays in the kernel, which slows the
    client down.

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
        part_reader(socket, self.buffer).slow_down()

    def buffer(self) -> memoryview:
        """Return the memory for one read, which all connections share."""
        return self._buffer if self.held < _PLENTY else self._buffer[:_SMALL_READ]
