"""Replies that require a scan of all items, computed incrementally."""

import asyncio
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Final, Generic, TypeVar

from memlite.server.interfaces import Client

__all__ = ["IncrementalReply", "Scan", "finish"]

_STEP_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.001

_Result = TypeVar("_Result")

Scan = Generator[None, None, _Result]
"""Work that yields after every few items, so that it can be interrupted, and returns its result."""


def finish(scan: Scan[_Result]) -> _Result:
    """Run a scan to its end without a pause, and return its result."""
    while True:
        try:
            next(scan)
        except StopIteration as end:
            result: _Result = end.value
            return result


class IncrementalReply(Generic[_Result]):
    """A reply that one connection waits for while other connections are served.

    A `Stream`: commands that arrive in the meantime are served after it.

    Args:
        client: the connection that receives the reply.
        scan: computes the content of the reply.
        encode: converts the scan's result to the reply.
    """

    endless = False

    def __init__(
        self, client: Client, scan: Scan[_Result], encode: Callable[[_Result], bytes]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._scan = scan
        self._encode = encode
        client.attach(self)
        # Not at once: the replies to earlier commands go out first.
        self._next: asyncio.Handle = self._loop.call_soon(self._step)

    def _step(self) -> None:
        scan = self._scan
        deadline = perf_counter() + _STEP_SECONDS
        try:
            next(scan)
            while perf_counter() <= deadline:
                next(scan)
        except StopIteration as end:
            self._client.send(self._encode(end.value))
            self._client.detach()
        else:
            self._next = self._loop.call_later(_PAUSE_SECONDS, self._step)

    def resume(self) -> None:
        """Do nothing: the next step is already scheduled."""

    def lost(self) -> None:
        """Stop the scan: the client has disconnected."""
        self._next.cancel()
