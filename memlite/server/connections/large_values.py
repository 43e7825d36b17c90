"""Reads large values directly into the memory in which their items will be stored."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from memlite.core.clock import Clock
from memlite.protocol import TextParser
from memlite.server.execution.dialects import Parser
from memlite.telemetry.counters import Counters

__all__ = ["LargeValues", "Receiving"]

# Below this many bytes, two copies cost less than switching the transport's protocol and back.
_LEAST: Final = 64 * 1024
# The most bytes of memory allocated for values that have not arrived. This bounds the cost of
# clients that announce values and never send them.
_MAX_PROMISED: Final = 64 * 1024 * 1024


class Receiving(Protocol):
    """A connection that is receiving a large value."""

    last_command: int
    parser: Parser

    def connection_lost(self, exc: Exception | None) -> None: ...  # noqa: D102 - of asyncio
    def eof_received(self) -> bool: ...  # noqa: D102
    def pause_writing(self) -> None: ...  # noqa: D102
    def resume_writing(self) -> None: ...  # noqa: D102


class LargeValues:
    """Replaces a connection as its transport's protocol for the rest of a large value.

    Otherwise the transport delivers a copy of each piece, and joining the pieces copies them again:
    for a value of a megabyte, a tenth of the CPU time.

    Args:
        counters: count the bytes read.
        clock: provides the time of the last activity.
        when_there_is_room: calls a function once the table has room (`Sweeper`).

    Attributes:
        promised: bytes allocated for values that have not fully arrived.
    """

    def __init__(
        self,
        counters: Counters,
        clock: Clock,
        when_there_is_room: Callable[[Callable[[], None]], None],
    ) -> None:
        self.counters = counters
        self.clock = clock
        self.when_there_is_room = when_there_is_room
        self.promised = 0

    def receive(self, connection: Receiving, transport: asyncio.Transport) -> None:
        """Read the rest of a connection's value, if that is worthwhile.

        It is not worthwhile with TLS, where decryption produces pieces anyway.
        """
        parser = connection.parser
        if not isinstance(parser, TextParser):
            return
        missing = parser.missing_of_large
        if (
            missing >= _LEAST
            and self.promised + missing <= _MAX_PROMISED
            and not transport.is_closing()
            and transport.get_extra_info("sslcontext") is None
        ):
            self.promised += missing
            _switch_protocol(
                transport, _ValueReceiver(self, connection, transport, parser.reserve())
            )


def _switch_protocol(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    transport.pause_reading()  # uvloop inspects the protocol only when it starts to read
    transport.set_protocol(protocol)
    transport.resume_reading()


class _ValueReceiver(asyncio.BufferedProtocol):
    """Reads a value up to its line ending, which is left to the connection.

    Args:
        shared: the state shared by all receivers of a server.
        connection: the connection it stands in for.
        transport: the connection's transport.
        memory: the memory to read into.
    """

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
        self._memory = memory  # the part not yet filled
        self._promised = len(memory)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory to read into."""
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        """Return the transport to the connection once the value is complete.

        The connection resumes reading when the table has room. Items displaced by a large value are
        evicted in steps (`ItemTable.over`). If the next value did not wait for that, storing it
        would have to evict them all at once, which takes 10 ms if they are small.
        """
        shared = self._shared
        shared.counters.bytes_read += nbytes
        self._connection.last_command = shared.clock.second
        self._memory = self._memory[nbytes:]
        if not self._memory:
            self._transport.pause_reading()
            self._transport.set_protocol(cast("asyncio.Protocol", self._connection))
            shared.when_there_is_room(self._resume_reading)

    def _resume_reading(self) -> None:
        self._release()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Notify the connection."""
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        """Notify the connection, which may be sending replies to earlier commands."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Notify the connection."""
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the memory and notify the connection."""
        self._release()
        self._connection.connection_lost(exc)

    def _release(self) -> None:
        self._shared.promised -= self._promised
        self._promised = 0
        self._memory = memoryview(b"")
