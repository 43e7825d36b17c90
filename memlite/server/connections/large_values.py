"""Reads large values directly into memory of their own, which some items keep."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from memlite.core.clock import Clock
from memlite.server.connections.part_reader import part_reader
from memlite.server.execution.dialects import Parser
from memlite.telemetry.counters import Counters

__all__ = ["LargeValues", "Receiving"]

# Below this many bytes, two copies cost less than replacing the transport's protocol.
_LEAST: Final = 64 * 1024
# The most bytes of memory allocated for values that have not arrived. This bounds the cost of
# clients that announce values and never send them.
_MAX_PROMISED: Final = 64 * 1024 * 1024


class Receiving(Protocol):
    """A connection that is receiving a large value."""

    last_command: int
    parser: Parser


class LargeValues:
    """Lets a connection's transport read the rest of a large value into memory of its own.

    Otherwise the transport delivers a copy of each piece, and joining the pieces copies them again:
    for a value of a megabyte, a tenth of the CPU time.

    Args:
        counters: count the bytes read.
        clock: provides the time of the last activity.
        when_there_is_room: calls a function once the table has room (`Sweeper`).
        buffer: returns the memory for other input (`Intake`).

    Attributes:
        promised: bytes allocated for values that have not fully arrived.
    """

    def __init__(
        self,
        counters: Counters,
        clock: Clock,
        when_there_is_room: Callable[[Callable[[], None]], None],
        buffer: Callable[[], memoryview],
    ) -> None:
        self.counters = counters
        self.clock = clock
        self.when_there_is_room = when_there_is_room
        self.buffer = buffer
        self.promised = 0

    def receive(self, connection: Receiving, transport: asyncio.Transport) -> None:
        """Read the rest of a connection's value, if that is worthwhile.

        It is not worthwhile with TLS, where decryption produces pieces anyway.
        """
        parser: Any = connection.parser
        missing: int = getattr(parser, "missing_of_large", 0)
        if (
            missing >= _LEAST
            and self.promised + missing <= _MAX_PROMISED
            and not transport.is_closing()
            and transport.get_extra_info("sslcontext") is None
        ):
            memory = parser.reserve()
            self.promised += missing
            reader = part_reader(transport, self.buffer)
            reader.read_into(_Value(self, connection, transport, memory))


class _Value:
    """Takes in a value up to its line ending, which is left to the connection.

    Args:
        shared: the state shared by all values of a server.
        connection: the connection that receives it.
        transport: the connection's transport.
        memory: the memory to read into.

    Attributes:
        memory: the part not yet filled.
    """

    __slots__ = ("_connection", "_promised", "_shared", "_transport", "memory")

    def __init__(
        self,
        shared: LargeValues,
        connection: Receiving,
        transport: asyncio.Transport,
        memory: memoryview,
    ) -> None:
        self._shared = shared
        self._connection = connection
        self._transport = transport
        self.memory = memory
        self._promised = len(memory)

    def filled(self, nbytes: int) -> bool:
        """Take note that the next bytes have been read; return whether the value is complete.

        Once it is, the connection resumes reading when the table has room. Items displaced by a
        large value are evicted in steps (`ItemTable.over`). If the next value did not wait for
        that, storing it would have to evict them all at once, which takes 10 ms if they are small.
        """
        shared = self._shared
        shared.counters.bytes_read += nbytes
        self._connection.last_command = shared.clock.second
        self.memory = self.memory[nbytes:]
        if self.memory:
            return False
        shared.when_there_is_room(self._resume_reading)
        if self._promised:  # there is none yet
            self._transport.pause_reading()
        return True

    def _resume_reading(self) -> None:
        self.lost()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def lost(self) -> None:
        """Release the memory."""
        self._shared.promised -= self._promised
        self._promised = 0
        self.memory = memoryview(b"")
