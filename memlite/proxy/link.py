"""A connection to a node, whose input is split into replies."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Protocol, cast

from memlite.client import ReplyError, ReplyScanner
from memlite.core.build import mypyc_attr
from memlite.proxy.expected import shown
from memlite.proxy.single_requests import writer_of

__all__ = ["Link", "LinkOwner", "NodeLostError"]


class NodeLostError(Exception):
    """The connection to a node cannot be used; the text says why."""


class LinkOwner(Protocol):
    """Receives the input of a connection."""

    def usual_received(self, data: bytes) -> int:
        """Take replies of the usual kinds, if the input begins with them.

        Returns:
            The number of bytes taken; the rest must be split into replies.
        """

    def replies_received(self, replies: list[bytes]) -> None:
        """Take replies, in the order of the requests."""

    def link_lost(self, reason: str, *, down: bool) -> None:
        """Note that the connection can no longer be used.

        Args:
            reason: why.
            down: whether the node is at fault, so that reconnecting at once is pointless.
        """

    def resumed(self) -> None:
        """Resume sending."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Link(asyncio.Protocol):
    """One connection to a node.

    Args:
        owner: receives the input.

    Attributes:
        transport: sends requests.
        paused: whether the transport's write buffer is full.
        write: sends bytes, through the transport or bypassing it.
        ended: done when the connection is closed or handed over to another owner.
    """

    __slots__ = (
        "_asking", "_closed", "_owner", "_scanner", "_split", "_usual", "ended", "paused",
        "transport", "write",
    )  # fmt: skip

    transport: asyncio.Transport
    write: Callable[[bytes], object]

    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner
        self._scanner = ReplyScanner()
        self._split = self._scanner.split
        self._asking: asyncio.Future[bytes] | None = None
        self._closed = False
        self._usual = True  # whether a new reply comes next, for the owner
        self.paused = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ask(self, request: bytes, expected: bytes) -> None:
        """Send one of the proxy's own requests, and wait for the reply.

        Args:
            request: its bytes.
            expected: the required beginning of the reply.

        Raises:
            NodeLostError: the reply is a different one, or the connection was lost.
        """
        reply = await self.request(request)
        if not reply.startswith(expected):
            raise NodeLostError(f"unexpected reply: {_text(reply)}")

    async def request(self, request: bytes) -> bytes:
        """Send one of the proxy's own requests, and return the reply.

        Raises:
            NodeLostError: there is more than one reply, or the connection was lost.
        """
        self._asking = asyncio.get_running_loop().create_future()
        self._usual = False
        self.transport.write(request)
        reply = await self._asking
        self._asking = None
        self._note_usual()
        return reply

    def hand_over(self, owner: LinkOwner) -> None:
        """Pass all further input to another owner."""
        self._owner = owner
        self.ended.set_result(None)

    def reset(self) -> None:
        """Close the connection at once, and discard unsent data."""
        if self._closed:
            return
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                # Otherwise the system keeps sending what it has, unless the peer refuses it.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def ip(self) -> str:
        """Return the node's IP address; empty for a UNIX socket."""
        peer = self.transport.get_extra_info("peername")
        return peer[0] if isinstance(peer, tuple) else ""

    def close(self) -> None:
        """Close the connection at once, without telling the owner."""
        self._closed = True
        self._usual = False
        if hasattr(self, "transport"):
            self.transport.abort()
        if not self.ended.done():
            self.ended.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        self.transport = cast("asyncio.Transport", transport)
        self.write = writer_of(self.transport)
        if self._closed:
            transport.close()

    def pause_writing(self) -> None:
        """Note that the transport has enough to send."""
        self.paused = True

    def resume_writing(self) -> None:
        """Have the owner continue to send."""
        self.paused = False
        self._owner.resumed()

    def data_received(self, data: bytes) -> None:
        """Take the next part of the replies."""
        while self._usual:
            taken = self._owner.usual_received(data)
            if taken == len(data):
                return
            if not taken:
                break
            data = data[taken:]
        if not self._closed:
            self._take_any(data)

    def _note_usual(self) -> None:
        self._usual = self._asking is None and not (self._closed or self._scanner.in_reply)

    def _take_any(self, data: bytes) -> None:
        try:
            replies = self._split(data)
        except ReplyError as error:
            reason = shown(error.line) if error.line else f"({error})"
            self._fail(f"unexpected reply {reason}", down=True)
            return
        self._note_usual()
        if self._asking is None:
            self._owner.replies_received(replies)
        elif replies and not self._asking.done():
            if len(replies) == 1:
                self._asking.set_result(replies[0])
            else:
                self._asking.set_exception(NodeLostError(f"unexpected reply: {_text(replies[0])}"))

    def eof_received(self) -> None:
        """Note that the node sends no more."""
        self._fail("the connection was closed", down=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is closed."""
        self.write = self.transport.write
        self._fail(str(exc or "the connection was closed"), down=False)

    def _fail(self, reason: str, *, down: bool) -> None:
        if self._closed:
            return
        if self._asking is not None:
            if not self._asking.done():
                self._asking.set_exception(NodeLostError(reason))
            return
        self._owner.link_lost(reason, down=down)


def _text(reply: bytes) -> str:
    return reply[:80].decode("ascii", "backslashreplace").rstrip()
