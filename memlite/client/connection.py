"""A connection that carries any number of concurrent requests; replies arrive in order."""

import asyncio
import ssl
from collections import deque
from types import TracebackType
from typing import Self, cast

from memlite.client.address import Address
from memlite.client.errors import ConnectionLostError, OutcomeUnknownError
from memlite.client.login import Login
from memlite.client.replies import (
    LINE_LENGTH,
    VALUE_LENGTH,
    Reply,
    ReplyError,
    ReplyReader,
    Shape,
)
from memlite.client.stream import ReplyStream
from memlite.client.transport import open_transport

__all__ = ["Connection", "connect"]

# Requests queued in one iteration of the event loop are sent together, up to this many bytes.
_SEND_BYTES = 256 * 1024
# Reading pauses while a stream holds this many parts not yet taken.
_UNREAD_PARTS = 10_000


async def connect(
    address: Address,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    login: Login | None = None,
    timeout: float | None = 5.0,  # noqa: ASYNC109 - it is the connection's as well
    line_length: int = LINE_LENGTH,
    value_length: int = VALUE_LENGTH,
    reply_length: int | None = None,
) -> "Connection":
    """Connect to a server.

    Args:
        address: the server's address.
        tls: encrypts the connection; None for plain text.
        server_name: the name that the server's certificate must have, if not the host.
        login: carried out first; None for none.
        timeout: seconds for connecting and login together, then the timeout of the `Connection`;
            None for no limit.
        line_length: limit for a line of a reply, in bytes.
        value_length: limit for a value, in bytes.
        reply_length: limit for a whole reply, in bytes; None for none.

    Raises:
        OSError: there is no connection.
        LoginRefusedError: the server does not accept the login.
        TimeoutError: it took too long.
    """

    def new() -> Connection:
        return Connection(
            name=str(address),
            timeout=timeout,
            line_length=line_length,
            value_length=value_length,
            reply_length=reply_length,
        )

    async with asyncio.timeout(timeout):
        return await open_transport(new, address, tls=tls, server_name=server_name, login=login)


