"""Commands over UDP, using the parsers and executors of TCP.

A request is one datagram; an incomplete command at its end is discarded. The reply to each command
is a message of its own, with the request's id, in as many datagrams as necessary.

The source address of a datagram can be forged. So the total size of the replies to a request is
limited: a request for one item of the largest size is answered, a request for a hundred is not. The
work in progress is limited for all senders together: datagrams beyond that are dropped and counted.
The same applies to administrative commands that arrive too often, if several processes have to
carry them out.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from memlite.core.clock import Clock
from memlite.core.errors import ProtocolViolation
from memlite.core.logs import failure
from memlite.memory import Part
from memlite.protocol import Handler, Limits, frames, replies
from memlite.protocol.binary_table import ADMIN as BINARY_ADMIN
from memlite.protocol.commands import Arguments, Command
from memlite.protocol.handler import NO_SHORTCUTS
from memlite.protocol.magic import MAGIC
from memlite.protocol.packets import Opcode
from memlite.protocol.text_table import ADMIN
from memlite.server.connections.listeners import Listener
from memlite.server.execution.command_set import Executor
from memlite.server.execution.dialects import BINARY, TEXT
from memlite.server.execution.execution import Execution
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.interfaces import Stream
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import Counters

if TYPE_CHECKING:
    from memlite.telemetry.snapshot import SocketState

__all__ = ["UdpService", "UdpServices"]

_log = logging.getLogger("memlite")

# The most requests in progress at one socket, in all processes that serve it, i.e. waiting for the
# backend, for the turn of their next command, or for the network. Also the most bytes of these
# requests (64 KiB may hold ten thousand commands), the most keys they may read from a slow backend,
# and the most bytes of unsent replies. Once any limit is reached, further requests are dropped.
_MAX_REQUESTS = 256
_MAX_REQUEST_BYTES = 256 * 1024
_MAX_KEYS = 256
_MAX_UNSENT_BYTES = 4 * 1024 * 1024
_LEAST_REQUESTS = 16
_MAX_DATAGRAM_SIZE = 64 * 1024
# The limit on the replies to one request is the largest item with its reply lines, and at least
# this many bytes, for statistics.
_MIN_REPLY_LIMIT = 64 * 1024
_REPLY_LINES = 512
# Datagrams of one reply that are sent before other replies have their turn.
_DATAGRAMS_PER_TURN = 16

_TOO_LARGE = b"SERVER_ERROR reply too large for UDP\r\n"
_TOO_MANY_KEYS = b"SERVER_ERROR too many keys for UDP\r\n"

_Address = tuple[str, int]


class UdpServices(NamedTuple):
    """The parts of the server that UDP uses.

    Attributes:
        counters: count bytes and requests.
        clock: provides the time of the last activity.
        limits: the limits on what clients may send.
        protocol: the ``-B`` setting.
        execution: makes executors.
        instrumentation: decides which requests are observed.
        scheduler: schedules turns on the event loop.
        may_administer: returns whether an administrative command may be carried out now.
        processes: the number of processes that serve the socket.
    """

    counters: Counters
    clock: Clock
    limits: Limits
    protocol: str
    execution: Execution
    instrumentation: Instrumentation
    scheduler: Scheduler
    may_administer: Callable[[], bool]
    processes: int


class _Bounds(NamedTuple):
    """Limits on the work in progress in one of the processes that serve a socket; see above."""

    requests: int
    request_bytes: int
    unsent_bytes: int

    @classmethod
    def of(cls, processes: int) -> "_Bounds":
        """Divide the limits among processes, each of which can take the largest datagram."""
        return cls(
            max(_MAX_REQUESTS // processes, _LEAST_REQUESTS),
            max(_MAX_REQUEST_BYTES // processes, _MAX_DATAGRAM_SIZE),
            _MAX_UNSENT_BYTES // processes,
        )


class UdpService(asyncio.DatagramProtocol):
    """Serves the datagrams of one socket.

    Args:
        services: the parts of the server it uses.
        listener: the bound socket.

    Attributes:
        counted: whether the socket has already been counted as a connection, by another process
            that serves it.
        last_command: unix time of the last datagram, in whole seconds.
        keys: the number of keys that requests in progress are reading from a slow backend.
    """

    _transport: asyncio.DatagramTransport

    def __init__(self, services: UdpServices, listener: Listener) -> None:
        limits = services.limits
        self.services = services
        self.listener = listener
        self.limits = replace(limits, commands_per_read=1)
        self.reply_bytes = min(
            max(limits.item_size, _MIN_REPLY_LIMIT) + _REPLY_LINES, frames.MESSAGE_SIZE
        )
        self.last_command = services.clock.second
        self.keys = 0
        self.counted = False
        self._counters = services.counters
        self._bounds = _Bounds.of(services.processes)
        self._requests: set[_Request] = set()
        self._bytes = 0  # total size of their datagrams
        self._unsent: deque[tuple[_Request, Iterator[bytes], int]] = deque()
        self._unsent_bytes = 0
        self._turn_due = False  # whether `_send_some` is scheduled
        self._write_paused = False
        self._stopping = False

    @property
    def number(self) -> int:
        """The socket's file descriptor, -1 once closed."""
        return self.listener.sock.fileno()

    @property
    def under_way(self) -> int:
        """The number of requests in progress."""
        return len(self._requests)

    async def open(self) -> None:
        """Start to receive datagrams."""
        await self.services.scheduler.loop.create_datagram_endpoint(
            lambda: self, sock=self.listener.sock
        )

    def stop(self) -> None:
        """Accept no more requests, and close once those in progress are answered."""
        self._stopping = True
        if not self._requests:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, after `stop`."""
        if self._stopping:
            self._transport.abort()

    # asyncio.DatagramProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, for sending replies."""
        self._transport = cast("asyncio.DatagramTransport", transport)
        self._counters.total_connections += not self.counted  # as in memcached

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests; commands in progress are still carried out."""
        self._unsent.clear()
        for request in list(self._requests):
            request.end()

    def datagram_received(self, data: bytes, address: _Address) -> None:
        """Start to serve a request."""
        counters = self._counters
        counters.bytes_read += len(data)
        self.last_command = self.services.clock.second
        found = frames.unwrap(data)
        if found is None:
            counters.udp_refused += 1
        elif self._stopping or self._overloaded(len(data)):
            counters.udp_dropped += 1
        else:
            request = _Request(self, address, *found)
            self._requests.add(request)
            self._bytes += request.size
            request.serve(found[1])

    def _overloaded(self, size: int) -> bool:
        """Return whether a request of `size` bytes must be dropped."""
        bounds = self._bounds
        return (
            len(self._requests) >= bounds.requests
            or self._bytes + size > bounds.request_bytes
            or self._unsent_bytes > bounds.unsent_bytes
        )

    def error_received(self, exc: Exception) -> None:
        """Ignore a datagram that could not be sent: UDP clients expect losses."""
        _log.debug("<%d UDP: %s", self.number, exc)

    def pause_writing(self) -> None:
        """Stop sending: the socket's buffer is full."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Continue to send."""
        self._write_paused = False
        self._send_soon()

    # Sending

    def send(self, request: "_Request", parts: list[Part], size: int) -> bool:
        """Send a reply.

        Args:
            request: the request it answers.
            parts: the reply.
            size: its size in bytes.

        Returns:
            True if it was sent; False if it was queued. In that case `_Request.reply_sent` is
            called once it has been sent.
        """
        datagrams = frames.split(request.id, parts)
        if size <= frames.PAYLOAD_SIZE and not self._write_paused:
            self._write(next(datagrams), request)
            return True
        self._unsent.append((request, datagrams, size))
        self._unsent_bytes += size
        self._send_soon()
        return False

    def _write(self, datagram: bytes, request: "_Request") -> None:
        if not self._transport.is_closing():
            self._counters.bytes_written += len(datagram)
            self._transport.sendto(datagram, request.address)

    def _send_soon(self) -> None:
        if self._unsent and not (self._turn_due or self._write_paused):
            self._turn_due = True
            self.services.scheduler.call_soon(self._send_some)

    def _send_some(self) -> None:
        """Send some datagrams of the first reply in the queue, then move it to the end."""
        self._turn_due = False
        if not self._unsent or self._write_paused:
            return
        request, datagrams, size = self._unsent.popleft()
        room = _DATAGRAMS_PER_TURN
        for datagram in islice(datagrams, _DATAGRAMS_PER_TURN):
            self._write(datagram, request)
            room -= 1
            if self._write_paused:
                break
        if room == 0 or self._write_paused:
            self._unsent.append((request, datagrams, size))
        else:
            self._unsent_bytes -= size
            request.reply_sent()
        self._send_soon()

    def forget(self, request: "_Request") -> None:
        """Remove a request that has ended."""
        self._requests.remove(request)
        self._bytes -= request.size
        if self._stopping and not self._requests:
            self._transport.close()


