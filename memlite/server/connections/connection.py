"""A client connection: passes input from the transport to the parser and replies back."""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from memlite.core.build import mypyc_attr
from memlite.core.clock import Clock
from memlite.core.errors import ProtocolViolation
from memlite.core.logs import failure
from memlite.memory import Item, ItemTable, Part
from memlite.memory.usage import MASK
from memlite.protocol import Handler, Limits, TextParser, replies
from memlite.protocol.limits import MAX_GET_LENGTH
from memlite.server.connections.intake import FULL_READ, Intake
from memlite.server.connections.large_values import LargeValues
from memlite.server.connections.listeners import address_label, endpoint
from memlite.server.connections.negotiator import Negotiator
from memlite.server.connections.register import Register
from memlite.server.connections.states import TRANSITIONS, Event, State
from memlite.server.execution.command_set import Executor
from memlite.server.execution.dialects import Dialect, Parser
from memlite.server.execution.execution import Execution, FastGets
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.execution.runner import Run, Runner, Runs, run_of
from memlite.server.interfaces import Stream
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import Counters

if TYPE_CHECKING:
    from memlite.server.auth.auth import Authenticator  # for servers that ask for passwords
    from memlite.telemetry.snapshot import SocketState

__all__ = ["Connection", "ConnectionServices"]

_log = logging.getLogger("memlite")

# The replies to one read are joined into one write of up to this many bytes. Beyond that they are
# written in batches of this size, no faster than the peer reads them, because the reply to a get of
# a thousand large keys must not be copied as a whole.
_MAX_JOIN: Final = 64 * 1024
# A longer set is not left to the runner: copying as many bytes costs as much as parsing a line.
_MAX_COPIED: Final = 384 * 1024
# A limit that no read meets, which disables the fast path.
_DISABLED: Final = -1
_SERVING: Final = State.SERVING
_G: Final = b"g"[0]


