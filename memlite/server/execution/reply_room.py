"""A limit on the bytes of replies that a connection holds for a peer that does not read them."""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Final, Self

__all__ = ["Place", "ReplyRoom"]

# If no more bytes than this are held, a reply of any size fits, even above the limit.
_ALWAYS: Final = 128 * 1024


class ReplyRoom:
    """Makes reads wait until there is room for their replies; they are then carried out again.

    The size of a reply is known only after the read. A reply that does not fit is dropped, as the
    read can be repeated. The reply that is next to be sent fits as soon as the peer reads, so that
    every read completes eventually.

    Args:
        limit: bytes of replies that may wait for an earlier one, and bytes that the peer may have
            left unread when a further reply is added.

    Attributes:
        waiting: bytes of replies that wait for an earlier one.
        promised: bytes of room promised to reads that are being repeated.
        short: the places of reads that wait for room.
    """

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self.waiting = 0
        self.promised = 0
        self.short: dict[Hashable, Place] = {}

    def claim(self, request: Hashable, size: int, unread: int, *, first: bool) -> "Place | None":
        """Return None if there is room for a reply; otherwise the request's place in the line.

        The request is in the line when this returns, so that it is also offered room that becomes
        free a moment later.

        Args:
            request: the request.
            size: the size of the reply in bytes.
            unread: bytes that the peer has yet to read.
            first: whether its reply is the next to be sent.
        """
        if self.fits(size, unread, first=first):
            return None
        place = self.short[request] = Place(self, request, size)
        return place

    def fits(self, size: int, unread: int, *, first: bool) -> bool:
        """Return whether there is room; see `claim`."""
        held = unread if first else unread + self.waiting + self.promised
        return held <= _ALWAYS or held + size <= self._limit

    def release(self) -> None:
        """Let all reads continue, after the peer has disconnected."""
        for place in list(self.short.values()):
            place.promise()

    def offer(self, requests: Iterable[Hashable], unread: int) -> None:
        """Let the reads continue for which there is room.

        Args:
            requests: all requests of the connection, in order.
            unread: bytes that the peer has yet to read.
        """
        if not self.short:
            return
        first = True
        for request in requests:
            place = self.short.get(request)
            if place is not None:
                if not self.fits(place.size, unread, first=first):
                    return
                place.promise()
            first = False


class Place:
    """The place of a read in the line for room, and later the room promised to it.

    As a context manager, it gives back whichever it holds, however the read ends.

    Args:
        room: the room that it waits for.
        request: the request.
        size: the size of the reply in bytes.

    Attributes:
        size: as above.
    """

    __slots__ = ("_promised", "_request", "_room", "_turn", "size")

    def __init__(self, room: ReplyRoom, request: Hashable, size: int) -> None:
        self._room = room
        self._request = request
        self.size = size
        self._promised = False
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Wait until room is promised."""
        await self._turn

    def promise(self) -> None:
        """Leave the line, with a promise of room."""
        room = self._room
        del room.short[self._request]
        self._promised = True
        room.promised += self.size
        if not self._turn.done():
            self._turn.set_result(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        room = self._room
        if self._promised:
            self._promised = False
            room.promised -= self.size
        elif room.short.get(self._request) is self:
            del room.short[self._request]