class Connection(asyncio.Protocol):
    """One connection to a server, opened by `connect`. An async context manager, which closes it.

    Requests are pipelined: one may be sent while others are outstanding. Requests queued in one
    iteration of the event loop are sent with one write.

    A request is given as bytes, with the shape of its reply. If the shape is wrong, the connection
    fails with the next reply, or no reply arrives. A request with ``noreply`` needs `FENCE` after
    it and `Shape.FENCED`.

    Cancelling a request, such as with ``asyncio.timeout``, discards its reply when it arrives; the
    connection remains usable.

    Args:
        name: the server's name, for messages.
        timeout: seconds for which the connection may make no progress while requests are
            outstanding: no part of a reply is completed, no byte of a value arrives and no byte of
            a request is sent. After that it is closed. None for no limit.
        line_length: limit for a line of a reply, in bytes.
        value_length: limit for a value, in bytes.
        reply_length: limit for a whole reply, in bytes; None for none.
    """

    def __init__(
        self,
        *,
        name: str,
        timeout: float | None,
        line_length: int = LINE_LENGTH,
        value_length: int = VALUE_LENGTH,
        reply_length: int | None = None,
    ) -> None:
        self.sent = 0
        self.received = 0
        self._name = name
        self._timeout = timeout
        self._reader = ReplyReader(
            line_length=line_length, value_length=value_length, reply_length=reply_length
        )
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # Requests without a complete reply, in order.
        self._pending: deque[_Pending] = deque()
        # Requests not yet handed to the transport: the last of the pending ones.
        self._queue: list[bytes] = []
        self._queued = 0  # bytes
        self._flushing = False  # whether a call of `_flush` is scheduled
        self._paused = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lost: ConnectionLostError | None = None
        self._begun = False  # whether a request was made
        # Data that the server sent before the first request, such as a too-many-connections error,
        # is taken as the reply to that request.
        self._greeting = b""
        # How the connection ended, if it ended after a greeting.
        self._greeting_end: tuple[str, Exception | None] | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._watch: asyncio.TimerHandle | None = None
        self._progress = 0.0  # time of the last progress, by the loop's clock
        self._unsent = 0  # bytes in the transport's buffer at the last check

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def lost(self) -> ConnectionLostError | None:
        """Why the connection can no longer be used; None while it can."""
        return self._lost

    @property
    def spent(self) -> bool:
        """Whether the last reply ended the conversation, as a refused ``watch`` does."""
        return self._reader.spent

    @property
    def outstanding(self) -> int:
        """The number of requests without a complete reply."""
        return len(self._pending)

    # Requests

    async def request(self, data: bytes, shape: Shape = Shape.LINE) -> Reply:
        """Send a request, once the connection can take it, and return the reply.

        Args:
            data: the request.
            shape: the shape of the reply; not `Shape.STREAM`, which does not end.

        Raises:
            ConnectionLostError: the connection was lost before; nothing was sent.
            OutcomeUnknownError: the connection was lost before the reply was complete.
        """
        await self.writable()
        return await self.send(data, shape)

    def send(self, data: bytes, shape: Shape = Shape.LINE) -> asyncio.Future[Reply]:
        """Send a request without waiting, and return a future for the reply.

        Callers that send many requests should await `writable` in between.

        Raises:
            ConnectionLostError: as for `request`; the future may fail with OutcomeUnknownError.
        """
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._send(data, shape, _Pending(data, future, None))
        return future

    def stream(self, data: bytes, shape: Shape) -> "ReplyStream":
        """Send a request whose reply is consumed part by part, as it arrives.

        Raises:
            ConnectionLostError: as for `request`.
        """
        stream = ReplyStream(self)
        self._send(data, shape, _Pending(data, None, stream))
        return stream

    async def writable(self) -> None:
        """Wait until the peer has received enough of the requests sent before."""
        while self._paused and self._lost is None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter

    def _send(self, data: bytes, shape: Shape, pending: "_Pending") -> None:
        if self._lost is not None:
            raise ConnectionLostError(str(self._lost), self._lost.cause)
        if not self._pending:
            self.note_progress()
        self._pending.append(pending)
        self._reader.expect(shape)
        pending.shape = shape
        if not self._begun:
            self._begun = True
            if self._greeting:
                self._loop.call_soon(self._receive_greeting)
        self._queue.append(data)
        self._queued += len(data)
        if self._queued >= _SEND_BYTES:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flushing = False
        self._flush()

    def _flush(self) -> None:
        queue = self._queue
        if not queue or self._transport is None or self._transport.is_closing():
            return
        data = queue[0] if len(queue) == 1 else b"".join(queue)
        queue.clear()
        self._queued = 0
        self.sent += len(data)
        self._note_sending(self._transport)
        self._transport.write(data)
        self._unsent = self._transport.get_write_buffer_size()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """Make senders wait."""
        self._paused = True

    def resume_writing(self) -> None:
        """Let senders continue."""
        self._paused = False
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Hand out replies."""
        if self._begun and not self._greeting:
            self._receive(data)
            return
        self._greeting += data
        if len(self._greeting) > LINE_LENGTH and self._transport is not None:
            self._transport.pause_reading()

    def _receive_greeting(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        data, self._greeting = self._greeting, b""
        self._receive(data)
        if self._greeting_end is not None:
            self._lose(*self._greeting_end)

    def _receive(self, data: bytes) -> None:
        if self._lost is not None:
            return
        reader, pending = self._reader, self._pending
        self.received += len(data)
        outstanding, in_value = len(pending), reader.in_value
        fault: ReplyError | None = None
        try:
            for reply in reader.feed(data):
                pending.popleft().complete(reply)
        except ReplyError as error:
            fault = error
        if in_value or len(pending) < outstanding:
            self.note_progress()
        self._hand_out_parts()
        if fault is not None:
            self._lose(str(fault), fault)
        elif reader.spent:
            self._lose("no more requests are possible", None)

    def _hand_out_parts(self) -> None:
        stream = self._pending[0].stream if self._pending else None
        if stream is None:
            return
        parts = self._reader.take_parts()
        if parts:
            self.note_progress()
            stream.add(parts)
            if stream.unread >= _UNREAD_PARTS and self._transport is not None:
                self._transport.pause_reading()

    def eof_received(self) -> None:
        """Note that the server has closed the connection."""
        self._end("closed by the server", None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is closed."""
        self._end(f"{exc or 'closed by the server'}", exc)
        if not self._ended.done():
            self._ended.set_result(None)

    # The end

    def _end(self, text: str, cause: Exception | None) -> None:
        if not self._greeting:
            self._lose(text, cause)
        elif self._greeting_end is None:
            self._greeting_end = (text, cause)

    async def close(self) -> None:
        """Close the connection. Outstanding requests fail with OutcomeUnknownError."""
        self.abort()
        await self._ended

    def abort(self) -> None:
        """Close the connection without waiting until it is closed."""
        self._lose("closed", None)

    def _lose(self, text: str, cause: Exception | None) -> None:
        if self._lost is not None:
            return
        text = f"{self._name}: {text}"
        self._lost = ConnectionLostError(text, cause)
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        sent = len(self._pending) - len(self._queue)
        for number, pending in enumerate(self._pending):
            if pending.shape is Shape.LAST and cause is None:
                pending.complete(Reply(()))
            elif number < sent:
                pending.fail(OutcomeUnknownError(text, cause, pending.request))
            else:
                pending.fail(ConnectionLostError(text, cause))
        self._pending.clear()
        self._queue.clear()
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # Progress

    def note_progress(self) -> None:
        """Restart the timeout."""
        self._progress = self._loop.time()
        if self._watch is None and self._timeout is not None and self._lost is None:
            self._watch = self._loop.call_later(self._timeout, self._check_progress)

    def parts_taken(self) -> None:
        """Continue reading after the parts of a stream were taken."""
        self.note_progress()
        if self._transport is not None and self._lost is None:
            self._transport.resume_reading()

    def _note_sending(self, transport: asyncio.Transport) -> None:
        """Count bytes received by the peer as progress."""
        unsent = transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._progress = self._loop.time()
        self._unsent = unsent

    def _check_progress(self) -> None:
        self._watch = None
        if not self._pending or self._timeout is None or self._transport is None:
            return  # the next request restarts it
        unsent = self._transport.get_write_buffer_size()
        stream = self._pending[0].stream
        if (
            unsent < self._unsent
            or self._reader.streaming
            or (stream is not None and stream.unread)
        ):
            self._progress = self._loop.time()
        self._unsent = unsent
        left = self._progress + self._timeout - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._check_progress)
        else:
            self._lose(f"no reply in {self._timeout:g} s", TimeoutError())


class _Pending:
    """A request whose reply is incomplete: either a future or a stream receives it."""

    __slots__ = ("future", "request", "shape", "stream")

    def __init__(
        self, request: bytes, future: asyncio.Future[Reply] | None, stream: ReplyStream | None
    ) -> None:
        self.request = request
        self.future = future
        self.stream = stream
        self.shape = Shape.LINE

    def complete(self, reply: Reply) -> None:
        if self.stream is not None:
            self.stream.add(reply.parts)
            self.stream.end(None)
        elif self.future is not None and not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: ConnectionLostError) -> None:
        if self.stream is not None:
            self.stream.end(error)
        elif self.future is not None and not self.future.done():
            self.future.set_exception(error)