class _Request:
    """A request datagram, whose commands are carried out one after the other.

    The next command runs once the reply to the previous one has been sent. So replies are separate
    messages in order, and other requests are served in between. To the executor, the request is the
    connection.

    Attributes:
        address: the source address.
        id: the request id.
        number: the socket's file descriptor, for the log.
        size: the size of the datagram in bytes, without its frame header.
        out: the reply to the current command.
        executor: carries out the commands.
    """

    __slots__ = (
        "_allowance", "_more", "_parser", "_reserved_keys", "_service", "_text", "_waiting",
        "address", "close_reason", "executor", "id", "number", "out", "size",
    )  # fmt: skip

    executor: Executor
    can_wait = False
    endpoint = ("", 0, "udp")
    last_command = 0
    listener = peer = ""
    pipelined = False
    state: "SocketState" = "reading"
    writable = True

    def __init__(
        self, service: UdpService, address: _Address, request_id: int, payload: bytes
    ) -> None:
        services = service.services
        self._service = service
        self._allowance = service.reply_bytes
        self._reserved_keys = 0  # keys of the current command, counted in `UdpService.keys`
        self._more = False  # whether there are more commands
        self._waiting = False  # whether it is waiting for the backend
        self.address = address
        self.id = request_id
        self.size = len(payload)
        self.number = service.number
        self.close_reason = "normal"  # set by commands; there is no connection to close
        self.out: list[Part] = []
        protocol = services.protocol
        self._text = protocol == "ascii" or (protocol == "auto" and payload[0] != MAGIC)
        dialect = TEXT if self._text else BINARY
        self._parser = dialect.parser(service.limits)
        self.executor = services.execution.executor(dialect, self, self.out)

    def serve(self, data: bytes = b"") -> None:
        """Carry out the next command.

        Args:
            data: the payload, on the first call only.
        """
        services = self._service.services
        counters, instrumentation = services.counters, services.instrumentation
        handler: Handler = self.executor
        counters.until_slow_sample -= 1
        if not counters.until_slow_sample or instrumentation.active:
            handler = instrumentation.observe(self.executor, self)
        self._more = False
        try:
            self._more = self._parser.receive(
                data,
                _UdpHandler(
                    handler,
                    self,
                    waits=services.execution.waits,
                    may_administer=services.may_administer,
                ),
            )
            refused = self._parser.in_command and not self._more  # an incomplete command
        except ProtocolViolation:
            refused = True
        except _OverloadError:
            counters.udp_dropped += 1
            self.end()
            return
        except Exception:  # noqa: BLE001 - a bug triggered by one datagram must not affect others
            _log.exception("a request over UDP failed", extra=failure("udp_request_failed"))
            self.end()
            return
        counters.udp_refused += refused
        self._waiting = self.executor.pending
        if not self._waiting:
            self._answer()

    def _answer(self) -> None:
        parts = self.out.copy()
        self.out.clear()
        size = sum(map(len, parts))
        if size > self._allowance:
            parts = [_TOO_LARGE] if self._text else []
            size = sum(map(len, parts))
            self._more = False
        self._allowance -= size
        if not size or self._service.send(self, parts, size):
            self.reply_sent()

    def reply_sent(self) -> None:
        """Schedule the next command, or end the request if there is none."""
        service = self._service
        service.keys -= self._reserved_keys
        self._reserved_keys = 0
        if self._more:
            service.services.scheduler.call_soon(self._take_turn)
        else:
            self.end()

    def _take_turn(self) -> None:
        if self._more:  # unless the request has ended in the meantime
            self.serve()

    def end(self) -> None:
        """End the request; commands in progress are still carried out."""
        service = self._service
        service.keys -= self._reserved_keys
        self._reserved_keys = 0
        self._more = self._waiting = False
        self.executor.detach()
        # Break the reference cycle, which the garbage collector would free late.
        del self.executor
        service.forget(self)

    def reserve_keys(self, keys: int) -> None:
        """Count the keys that a command is about to read from a slow backend.

        Raises:
            _OverloadError: too many keys are being read already.
        """
        if self._service.keys + keys > _MAX_KEYS:
            raise _OverloadError
        self._reserved_keys += keys
        self._service.keys += keys

    # The client interface for executors

    def close(self) -> None:
        """Do nothing (``quit``): the parser has discarded all further commands."""

    def abort(self) -> None:
        """Do nothing: there is no connection."""

    def attach(self, stream: Stream) -> None:
        """Refuse: replies over UDP cannot be streams; see `can_wait`."""
        raise NotImplementedError

    def detach(self) -> None:
        """Refuse, like `attach`."""
        raise NotImplementedError

    def send(self, data: bytes) -> None:
        """Refuse, like `attach`."""
        raise NotImplementedError

    @property
    def unread(self) -> int:
        """Always 0: datagrams are sent at once."""
        return 0

    def replies_ready(self) -> None:
        """Send the reply that had to wait for the backend."""
        if self._waiting and not self.executor.pending:
            self._waiting = False
            self._answer()


