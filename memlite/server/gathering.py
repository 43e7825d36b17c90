"""Answers that take a look at every item, given a little at a time."""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

    from memlite.server.connection import Connection
    from memlite.server.server import Server

__all__ = ["Gathering"]

_STEP_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.001


class Gathering:
    """Has a connection wait for its answer while others are served.

    A `Stream`: what the peer sends meanwhile is served when the answer is out.

    Args:
        server: whose event loop it takes turns on.
        connection: who has asked.
        parts: what the answer is made of, None between looks at a few items.
        spell: makes the answer.
    """

    endless = False

    def __init__(
        self,
        server: "Server",
        connection: "Connection",
        parts: Iterator[Any | None],
        spell: Callable[[list[Any]], bytes],
    ) -> None:
        self._loop = server.loop
        self._connection = connection
        self._parts = parts
        self._spell = spell
        self._found: list[Any] = []
        connection.attach(self)
        # Not at once: the replies to what was asked before go out first.
        self._next: asyncio.Handle = self._loop.call_soon(self._step)

    def _step(self) -> None:
        deadline = perf_counter() + _STEP_SECONDS
        for part in self._parts:
            if part is not None:
                self._found.append(part)
            elif perf_counter() > deadline:
                self._next = self._loop.call_later(_PAUSE_SECONDS, self._step)
                return
        self._connection.send(self._spell(self._found))
        self._connection.detach()

    def resume(self) -> None:
        """Go on: it does so by itself."""

    def lost(self) -> None:
        """Stop: nobody waits for the answer any more."""
        self._next.cancel()
