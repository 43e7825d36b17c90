"""A client connection of a proxy: requests of the usual kinds pass without the parser."""

from typing import Final, Protocol, cast

from memlite.proxy.unread import UnreadReplies
from memlite.server.connections.connection import Connection, ConnectionServices

__all__ = ["ProxyConnection"]

_COMMANDS: Final = frozenset(b"gsidartpm")
"""The first letters of the commands that an executor may take as they are."""


class _Executor(Protocol):
    def take(self, data: bytes) -> int: ...


class ProxyConnection(Connection):
    """Gives what arrives to the executor, and to the parser what the executor does not take.

    Args:
        services: the parts of the server it uses.
        unread_replies: bounds what all connections hold for clients that do not read.
    """

    __slots__ = ("_unread_replies",)

    def __init__(self, services: ConnectionServices, unread_replies: UnreadReplies) -> None:
        super().__init__(services)
        self._unread_replies = unread_replies

    def data_received(self, data: bytes) -> None:
        """Serve the input."""
        if self._ready_limit < 0 or data[0] not in _COMMANDS:  # the first: not on the fast path
            Connection.data_received(self, data)
            return
        counters = self._counters
        left = counters.until_slow_sample - 1
        if not left:
            Connection.data_received(self, data)  # the read is sampled
            return
        taken = cast("_Executor", self.executor).take(data)
        if not taken:
            Connection.data_received(self, data)
            return
        counters.bytes_read += taken
        counters.until_slow_sample = left
        self.last_command = self._clock.second
        if self.out:
            self._flush()
        if taken < len(data):
            Connection.data_received(self, data[taken:])

    def reply(self, reply: bytes) -> None:
        """Send the reply to the only request in progress."""
        if self._ready_limit < 0 or self._eof or self._transport.is_closing():
            self.out.append(reply)
            self.settle()
            return
        self.last_command = self._clock.second
        self._counters.bytes_written += len(reply)
        self._write(reply)
        if not self.writable:
            self._count_unread()

    def settle(self) -> None:
        """Send replies that have become ready, and continue if there is room again."""
        Connection.settle(self)
        if not self.writable:
            self._count_unread()

    def _continue(self) -> None:
        """Write what has waited, and serve the input that has."""
        Connection._continue(self)
        if not self.writable:
            self._count_unread()

    def _count_unread(self) -> None:
        if not self._transport.is_closing():  # no more replies are written to one that is
            self._unread_replies.count(self)

    def resume_writing(self) -> None:
        """Continue: the peer has read its replies."""
        self._unread_replies.forget(self)
        Connection.resume_writing(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything except requests that are already with the nodes."""
        self._unread_replies.forget(self)
        Connection.connection_lost(self, exc)