class _OverloadError(Exception):
    """The server is too busy to serve a request."""


class _UdpHandler:
    """A handler that rejects commands not served over UDP and passes on all other commands.

    It rejects streams, whose length is unbounded, and gets of too many keys from a slow backend.

    Args:
        handler: carries out the other commands.
        request: the request the commands belong to.
        waits: whether the backend must be awaited.
        may_administer: see `UdpServices`.
    """

    shortcuts = NO_SHORTCUTS

    def __init__(
        self,
        handler: Handler,
        request: _Request,
        *,
        waits: bool,
        may_administer: Callable[[], bool],
    ) -> None:
        self._handler = handler
        self._request = request
        self._waits = waits
        self._may_administer = may_administer

    def try_get(self, line: bytes) -> bool:
        """Pass the call on; see `Handler`."""
        return self._handler.try_get(line)

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Pass the call on."""
        self._handler.set(key, flags, exptime, value, noreply)

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """Pass the call on."""
        self._handler.set_framed(key, exptime, framed, noreply)

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Pass the call on."""
        self._handler.reject(reply, noreply)

    def quit(self) -> None:
        """Pass the call on."""
        self._handler.quit()

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out or refuse a command.

        Raises:
            _OverloadError: too many keys are being read from the backend already, or there were too
                many recent administrative commands.
        """
        if command is ADMIN:
            if _is_stream(arguments[0]):
                self.reject(replies.ERROR, False)
                return
            if arguments[0][0] != b"version" and not self._may_administer():
                raise _OverloadError
        elif command is BINARY_ADMIN:
            (request,) = arguments
            if request.opcode not in _SIMPLE and not self._may_administer():
                raise _OverloadError
        if self._waits and command.name in _MULTIGETS:
            keys = len(command.keys(arguments))
            if keys > _MAX_KEYS:
                self.reject(_TOO_MANY_KEYS, False)
                return
            self._request.reserve_keys(keys)
        self._handler.execute(command, arguments)


_SIMPLE: Final = frozenset(map(int, (Opcode.NOOP, Opcode.VERSION)))
"""Opcodes of administrative commands that do not involve other processes."""
_MULTIGETS: Final = frozenset(("get", "gets", "gat", "gats"))


def _is_stream(words: list[bytes]) -> bool:
    """Return whether a command's reply is an unbounded stream, which needs a connection."""
    return words[0] == b"watch" or (
        words[0] == b"lru_crawler" and words[1:2] in ([b"metadump"], [b"mgdump"])
    )
