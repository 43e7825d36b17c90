"""A bound on the replies held for clients, mostly for clients that are slow to read them."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from memlite.core.logs import failure

__all__ = ["MAX_UNREAD", "UnreadReplies"]

MAX_UNREAD: Final = 256 * 1024 * 1024
"""Default maximum bytes of replies that all clients together may leave unread."""

_log = logging.getLogger("memlite")

# While no client can be disconnected, all are checked again after 1/16 of the limit.
_STEP: Final = 16


class _Client(Protocol):
    @property
    def held(self) -> int: ...

    @property
    def number(self) -> int: ...

    def abort(self) -> None: ...


class UnreadReplies:
    """Counts the replies held for clients that are slow to read, and disconnects the slowest.

    A proxy sends no more requests for such a client, but must take the replies to the requests it
    has sent: they arrive on connections that all clients share. A client may have 64 of them, each
    as large as the largest value. Replies that wait for an earlier one count as well; see
    `memlite.proxy.held_replies`.

    Args:
        most: maximum bytes for all clients together. Beyond it, the client with the most is
            disconnected.
        spared: bytes that each client may always have, so that a client that requests one value at
            a time is never disconnected.

    Attributes:
        size: bytes held, as of the last check of each client.
        disconnected: how many clients were disconnected.
    """

    def __init__(self, most: int, spared: int) -> None:
        self._most = most
        self._spared = spared
        self._look_beyond = most
        self.size = 0
        self.disconnected = 0
        self._sizes: dict[_Client, int] = {}

    def count(self, client: _Client) -> None:
        """Update the count of bytes held for a client that is slow to read."""
        sizes = self._sizes
        size = client.held
        self.size += size - sizes.get(client, 0)
        sizes[client] = size
        if self.size > self._look_beyond:
            self._make_room()

    def forget(self, client: _Client) -> None:
        """Stop counting a client that has read its replies or has disconnected."""
        self.size -= self._sizes.pop(client, 0)
        self._look_beyond = min(self._look_beyond, self._next_look())

    def _make_room(self) -> None:
        sizes = self._sizes = {client: client.held for client in self._sizes}
        self.size = sum(sizes.values())
        by_size: Callable[[_Client], int] = sizes.__getitem__
        while self.size > self._most:
            client = max(sizes, key=by_size)
            held = sizes[client]
            if held <= self._spared:
                break
            self.forget(client)
            self.disconnected += 1
            _log.warning(
                "<%d disconnected: %d MB of unread replies, %d MB of all clients together"
                " (--unread-limit)",
                client.number,
                held >> 20,
                (self.size + held) >> 20,
                extra=failure("client_does_not_read"),
            )
            client.abort()
        self._look_beyond = self._next_look()

    def _next_look(self) -> int:
        """Return the size beyond which to check all clients again."""
        if self.size <= self._most:
            return self._most
        return self.size + self._most // _STEP  # no client has more than is spared
