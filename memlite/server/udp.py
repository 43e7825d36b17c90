"""Commands over UDP: a datagram each way, through the parser and the engine of TCP.

A request is one datagram, and what it holds is done with it: half a command is never kept. Each
command's reply is a message of its own, with the request's id, in as many datagrams as it needs.

Nobody knows who sent a datagram, so all of a request's replies together are bounded (a request for
one item of the largest size is answered, one for a hundred of them is not), and what is under way
is bounded for all senders together: beyond it datagrams are dropped, as networks do, and counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from memlite.backends import Part
from memlite.engine.store import StoreEngine
from memlite.errors import ProtocolViolation
from memlite.protocol import frames, replies
from memlite.protocol.magic import MAGIC
from memlite.server.commands import TextCommands
from memlite.server.deferred import Deferred
from memlite.server.deferred_text import DeferredText
from memlite.server.dialects import BINARY, TEXT
from memlite.server.sockets import Listener

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.deferred_connection import DeferredConnection
    from memlite.server.server import Server

__all__ = ["UdpService"]

_log = logging.getLogger("memlite")

# Requests under way, at one socket: those that wait for the backend, for their next command's turn
# or for the network to take their reply. Their bytes, of which 64 KiB may be ten thousand commands;
# the keys they may ask a slow backend for; and the bytes of replies that are not out, all together.
# Beyond any of them the next is dropped.
_UNDER_WAY = 256
_BYTES_UNDER_WAY = 256 * 1024
_KEYS_UNDER_WAY = 256
_UNSENT_BYTES = 4 * 1024 * 1024
# Bytes of replies to one request: the largest item with its lines, or statistics where items are
# small.
_REPLIES_AT_LEAST = 64 * 1024
_LINES = 512
# Datagrams of one reply that go out before others have their turn.
_SHARE = 16

_TOO_LARGE = b"SERVER_ERROR reply too large for UDP\r\n"
_TOO_MANY_KEYS = b"SERVER_ERROR too many keys for UDP\r\n"

_Address = tuple[str, int]


class UdpService(asyncio.DatagramProtocol):
    """Serves the datagrams of one socket.

    Args:
        server: what it shares with connections.
        listener: the bound socket.

    Attributes:
        last_command: unix second at which the last datagram came, to a second or two.
        keys: those that requests under way have asked a slow backend for.
    """

    _transport: asyncio.DatagramTransport

    def __init__(self, server: "Server", listener: Listener) -> None:
        self.server = server
        self.listener = listener
        self.limits = replace(server.limits, commands_per_read=1)
        self.reply_bytes = min(
            max(server.limits.item_size, _REPLIES_AT_LEAST) + _LINES, frames.MESSAGE_SIZE
        )
        self.last_command = server.clock.second
        self.keys = 0
        self._counters = server.counters
        self._requests: set[_Request] = set()
        self._bytes = 0  # of their datagrams
        self._unsent: deque[tuple[_Request, Iterator[bytes], int]] = deque()
        self._unsent_bytes = 0
        self._turn_due = False  # whether `_send_share` is to be called
        self._write_paused = False
        self._stopping = False

    @property
    def number(self) -> int:
        """The socket's file descriptor, -1 once closed."""
        return self.listener.sock.fileno()

    @property
    def under_way(self) -> int:
        """How many requests are not done with."""
        return len(self._requests)

    async def open(self) -> None:
        """Begin to take datagrams."""
        await self.server.loop.create_datagram_endpoint(lambda: self, sock=self.listener.sock)

    def stop(self) -> None:
        """Take nothing more, and close when what is under way is answered."""
        self._stopping = True
        if not self._requests:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, after `stop`."""
        if self._stopping:
            self._transport.abort()

    # asyncio.DatagramProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where replies go out."""
        self._transport = cast("asyncio.DatagramTransport", transport)
        self._counters.total_connections += 1  # memcached counts it, too

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind but what has begun."""
        self._unsent.clear()
        for request in list(self._requests):
            request.end()

    def datagram_received(self, data: bytes, address: _Address) -> None:
        """Serve a request, or begin to."""
        counters = self._counters
        counters.bytes_read += len(data)
        self.last_command = self.server.clock.second
        found = frames.unwrap(data)
        if found is None:
            counters.udp_refused += 1
        elif self._stopping or self._busy(len(data)):
            counters.udp_dropped += 1
        else:
            request = _Request(self, address, *found)
            self._requests.add(request)
            self._bytes += request.size
            request.serve(found[1])

    def _busy(self, size: int) -> bool:
        """Whether a request of `size` bytes is one too many."""
        return (
            len(self._requests) >= _UNDER_WAY
            or self._bytes + size > _BYTES_UNDER_WAY
            or self._unsent_bytes > _UNSENT_BYTES
        )

    def error_received(self, exc: Exception) -> None:
        """Lose what could not be sent: whoever is there knows that datagrams get lost."""
        _log.debug("<%d UDP: %s", self.number, exc)

    def pause_writing(self) -> None:
        """Send nothing more: the network does not take it."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Go on sending."""
        self._write_paused = False
        self._send_soon()

    # Sending

    def send(self, request: "_Request", parts: list[Part], size: int) -> bool:
        """Send a reply; False when that takes a while, and `_Request.go_on` is called in the end.

        Args:
            request: what it answers.
            parts: the reply.
            size: bytes of it.
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
            self.server.loop.call_soon(self._send_share)

    def _send_share(self) -> None:
        """Send some of the reply that waited longest, and let it wait behind the others."""
        self._turn_due = False
        if not self._unsent or self._write_paused:
            return
        request, datagrams, size = self._unsent.popleft()
        room = _SHARE
        for datagram in islice(datagrams, _SHARE):
            self._write(datagram, request)
            room -= 1
            if self._write_paused:
                break
        if room == 0 or self._write_paused:
            self._unsent.append((request, datagrams, size))
        else:
            self._unsent_bytes -= size
            request.go_on()
        self._send_soon()

    def forget(self, request: "_Request") -> None:
        """Count a request out."""
        self._requests.remove(request)
        self._bytes -= request.size
        if self._stopping and not self._requests:
            self._transport.close()


class _Request:
    """A datagram's commands, one after the other; to their handler it is their connection.

    Only when a command is answered, and its reply out, the next one has its turn. So replies come
    in order, each by itself, and others are served in between.

    Attributes:
        address: where it seems to come from.
        id: what its sender calls it.
        number: the socket's file descriptor, for the log.
        size: bytes of the datagram, without its frame.
        out: the present command's reply.
        commands: the handler.
    """

    __slots__ = (
        "_allowance", "_asked", "_more", "_parser", "_service", "_text", "_waiting",
        "address", "close_reason", "commands", "id", "number", "out", "size",
    )  # fmt: skip

    can_wait = False

    def __init__(
        self, service: UdpService, address: _Address, request_id: int, payload: bytes
    ) -> None:
        server = service.server
        self._service = service
        self._allowance = service.reply_bytes
        self._asked = 0  # keys of the present command, counted in `UdpService.keys`
        self._more = False  # commands are left
        self._waiting = False  # for the backend
        self.address = address
        self.id = request_id
        self.size = len(payload)
        self.number = service.number
        self.close_reason = "normal"  # which commands set, and nobody is told of
        self.out: list[Part] = []
        protocol = server.config.protocol
        self._text = protocol == "ascii" or (protocol == "auto" and payload[0] != MAGIC)
        dialect = _TEXT if self._text else BINARY
        self._parser = dialect.parser(service.limits)
        self.commands: Any
        connection = cast("DeferredConnection", self)
        if isinstance(server.engine, StoreEngine):
            self.commands = dialect.deferred(server, server.engine, connection)
        else:
            self.commands = dialect.commands(server.engine, server, connection, self.out)

    def serve(self, data: bytes = b"") -> None:
        """Carry out the next command.

        Args:
            data: the request, the first time.
        """
        server, commands = self._service.server, self.commands
        handler: Any = commands
        server.until_sample -= 1
        if server.until_sample <= 0 or server.instrumented:
            handler = server.instrument(cast("Connection", self))
        self._more = False
        try:
            self._more = self._parser.receive(data, handler)
            refused = self._parser.in_command and not self._more  # half a command
        except ProtocolViolation:
            refused = True
        except _TooMuchError:
            server.counters.udp_dropped += 1
            self.end()
            return
        except Exception:  # noqa: BLE001 - a bug met by one datagram must not stop the others
            _log.exception("a request over UDP failed")
            self.end()
            return
        server.counters.udp_refused += refused
        if isinstance(commands, Deferred):
            commands.timed = False
            self._waiting = commands.pending
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
            self.go_on()

    def go_on(self) -> None:
        """Turn to the next command, after others; the reply to the last one is out."""
        service = self._service
        service.keys -= self._asked
        self._asked = 0
        if self._more:
            service.server.loop.call_soon(self._take_turn)
        else:
            self.end()

    def _take_turn(self) -> None:
        if self._more:  # or it was ended meanwhile
            self.serve()

    def end(self) -> None:
        """Be done, or given up; what has begun is carried out all the same."""
        service = self._service
        service.keys -= self._asked
        self._asked = 0
        self._more = self._waiting = False
        if isinstance(self.commands, Deferred):
            self.commands.detach()
        # It refers to this request, and this to it; the collector that would find them is slow.
        del self.commands
        service.forget(self)

    def ask_for(self, keys: int) -> None:
        """Count the keys that a slow backend is to be asked for.

        Raises:
            _TooMuchError: it is asked for too many already.
        """
        if self._service.keys + keys > _KEYS_UNDER_WAY:
            raise _TooMuchError
        self._asked += keys
        self._service.keys += keys

    # What handlers expect of a connection

    def close(self) -> None:
        """Do nothing (``quit``): there is none, and the parser has passed over what follows."""

    def settle(self) -> None:
        """Send the reply that the backend has let wait for."""
        if self._waiting and not self.commands.pending:
            self._waiting = False
            self._answer()


class _TooMuchError(Exception):
    """A request cannot be served now."""


def _streams(words: list[bytes]) -> bool:
    """Whether a command's answer is a stream without a bound, which needs a connection."""
    return words[0] == b"watch" or (
        words[0] == b"lru_crawler" and words[1:2] in ([b"metadump"], [b"mgdump"])
    )