class ConnectionServices(NamedTuple):
    """The parts of the server that connections use.

    Attributes:
        counters: count bytes, reads and turns.
        clock: provides the time of the last activity.
        limits: the limits on what clients may send.
        dialect: the protocol a connection speaks initially.
        negotiates: whether the first byte may select another protocol.
        execution: makes executors.
        instrumentation: decides which reads are observed.
        register: tracks open connections.
        scheduler: schedules turns on the event loop.
        large_values: reads large values directly into place.
        intake: bounds the input that is held until its commands are carried out.
        auth: authenticates clients; None if clients need not authenticate.
        shared_parser: the parser of all connections that speak `dialect` and have no incomplete
            input, which saves a sixth of the memory of an idle connection; None if each has its
            own.
        shared_executor: the executor of all connections whose input a runner carries out, which
            saves a twelfth; it carries out nothing itself. None if each has its own.
        runner: carries out most commands without the parser; None without one.
        runs: the methods of the runner, by protocol.
    """

    counters: Counters
    clock: Clock
    limits: Limits
    dialect: Dialect
    negotiates: bool
    execution: Execution
    instrumentation: Instrumentation
    register: Register
    scheduler: Scheduler
    large_values: LargeValues
    intake: Intake
    auth: "Authenticator | None"
    shared_parser: TextParser | None = None
    shared_executor: Executor | None = None
    runner: Runner | None = None
    runs: Runs = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(asyncio.Protocol):
    """Serves commands as they arrive, with one write per read.

    Stops reading while the peer does not read its replies, and yields to other connections after
    `Limits.commands_per_read` commands. The states are in `memlite.server.connections.states`.

    Args:
        services: the parts of the server it uses.

    Attributes:
        authenticated: whether the client may use the server.
        close_reason: why the connection is closed, in memcached's words.
        dialect: the protocol it speaks.
        executor: carries out its commands.
        last_command: unix time at which the peer last sent something, in whole seconds.
        parser: parses its input.
        writable: whether the peer is reading its replies.
    """

    __slots__ = (
        "_begin", "_clock", "_counters", "_eof", "_fast_limit", "_held", "_immediate_limit",
        "_instrumentation", "_out", "_pending_input", "_run_commands", "_services", "_state",
        "_stream", "_table", "_transport", "_unsent", "_used", "_waits", "authenticated",
        "close_reason", "dialect", "executor", "last_command", "parser", "writable",
    )  # fmt: skip

    _table: ItemTable
    _used: list[int]
    _transport: asyncio.Transport
    executor: Executor
    parser: Parser
    can_wait = True  # a reply may be sent later, by a stream

    def __init__(self, services: ConnectionServices) -> None:
        self._services = services
        self._counters = services.counters
        self._clock = services.clock
        self._instrumentation = services.instrumentation
        self._waits = services.execution.waits
        fast_gets = services.execution.fast_gets
        if fast_gets is not None:
            self._table, self._used = fast_gets.table, fast_gets.used
        # Replies not written yet; None while the shared executor is used.
        self._out: list[Part] | None = None
        self._state = _SERVING
        self.writable = True
        self._run_commands: Run | None = None  # `Runner.text` or `binary`, while it may be used
        self._pending_input = b""  # arrived while the connection could not be served
        self._begin = 0  # bytes of it that the runner has carried out
        self._held = 0  # bytes of input not yet carried out, as counted by `Intake`
        self._eof = False  # whether the peer has half-closed the connection
        self._unsent: deque[Part] | None = None  # replies the peer is too slow to take
        self._stream: Stream | None = None  # owns the connection while it sends
        self.close_reason = "normal"
        self.last_command = services.clock.second
        self.authenticated = services.auth is None
        self.speak(services.dialect)
        if services.negotiates:
            self.parser = Negotiator(self)
        # An executor with replies still to come must not be replaced: negotiation comes first.
        if not (services.negotiates and self._waits):
            self._enter_fast_path()

    def speak(self, dialect: Dialect) -> None:
        """Switch to a protocol, starting with its login if the client must authenticate."""
        services = self._services
        self.dialect = dialect
        self._leave_fast_path()  # until the parser has seen a read
        shared = services.shared_parser if dialect is services.dialect else None
        self.parser = dialect.parser(services.limits) if shared is None else shared
        if self._out is None and services.shared_executor is not None:
            self.executor = services.shared_executor
        else:
            self._own_executor()
        auth, limits = services.auth, services.limits
        if auth is not None and not self.authenticated:
            self.parser = auth.gate(self, dialect.login(limits), limits.commands_per_read)

    def admit(self, data: bytes) -> bool:
        """Start to serve a client that has authenticated.

        Args:
            data: input that arrived after the credentials.

        Returns:
            The result of `Parser.receive`.
        """
        self.authenticated = True
        self.speak(self.dialect)
        return self.parser.receive(data, self.handler())

    def handler(self) -> Handler:
        """Return the handler for the read that is being served."""
        if self._out is None:
            self._own_executor()
        return self._instrumentation.observe(self.executor, self)

    @property
    def out(self) -> list[Part]:
        """Replies not written yet; new ones are appended here."""
        if self._out is None:
            self._own_executor()
        return cast("list[Part]", self._out)

    def _own_executor(self) -> None:
        """Create an executor for this connection, which appends replies to `out`."""
        if self._out is None:
            self._out = []
        self.executor = self._services.execution.executor(self.dialect, self, self._out)

    def _share_executor(self) -> None:
        """Leave all input to the runner until it declines some."""
        services = self._services
        if services.shared_executor is None or self._out:
            return
        self.executor, self._out = services.shared_executor, None
        if services.shared_parser is not None and isinstance(self.parser, TextParser):
            self.parser = services.shared_parser  # there is no incomplete input

    # Shown by stats conns

    @property
    def number(self) -> int:
        """The socket's file descriptor, -1 once closed."""
        sock = self._transport.get_extra_info("socket")
        return int(sock.fileno()) if sock is not None else -1

    @property
    def peer(self) -> str:
        """The client's address; empty once the transport is closed."""
        sock = self._transport.get_extra_info("socket")
        name = self._transport.get_extra_info("peername")
        return "" if sock is None else address_label(sock.family, name)

    @property
    def host(self) -> str:
        """The client's host without the port; the same for all clients of a UNIX socket."""
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else "unix"

    @property
    def endpoint(self) -> tuple[str, int, str]:
        """The client's address, port and transport, as shown by ``watch connevents``."""
        sock = self._transport.get_extra_info("socket")
        return endpoint(sock.family, self._transport.get_extra_info("peername"))

    @property
    def listener(self) -> str:
        """The address the client connected to."""
        sock = self._transport.get_extra_info("socket")
        return address_label(sock.family, self._transport.get_extra_info("sockname"))

    @property
    def state(self) -> "SocketState":
        """The activity of the connection."""
        if self.parser.in_value:
            return "reading_value"
        if self._stream is not None:
            return "streaming"
        if not self.writable:
            return "writing"
        return "reading"

    @property
    def busy(self) -> bool:
        """Whether a command is half received or replies are unsent; False until authenticated."""
        if self._state is State.WATCHING or not self.authenticated:
            return False
        return (
            self._state is not _SERVING
            or self.executor.pending
            or self.parser.in_command
            or self._transport.get_write_buffer_size() > 0
        )

    @property
    def unread(self) -> int:
        """The bytes of replies that the peer has yet to read; 0 while the transport takes more.

        A transport buffers some bytes without reporting when they are sent: over TLS up to half a
        megabyte.
        """
        if self.writable and not self._unsent:
            return 0
        return self._transport.get_write_buffer_size() + sum(map(len, self._unsent or ()))

    def idle_since(self, second: int) -> bool:
        """Return whether there has been no activity since before unix second `second`.

        A connection that is waiting for the store or owned by a stream is not idle.
        """
        return self.last_command < second and self._stream is None and not self.executor.pending

    @property
    def pipelined(self) -> bool:
        """Whether the running command was sent before replies to earlier ones had gone out.

        Also True if the client has disconnected in the meantime.
        """
        return self._transport.is_closing() or self.executor.had_to_wait or bool(self._out)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or reject it if there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._services.register.admit(self):
            self._transport.write(replies.TOO_MANY_CONNECTIONS)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything except commands that are already in progress."""
        if exc is not None:
            self.close_reason = "error"
        self._move(Event.LOST)
        self.executor.detach()
        self._services.register.dismiss(self)
        if self._stream is not None:
            self._stream.lost()
            self._stream = None
        self._pending_input = b""
        self._begin = 0
        self._hold(0)
        if self._out is not None:
            self._out.clear()
        self._unsent = None
        # Break the reference cycles with the parser and the executor: a partial value may be large,
        # and the garbage collector would free it late.
        self.parser = self.executor = cast("Any", None)

    def data_received(self, data: bytes) -> None:
        """Serve the input, or keep it if earlier input is still waiting."""
        counters = self._counters
        size = len(data)
        counters.bytes_read += size
        # The fast path, for by far the most frequent request, at a third of the parser's cost: the
        # table finds items by the whole request line. This is `MemoryEngine.try_get` inlined, as a
        # call costs a tenth of the total. For the same reason the lookup is bound to a local first.
        if size <= self._fast_limit:
            lookup = self._table.get_by_line
            item = lookup(data)
            if item is not None:
                left = counters.until_sample - 1
                state = self._used[item.state & MASK]
                if not left:  # never less; a comparison takes 150 instructions of 3,900
                    self._serve(data, fast=True)  # this read is sampled
                    return
                if state or self._can_serve(item):
                    if state:
                        item.state = state
                    counters.until_sample = left
                    reply = item.wire
                    counters.bytes_written += len(reply)
                    self.last_command = self._clock.second
                    self._transport.write(reply)
                    return
            elif (
                size <= self._immediate_limit and data[0] == _G and self._send_immediate_reply(data)
            ):
                return
        elif (
            size <= self._immediate_limit
            and data[0] == _G
            and data.find(b"\n") == size - 1  # a single line
            and data[:4] == b"get "
            and self._send_immediate_reply(data)
        ):
            return
        if self._state is not _SERVING:
            self._keep_for_later(data)
        elif self._services.runner is None or not self._return_to_runner(data):
            self._serve(data)

    def receive_by_runner(self, data: bytes) -> bool:
        """Let the runner serve the input, if it may be used; the counterpart of the receiver in C.

        Returns:
            False if it may not be used: the input is left to `data_received`.
        """
        run = self._run_commands
        if run is None:
            return False
        if self._state is not _SERVING:
            self._keep_for_next_turns(data)
            return True
        reply = run(data, self.out)
        if reply is None:
            self._serve_rest(data)
            return True
        self.last_command = self._clock.second
        if reply:
            self._transport.write(reply)
        return True

    def _keep_for_next_turns(self, data: bytes) -> None:
        """Keep input of a connection that has yielded, but has not left the runner: see turns.h."""
        self._counters.bytes_read += len(data)
        self._keep_for_later(data)

    def _can_serve(self, item: Item) -> bool:
        return cast("FastGets", self._services.execution.fast_gets).can_serve(item)

    def _return_to_runner(self, data: bytes) -> bool:
        """Let the runner take over from the parser, which holds an incomplete command.

        Otherwise, after a command that arrives in two reads, all input would be parsed in Python.

        Returns:
            Whether that was possible: `data` completes the command, and its value is not long.
        """
        take_back = getattr(self.parser, "take_back", None)
        whole = b"" if take_back is None else cast("bytes", take_back(data))
        if not whole:
            return False
        self._enter_fast_path()
        if self._run_commands is not None:
            self._counters.bytes_read -= len(whole)  # the runner counts them again
        self._run_rest(whole, 0)
        return True

    def _serve_rest(self, data: bytes, begin: int = 0) -> None:
        """Serve the rest of `data` that the runner, which started at `begin`, did not take."""
        services = self._services
        runner = services.runner
        assert runner is not None  # noqa: S101 - it has just run
        position = runner.position
        left = len(data) - position
        if runner.missing and self._wait_for_value(data, position, runner.missing):
            if not begin:
                self._counters.bytes_read += left
            return
        if not begin:
            self._counters.bytes_read += left
        if not left:
            self.last_command = self._clock.second
            self._flush()
        elif runner.served >= services.limits.commands_per_read and self._begins_command(
            data, position
        ):
            self._keep_for_next_turn(data, position, 0 if begin else len(data))
        else:
            rest = data[position:] if position else data
            self._serve(rest, served=runner.served, carried_out=0 if begin else position)

    def _wait_for_value(self, data: bytes, position: int, missing: int) -> bool:
        """Wait for the rest of a value, and leave the command to the runner then.

        The runner copies the value into the item. A long one, of a `set`, is left to the parser,
        which has it read into the item.

        Args:
            data: the input.
            position: where the command begins.
            missing: how many bytes complete it.

        Returns:
            Whether the runner will carry it out.
        """
        size = len(data) - position + missing
        if size > _MAX_COPIED and data.startswith(b"set ", position):
            return False
        self.last_command = self._clock.second
        self._counters.until_slow_sample -= 1  # the runner starts only if at least two are left
        if self._out:
            self._flush()
        self._own_parser()
        cast("Any", self.parser).keep_unparsed(data[position:], missing)
        self._leave_fast_path()
        if self._state is _SERVING:
            self._services.large_values.receive(self, self._transport)
        return True

    def _begins_command(self, data: bytes, position: int) -> bool:
        # Only parsers of protocols that have runs are asked.
        begins: bool = cast("Any", self.parser).begins_command(data, position)
        return begins

    def _keep_for_next_turn(self, data: bytes, position: int, size: int) -> None:
        """Keep the rest of `data` for the next turn: the connection's share of this one is used up.

        Args:
            data: the input.
            position: where the rest begins.
            size: bytes that have been read in this turn.
        """
        self.last_command = self._clock.second
        self._counters.until_slow_sample -= 1  # the runner starts only if at least two are left
        self._pending_input = data
        self._begin = position
        if self._out:
            self._flush()
        run = self._run_commands
        self._end_turn(size, len(data))
        self._run_commands = run  # in C, the next turn starts with it

    def _end_turn(self, size: int, held: int) -> None:
        """Yield to other connections.

        Args:
            size: the bytes of this read.
            held: bytes that are held until the commands in them are carried out.
        """
        self._counters.conn_yields += 1
        self._hold(held)
        if size >= FULL_READ:
            self._services.intake.slow_down(self._transport)
        if self._state is _SERVING:
            self._move(Event.SHARE_USED)
            self._services.scheduler.call_together(self._next_turn)

    def _run_rest(self, data: bytes, begin: int) -> None:
        """Pass more of `data` to the runner, or to the parser if the runner may not be used now."""
        self._enter_fast_path()
        run = self._run_commands
        if run is None:
            self._serve(data[begin:])
            return
        reply = run(data, self.out, begin)
        if reply is None:
            self._serve_rest(data, begin)
            return
        self.last_command = self._clock.second
        if reply:
            self._transport.write(reply)

    def _send_immediate_reply(self, data: bytes) -> bool:
        """Answer a read without the parser, if the reply is ready and the read is not sampled."""
        counters = self._counters
        left = counters.until_slow_sample - 1
        if not left:
            return False
        if self._out is None:
            self._own_executor()
        reply = self.executor.immediate_reply(data)
        if reply is None:
            return False
        counters.until_slow_sample = left
        self.last_command = self._clock.second
        if reply:
            counters.bytes_written += len(reply)
            self._transport.write(reply)
        elif not self._waits:  # the reply is in `out`, in several parts; otherwise it comes later
            self._flush()
        return True

    def eof_received(self) -> bool:
        """Stay open while earlier commands have yet to be answered."""
        self._eof = True
        if self._state is State.WATCHING:
            return False
        return self._state is not _SERVING or self.executor.pending

    def pause_writing(self) -> None:
        """Stop serving: the peer is not reading its replies."""
        self.writable = False
        self._move(Event.FULL)
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Continue: the peer has read its replies."""
        self.writable = True
        if self._state is not State.YIELDED:
            self._continue()

    def _move(self, event: Event) -> None:
        """Make the state transition for `event`."""
        self._state = state = TRANSITIONS[self._state, event]
        if state is not _SERVING:
            self._leave_fast_path()

    # Streams

    def attach(self, stream: Stream) -> None:
        """Hand the connection to `stream`; no commands are served until `detach`."""
        self._stream = stream
        self._move(Event.WATCHED if stream.endless else Event.ATTACHED)

    def detach(self) -> None:
        """Take the connection back and serve commands again, starting with those that waited."""
        self._stream = None
        self.last_command = self._clock.second
        self._move(Event.DETACHED)
        self._continue()

    def send(self, data: bytes) -> None:
        """Send part of a stream. Anything long should wait until the peer is `writable`."""
        self._counters.bytes_written += len(data)
        self._transport.write(data)

    # Serving

    def _keep_for_later(self, data: bytes) -> None:
        """Keep input until it can be served; discard it if that will never happen."""
        self.last_command = self._clock.second
        if self._state is not State.WATCHING:
            self._pending_input += data  # stays small, because reading is paused
            self._transport.pause_reading()
            self._hold(self._held + len(data))

    def _hold(self, size: int) -> None:
        """Count `size` bytes as held, replacing the previous count."""
        self._services.intake.held += size - self._held
        self._held = size

    def _serve(
        self, data: bytes, fast: bool = False, served: int = 0, carried_out: int = 0
    ) -> None:
        """Parse input and carry out its commands.

        Args:
            data: the input.
            fast: whether the read is sampled instead of taking the fast path.
            served: commands of this turn that have been carried out.
            carried_out: the size of these commands in bytes, which were read with `data`.
        """
        self.last_command = self._clock.second
        counters = self._counters
        waits = self._waits
        if self._out is None:
            self._own_executor()
        handler: Handler = self.executor
        if waits and self.executor.ended:
            return
        counters.until_slow_sample = left = counters.until_slow_sample - 1
        if not left or fast or self._instrumentation.active:
            handler = self._instrumentation.observe(self.executor, self, fast=fast)
        try:
            if served:  # only parsers of protocols that have runs are asked
                more = cast("Any", self.parser).receive(data, handler, served)
            else:
                more = self.parser.receive(data, handler)
        except ProtocolViolation as violation:
            self._own_parser()
            _log.info(
                "<%d connection closed: %s",
                self.number,
                violation,
                extra=failure("protocol_violated", client=self.peer),
            )
            self.close_reason = "error"
            self.executor.quit()
            return
        except BaseException:
            self._own_parser()
            raise
        out = self._out
        if not out:
            pass
        elif len(out) == 1:
            reply = out.pop()
            counters.bytes_written += len(reply)
            self._transport.write(reply)
        else:
            self._flush()
        if more:
            self._own_parser()
            self._end_turn(carried_out + len(data), self.parser.backlog)
        elif self.parser.in_command:
            self._own_parser()
            self._leave_fast_path()
            if self._state is _SERVING:
                self._services.large_values.receive(self, self._transport)
        elif self._fast_limit == self._immediate_limit:  # both are _DISABLED: it is closed
            self._enter_fast_path()
            # Without data, this may be within a command that has been a stream until now.
            if data and self._run_commands is not None and not self._took_large_value:
                self._share_executor()
        if waits and self.executor.full:  # a new executor if the protocol was just negotiated
            self._move(Event.FULL)

    def _own_parser(self) -> None:
        """Switch from the shared parser to a separate one: this connection has incomplete input."""
        shared = self._services.shared_parser
        if shared is not None and self.parser is shared:
            self.parser = shared.separate()

    @property
    def _took_large_value(self) -> bool:
        """Whether the parser has just taken a large value, and is likely to take more of them."""
        return bool(getattr(self.parser, "took_large_value", False))

    def postpone(self, seconds: float) -> None:
        """Stop reading for `seconds`, then continue with the input the parser has."""
        self._move(Event.SHARE_USED)
        self._transport.pause_reading()
        self._services.scheduler.call_later(seconds, self._take_turn)

    def _next_turn(self) -> None:
        """Take the next turn; implemented in C if there is a receiver."""
        self._take_turn()

    def _take_turn(self) -> None:
        if self._state is State.YIELDED:
            self._move(Event.TURN)
            self._continue()

    def leave_fast_path(self) -> None:
        """Send the next read through the parser, which may return to the fast path after it."""
        self._leave_fast_path()

    def _leave_fast_path(self) -> None:
        self._fast_limit = self._immediate_limit = _DISABLED
        self._run_commands = None

    def _enter_fast_path(self) -> None:
        """Enable the fast path unless earlier input is waiting or reads are being observed."""
        services = self._services
        if (
            not self.authenticated
            or self._state is not _SERVING
            or self._instrumentation.closes_fast_path
        ):
            return
        if services.runner is not None and not self._instrumentation.active:
            if isinstance(self.parser, Negotiator):
                return  # until the protocol is known
            self._run_commands = run_of(services.runs, self.dialect)
        if self.dialect.fast:
            shared = services.shared_parser
            if (
                shared is not None
                and isinstance(self.parser, TextParser)
                and not self.parser.took_large_value
            ):
                self.parser = shared  # there is no incomplete input
            if not self._waits:
                self._fast_limit = MAX_GET_LENGTH
            # A get of several keys may be a slow command, which the slow log shows.
            if self._waits or not self._instrumentation.active:
                self._immediate_limit = services.execution.longest_immediate

    def _flush(self) -> None:
        """Write the replies, in batches while the peer reads; the rest waits in `_unsent`."""
        out = self.out
        size = sum(map(len, out))
        self._counters.bytes_written += size
        if size <= _MAX_JOIN and not self._unsent:
            self._transport.write(b"".join(out))
        else:
            if self._unsent is None:  # a deque is a quarter of an idle connection's memory
                self._unsent = deque()
            self._unsent.extend(out)
            self._write_unsent()
        out.clear()

    def _write_unsent(self) -> None:
        unsent = self._unsent
        while unsent and self.writable:
            parts = [unsent.popleft()]
            size = len(parts[0])
            while unsent and size + len(unsent[0]) <= _MAX_JOIN:
                parts.append(unsent.popleft())
                size += len(parts[-1])
            # A large part is written on its own, without a copy; the transport combines writes.
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        if not unsent:
            self._unsent = None

    def _continue(self) -> None:
        """Serve input that was waiting for a turn, for the peer, or for the executor."""
        if not self.writable or self._transport.is_closing():
            return
        self._write_unsent()
        if self._unsent or not self.writable:
            return
        if self._state is State.CLOSING:
            self._transport.close()
            return
        if self._stream is not None:
            if self._state is State.WATCHING:
                self._transport.resume_reading()  # to notice when the peer disconnects
            self._stream.resume()
            return
        if self._waits:
            self.executor.peer_has_read()
            if self.executor.full:
                return  # `replies_ready` continues
        self._move(Event.RESUMED)
        data, self._pending_input = self._pending_input, b""
        begin, self._begin = self._begin, 0
        self._hold(0)  # until the next turn ends
        if begin:
            self._run_rest(data, begin)
        else:
            self._serve(data)
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Resume reading after all earlier input has been served."""
        if self._state is not _SERVING or self._transport.is_closing():
            return
        if not self._eof:
            self._transport.resume_reading()
        elif not self.executor.pending:
            self._transport.close()

    def replies_ready(self) -> None:
        """Send replies that have become ready, and continue if there is room again."""
        if self._transport.is_closing():
            return
        self.last_command = self._clock.second
        out = self._out
        if not out:
            pass
        elif len(out) == 1 and not self._unsent:
            reply = out.pop()
            self._counters.bytes_written += len(reply)
            self._transport.write(reply)
        else:
            self._flush()
        if self._state is State.SERVING:
            if self._eof and not self.executor.pending:
                self.close()
        elif self._state is not State.YIELDED:  # a yielded connection waits for its turn
            self._continue()

    def close(self) -> None:
        """Close once all replies are sent."""
        if self._out:
            self._flush()
        if self._unsent:
            self._move(Event.CLOSED_LATER)
        else:
            self._transport.close()

    def kick(self) -> bool:
        """Close for being idle, without waiting for a peer that has stopped reading.

        Returns:
            Whether it was still open.
        """
        new = not (self._state is State.CLOSING or self._transport.is_closing())
        self.close_reason = "idle_timeout"
        if self._unsent or self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()
        return new

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
