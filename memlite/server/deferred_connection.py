"""A client's connection to a server whose backend must be asked."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from memlite.engine.store import StoreEngine
from memlite.server.connection import Connection
from memlite.server.deferred import Deferred
from memlite.server.dialects import Dialect

if TYPE_CHECKING:
    from memlite.server.server import Server

__all__ = ["DeferredConnection"]


class DeferredConnection(Connection):
    """A connection whose commands may have to wait for the backend."""

    __slots__ = ("_engine", "_hit")

    commands: Deferred[Any]  # which has the methods of its protocol's handler
    _engine: StoreEngine
    _hit: Callable[[bytes], bytes | None]

    def __init__(self, server: "Server", engine: StoreEngine) -> None:
        self._engine = engine
        super().__init__(server)

    def _begin(self, dialect: Dialect) -> None:
        self.parser = dialect.parser(self._server.limits)
        self.commands = dialect.deferred(self._server, self._engine, self)
        self._hit = self.commands.straight_hit

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind but what has begun."""
        self.commands.detach()
        self._hit = cast("Any", None)  # the commands' method; see there
        super().connection_lost(exc)

    def idle_since(self, second: int) -> bool:
        """Return the same; who waits for the backend is not idle."""
        return super().idle_since(second) and not self.waiting

    @property
    def waiting(self) -> bool:
        """Whether replies are still to come."""
        return self.commands.pending

    @property
    def pipelined(self) -> bool:
        """Whether replies to earlier commands are to be sent, or were while this one waited.

        Also that of one who has gone meanwhile.
        """
        return self._transport.is_closing() or self.commands.behind or super().pipelined

    def data_received(self, data: bytes) -> None:
        """Serve what has arrived, unless something before it still waits."""
        counters = self._counters
        size = len(data)
        counters.bytes_read += size
        left = self._server.until_sample - 1
        if left > 0 and size <= self._straight:
            hit = self._hit
            reply = hit(data)
            if reply is not None:
                self._server.until_sample = left
                counters.bytes_written += len(reply)
                self.last_command = self._clock.second
                self._write(reply)
                return
        if self._stalled:
            self._hold(data)
        else:
            self._serve(data)

    def _serve(self, data: bytes, due: bool = False) -> None:
        if self.commands.ended:
            return
        super()._serve(data, due)
        commands = self.commands  # others, if the first byte told of another protocol
        commands.timed = False  # or the reads that are not to be measured were, too
        if commands.full:
            self._stall()

    def _go_on(self) -> None:
        if not self._transport.is_closing() and self.commands.full:
            return  # settle comes back to it
        super()._go_on()

    def settle(self) -> None:
        """Send replies that have become ready, and go on if there is room again."""
        if self._transport.is_closing():
            return
        self.last_command = self._clock.second
        out = self.out
        if len(out) == 1 and not self._unsent:
            reply = out.pop()
            self._counters.bytes_written += len(reply)
            self._transport.write(reply)
        elif out:
            self._flush()
        if self._stalled:
            if not self._turn_due:  # one turn at a time, or others would not get theirs
                self._go_on()
        elif self._eof and not self.waiting:
            self.close()