class _Commands(TextCommands):
    """A request's commands, on memory."""

    __slots__ = ()

    def admin(self, words: list[bytes], noreply: bool) -> None:
        """Any other command."""
        if _streams(words):
            self.reject(replies.ERROR, noreply)
        else:
            super().admin(words, noreply)


class _WaitingCommands(DeferredText):
    """A request's commands, on a backend that must be asked."""

    def get(self, keys: list[bytes]) -> None:
        """``get <key>*``."""
        if self._may_ask(keys):
            super().get(keys)

    def gets(self, keys: list[bytes]) -> None:
        """``gets <key>*``."""
        if self._may_ask(keys):
            super().gets(keys)

    def gat(self, exptime: int, keys: list[bytes]) -> None:
        """``gat <exptime> <key>*``."""
        if self._may_ask(keys):
            super().gat(exptime, keys)

    def gats(self, exptime: int, keys: list[bytes]) -> None:
        """``gats <exptime> <key>*``."""
        if self._may_ask(keys):
            super().gats(exptime, keys)

    def _may_ask(self, keys: list[bytes]) -> bool:
        if len(keys) > _KEYS_UNDER_WAY:
            self.reject(_TOO_MANY_KEYS, False)
            return False
        cast("_Request", self._connection).ask_for(len(keys))
        return True

    def admin(self, words: list[bytes], noreply: bool) -> None:
        """Any other command."""
        if _streams(words):
            self.reject(replies.ERROR, noreply)
        else:
            super().admin(words, noreply)


_TEXT = TEXT._replace(commands=_Commands, deferred=_WaitingCommands)
