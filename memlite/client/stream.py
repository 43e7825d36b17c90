"""Replies that are consumed part by part, such as those of dumps and ``watch``."""

import asyncio
from typing import Protocol, Self

from memlite.client.errors import ConnectionLostError
from memlite.client.replies import Part

__all__ = ["ReplyStream", "StreamSource"]


class StreamSource(Protocol):
    """The interface that a stream needs from its connection."""

    def note_progress(self) -> None:
        """Restart the timeout."""

    def parts_taken(self) -> None:
        """Continue reading after the parts of a stream were taken."""

    def abort(self) -> None:
        """Close the connection without waiting until it is closed."""


class ReplyStream:
    """The parts of a reply as they arrive: an async iterator of lists, none of them empty.

    If the connection is lost, iteration raises ConnectionLostError after the parts that have
    arrived. Call `close` to stop before the end.

    Args:
        source: the connection.
    """

    def __init__(self, source: StreamSource) -> None:
        self._source = source
        self._parts: list[Part] = []
        self._done = False
        self._error: ConnectionLostError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Part]:
        if not self._parts and not self._done:
            self._source.note_progress()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._parts:
            parts, self._parts = self._parts, []
            self._source.parts_taken()
            return parts
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    @property
    def unread(self) -> int:
        """The number of parts that have arrived but were not taken."""
        return len(self._parts)

    def close(self) -> None:
        """Give up the reply, and with it the connection, unless the reply has ended."""
        if not self._done:
            self._source.abort()

    # Called by the connection

    def add(self, parts: list[Part] | tuple[Part, ...]) -> None:
        """Add parts that have arrived."""
        self._parts += parts
        self._wake()

    def end(self, error: ConnectionLostError | None) -> None:
        """Note that no more parts follow."""
        self._done = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
