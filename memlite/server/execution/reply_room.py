"""How many bytes of replies a connection holds for a peer that does not read them."""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Final

__all__ = ["ReplyRoom"]

# What a connection's transport takes without asking to wait; more is left unread by the peer.
_ALWAYS: Final = 128 * 1024


class ReplyRoom:
    """Makes reads wait until there is room for their replies; they are then carried out again.

    The size of a reply is known only once it has been read. It is dropped if it does not fit, for a
    read can be repeated. The one whose turn it is to be sent fits as soon as the peer reads, so
    that all of them come to an end.

    Args:
        limit: bytes of replies that may wait for an earlier one, and bytes that the peer may have
            yet to read when a further reply is added.

    Attributes:
        waiting: bytes of replies that wait for an earlier one.
        short: the reads that wait for room.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self.waiting = 0
        self._promised = 0  # to reads that are carried out again
        self.short: dict[Hashable, tuple[int, asyncio.Future[None]]] = {}

    def fits(self, size: int, unread: int, *, first: bool) -> bool:
        """Return whether there is room.

        Args:
            size: of the reply, in bytes.
            unread: bytes that the peer has yet to read.
            first: whether it is its turn to be sent.
        """
        held = unread if first else unread + self.waiting + self._promised
        return held <= _ALWAYS or held + size <= self._limit

    async def wait(self, request: Hashable, size: int) -> None:
        """Wait until there is room for the reply to a request, which is then promised to it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.short[request] = size, future
        await future

    def kept(self, size: int) -> None:
        """Note that what was promised was used, or is not needed."""
        self._promised -= size

    def release(self) -> None:
        """Have all reads go on, as there is nobody to read the replies."""
        for size, future in self.short.values():
            self._promised += size
            if not future.done():
                future.set_result(None)
        self.short.clear()

    def offer(self, requests: Iterable[Hashable], unread: int) -> None:
        """Have reads go on that there is room for.

        Args:
            requests: all requests of the connection, in order.
            unread: bytes that the peer has yet to read.
        """
        if not self.short:
            return
        first = True
        for request in requests:
            short = self.short.get(request)
            if short is not None:
                size, future = short
                if not self.fits(size, unread, first=first):
                    return
                del self.short[request]
                self._promised += size
                if not future.done():
                    future.set_result(None)
            first = False
