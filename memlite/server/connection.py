"""One client's connection: bytes from the transport to the parser, and replies back."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from memlite.backends import Item, ItemTable, Part
from memlite.backends.usage import MASK
from memlite.errors import ProtocolViolation
from memlite.protocol import replies
from memlite.protocol.limits import LONGEST_GET
from memlite.server.dialects import Dialect, Negotiator, Parser
from memlite.server.receiver import receive_value
from memlite.server.sockets import address_label, endpoint
from memlite.server.streams import Stream

if TYPE_CHECKING:
    from memlite.server.server import Server

__all__ = ["Connection"]

_log = logging.getLogger("memlite")

# Replies of one read are joined into one write up to this size. Larger ones go out in pieces of it,
# and no further than the peer takes them: a get of a thousand large keys must not be copied whole.
_JOIN_AT_MOST: Final = 64 * 1024
# Of `Connection._straight`: no read is as short.
_NOTHING: Final = -1


class Connection(asyncio.Protocol):
    """Serves commands as they arrive, synchronously, with one write per read.

    Stops reading while the peer does not take its replies, and takes turns with other
    connections after `Limits.commands_per_read` commands.

    Args:
        server: what all connections share.

    Attributes:
        authenticated: whether the client may use the server.
        dialect: the protocol it speaks.
        last_command: unix second at which the peer last sent something, to a second.
        out: replies that are not yet written.
        parser: finds commands in what arrives.
        commands: the handler of its commands.
        close_reason: why it is closed, in memcached's words.
    """

    __slots__ = (
        "_clock", "_closing", "_counters", "_eof", "_held", "_look_closer", "_server", "_stalled",
        "_straight", "_stream", "_table", "_transport", "_turn_due", "_unsent", "_used", "_write",
        "_write_paused", "authenticated", "close_reason", "commands", "dialect", "last_command",
        "out", "parser",
    )  # fmt: skip

    _table: ItemTable
    _used: list[int]
    _look_closer: Callable[[Item], bool]
    _transport: asyncio.Transport
    _write: Callable[[Part], None]
    parser: Parser
    can_wait = True  # for an answer that takes a while
    commands: Any  # the protocol's handler; of the text protocol a `Handler`

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._counters = server.counters
        self._clock = server.clock
        self.out: list[Part] = []
        self.authenticated = server.auth is None
        self.speak(server.dialect)
        if server.negotiates:
            self.parser = Negotiator(self, server)
        self._stalled = False  # commands wait for their turn, or for the peer to take replies
        self._turn_due = False  # whether `_take_turn` is to be called
        self._write_paused = False
        self._held = b""  # what arrived meanwhile
        self._eof = False
        self._unsent: deque[Part] | None = None  # replies the peer is too slow for
        self._closing = False  # to close when those are out
        self._stream: Stream | None = None  # what it is instead of serving commands
        self.close_reason = "normal"
        self.last_command = server.clock.second
        self._rejoin()

    def speak(self, dialect: Dialect) -> None:
        """Take what arrives from now on for a protocol's, behind its gate until it has opened."""
        self.dialect = dialect
        self._straight = _NOTHING  # until a read has been served so
        self._begin(dialect)
        auth = self._server.auth
        if auth is not None and not self.authenticated:
            limits = self._server.limits
            self.parser = auth.gate(self, dialect.login(limits), limits.commands_per_read)

    def _begin(self, dialect: Dialect) -> None:
        server = self._server
        self.parser = dialect.parser(server.limits)
        self.commands = dialect.commands(server.engine, server, self, self.out)
        self._table, self._used = server.table, server.engine.usage.straight
        self._look_closer = server.look_closer

    def let_in(self, data: bytes) -> bool:
        """Serve the client, who has authenticated.

        Args:
            data: what came behind that.

        Returns:
            What `Parser.receive` does.
        """
        self.authenticated = True
        self.speak(self.dialect)
        return self.parser.receive(data, self._server.instrument(self))

    # What stats conns shows

    @property
    def number(self) -> int:
        """The socket's file descriptor, -1 once closed."""
        sock = self._transport.get_extra_info("socket")
        return int(sock.fileno()) if sock is not None else -1

    @property
    def peer(self) -> str:
        """The client's address."""
        sock = self._transport.get_extra_info("socket")
        name = self._transport.get_extra_info("peername")
        return address_label(sock.family, name)

    @property
    def host(self) -> str:
        """The client's host alone; the same for all on a UNIX socket."""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else "unix"

    @property
    def endpoint(self) -> tuple[str, int, str]:
        """The client's address, port and transport, in the words of ``watch connevents``."""
        sock = self._transport.get_extra_info("socket")
        return endpoint(sock.family, self._transport.get_extra_info("peername"))

    @property
    def listener(self) -> str:
        """The address it connected to."""
        sock = self._transport.get_extra_info("socket")
        return address_label(sock.family, self._transport.get_extra_info("sockname"))

    @property
    def state(self) -> str:
        """What it is doing, in memcached's words."""
        if self.parser.in_value:
            return "conn_nread"
        if self._stream is not None:
            return "conn_watch"
        if self._write_paused:
            return "conn_mwrite"
        return "conn_read"

    @property
    def busy(self) -> bool:
        """Whether a command is half received, or replies are not out; never before it is let in."""
        if self._endless or not self.authenticated:
            return False
        return (
            self._stalled
            or self.waiting
            or self.parser.in_command
            or self._transport.get_write_buffer_size() > 0
        )

    def idle_since(self, second: int) -> bool:
        """Return whether nothing has happened since before `second`; never of a stream."""
        return self.last_command < second and self._stream is None

    @property
    def pipelined(self) -> bool:
        """Whether replies to commands before the one that runs now are still to be sent."""
        return bool(self.out)

    @property
    def _endless(self) -> bool:
        return self._stream is not None and self._stream.endless

    @property
    def waiting(self) -> bool:
        """Whether replies are still to come; the memory engine's come at once."""
        return False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take part, or be turned away when there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write
        if not self._server.admit(self):
            self._transport.write(replies.TOO_MANY_CONNECTIONS)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        if exc is not None:
            self.close_reason = "error"
        self._server.dismiss(self)
        if self._stream is not None:
            self._stream.lost()
            self._stream = None
        self._held = b""
        self.out.clear()
        self._unsent = None
        # Half a value may be large, and the collector that would find these two is in no hurry:
        # the commands refer to the connection, which refers to them.
        self.parser = self.commands = cast("Any", None)

    def data_received(self, data: bytes) -> None:
        """Serve what has arrived, unless something before it still waits."""
        counters = self._counters
        size = len(data)
        counters.bytes_read += size
        # The straight path, for the most frequent request by far and at a third of the parser's
        # cost: items are found by the whole line that asks for them. This is `MemoryEngine.hit`
        # written out, as a call is a tenth of what all this takes; and what is called is called by
        # way of locals, which is faster than as if it were a method.
        if size <= self._straight:
            asked = self._table.asked
            item = asked(data)
            if item is not None:
                left = counters.until_sample - 1
                state = self._used[item.state & MASK]
                if not left:
                    self._serve(data, due=True)
                    return
                if state or self._look_closer(item):
                    if state:
                        item.state = state
                    counters.until_sample = left
                    reply = item.wire
                    counters.bytes_written += len(reply)
                    self.last_command = self._clock.second
                    write = self._write
                    write(reply)
                    return
        if self._stalled:
            self._hold(data)
        else:
            self._serve(data)

    def eof_received(self) -> bool:
        """Stay open while commands that came before the end are still to be answered."""
        self._eof = True
        return (self._stalled and not self._endless) or self.waiting

    def pause_writing(self) -> None:
        """Stop serving: the peer does not take its replies."""
        self._write_paused = True
        self._stall()
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on: the peer took its replies."""
        self._write_paused = False
        if not self._turn_due:
            self._go_on()

    # Being a stream

    def attach(self, stream: Stream) -> None:
        """Serve nothing more until `detach`: what is sent meanwhile is the stream's."""
        self._stream = stream
        self._stall()

    def detach(self) -> None:
        """Serve commands again, first those that came meanwhile."""
        self._stream = None
        self.last_command = self._clock.second
        if not self._turn_due:
            self._go_on()

    @property
    def writable(self) -> bool:
        """Whether the peer takes what is sent."""
        return not self._write_paused

    def send(self, data: bytes) -> None:
        """Send a stream's bytes; more than a few only while `writable`."""
        self._counters.bytes_written += len(data)
        self._transport.write(data)

    # Serving

    def _hold(self, data: bytes) -> None:
        """Keep what has arrived for later; a stream that has no end has no later."""
        self.last_command = self._clock.second
        if not self._endless:
            self._held += data  # little: what is not read is not delivered
            self._transport.pause_reading()

    def _serve(self, data: bytes, due: bool = False) -> None:
        """Have the parser find commands in what has arrived.

        Args:
            data: that.
            due: whether it is to be measured; of the others one in so many is.
        """
        self.last_command = self._clock.second
        commands = self.commands
        server = self._server
        server.until_sample = left = server.until_sample - 1
        if due or left <= 0 or server.instrumented:
            commands = server.instrument(self, due)
        try:
            more = self.parser.receive(data, commands)
        except ProtocolViolation as violation:
            _log.info("<%d connection cut: %s", self.number, violation)
            self.close_reason = "error"
            self.commands.quit()
            return
        out = self.out
        if len(out) == 1:
            reply = out.pop()
            self._counters.bytes_written += len(reply)
            self._write(reply)
        elif out:
            self._flush()
        if more:
            self._counters.conn_yields += 1
            self._stall()
            if not (self._write_paused or self._turn_due):
                self._turn_due = True
                self._server.loop.call_soon(self._take_turn)
        elif self.parser.in_command:
            self._straight = _NOTHING
            if not self._stalled:
                receive_value(self._server, self, self._transport)
        elif self._straight == _NOTHING:
            self._rejoin()

    def hold(self, seconds: float) -> None:
        """Take nothing from the client for so long, and go on with what its parser has."""
        self._stall()
        self._turn_due = True
        self._transport.pause_reading()
        self._server.loop.call_later(seconds, self._take_turn)

    def _take_turn(self) -> None:
        self._turn_due = False
        self._go_on()

    def _stall(self) -> None:
        self._stalled = True
        self._straight = _NOTHING

    def leave_straight_path(self) -> None:
        """Let the next read be served by the parser; it sees whether the path is open again."""
        self._straight = _NOTHING

    def _rejoin(self) -> None:
        """Let reads take the straight path if nothing must come before, or see them."""
        spoken = self.authenticated and self.dialect.straight
        free = not (self._stalled or self._server.instrumented)
        self._straight = LONGEST_GET if spoken and free else _NOTHING

    def _flush(self) -> None:
        """Write the replies, in pieces while the peer takes them; the rest waits in `_unsent`."""
        out = self.out
        size = sum(map(len, out))
        self._counters.bytes_written += size
        if size <= _JOIN_AT_MOST and not self._unsent:
            self._transport.write(b"".join(out))
        else:
            if self._unsent is None:  # an empty one would be a quarter of an idle connection
                self._unsent = deque()
            self._unsent.extend(out)
            self._write_unsent()
        out.clear()

    def _write_unsent(self) -> None:
        unsent = self._unsent
        while unsent and not self._write_paused:
            parts = [unsent.popleft()]
            size = len(parts[0])
            while unsent and size + len(unsent[0]) <= _JOIN_AT_MOST:
                parts.append(unsent.popleft())
                size += len(parts[-1])
            # What is large goes by itself, and is not copied; the transport sends them together.
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        if not unsent:
            self._unsent = None

    def _go_on(self) -> None:
        """Serve what waited for a turn, or for the peer."""
        if self._write_paused or self._transport.is_closing():
            return
        self._write_unsent()
        if self._unsent:
            return
        if self._closing:
            self._transport.close()
            return
        if self._write_paused:  # by the last of what was unsent
            return
        if self._stream is not None:
            if self._stream.endless:
                self._transport.resume_reading()  # or its end would not be noticed
            self._stream.resume()
            return
        self._stalled = False
        data, self._held = self._held, b""
        self._serve(data)
        if self._stalled or self._transport.is_closing():
            return
        if not self._eof:
            self._transport.resume_reading()
        elif not self.waiting:
            self._transport.close()

    def close(self) -> None:
        """Close once all replies are out."""
        if self.out:
            self._flush()
        if self._unsent:
            self._closing = True
        else:
            self._transport.close()

    def kick(self) -> bool:
        """Close for being idle; return whether that is new. Does not wait for who does not read."""
        new = not (self._closing or self._transport.is_closing())
        self.close_reason = "idle_timeout"
        if self._unsent or self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()
        return new

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
