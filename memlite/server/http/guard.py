"""A connection to the HTTP port, and the limits imposed on it."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

__all__ = ["Guard"]

_HEAD_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 90.0
_UNREAD_SECONDS: Final = 10.0
_MAX_PIPELINED_BYTES: Final = 64 * 1024


class Guard(asyncio.Protocol):
    """Passes a connection on to aiohttp, and detects when it is overdue.

    aiohttp limits the size of a request, but neither how slowly it arrives nor how slowly a reply
    is read. How much pipelined input it buffers before a reply is complete depends on its version,
    so that is limited here.

    Args:
        inner: aiohttp's protocol.
        clock: returns seconds, never decreasing.
        closed: called when the connection is closed.

    Attributes:
        answering: how many requests are being answered.
        trusted: whether a request came with the token.
        since: when it began to wait for a request or for the rest of one.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        clock: Callable[[], float],
        closed: "Callable[[Guard], None]",
    ) -> None:
        self.inner = inner
        self.answering = 0
        self.trusted = False
        self._clock = clock
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._served = False
        self.since = self._read = clock()
        self._arriving = False
        self._ahead = 0

    def began(self) -> None:
        """Record that a request has arrived completely."""
        self.answering += 1
        self._arriving = False
        self._ahead = 0

    def ended(self) -> None:
        """Record that its reply was handed over."""
        self.answering -= 1
        self._served = True
        self.since = self._clock()

    def overdue(self) -> bool:
        """Return whether the peer is too slow; call this about once a second."""
        now = self._clock()
        transport = self._transport
        if transport is None or not transport.get_write_buffer_size():
            self._read = now
        if now - self._read > _UNREAD_SECONDS:
            return True
        if self.answering:
            return False
        waits_for_head = self._arriving or not self._served
        return now - self.since > (_HEAD_SECONDS if waits_for_head else _IDLE_SECONDS)

    @property
    def unfinished(self) -> bool:
        """Whether a request is being answered, or its reply is yet to be sent."""
        transport = self._transport
        return self.answering > 0 or (
            transport is not None and transport.get_write_buffer_size() > 0
        )

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not subclass it
        self.since = self._read = self._clock()
        self.inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the close."""
        self._transport = None
        self.inner.connection_lost(exc)
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Pass on input; too much of it during a reply aborts the connection."""
        if self.answering:
            self._ahead += len(data)
            if self._ahead > _MAX_PIPELINED_BYTES:
                self.abort()
                return
        elif not self._arriving:
            self._arriving = True
            self.since = self._clock()
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on the end of the input."""
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the peer does not read."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that it reads again."""
        self.inner.resume_writing()
