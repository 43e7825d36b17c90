"""A client connection of a proxy: requests of the usual kinds bypass the parser."""

import asyncio
from collections.abc import Callable
from typing import Any

from memlite.core.build import mypyc_attr
from memlite.proxy.ordering import OrderedReplies
from memlite.proxy.single_requests import writer_of
from memlite.proxy.unread_replies import UnreadReplies
from memlite.server.connections.connection import Connection, ConnectionServices
from memlite.server.execution.dialects import Dialect

__all__ = ["ProxyConnection"]


@mypyc_attr(allow_interpreted_subclasses=True)
class ProxyConnection(Connection):
    """Passes input to the executor, and input that the executor does not take to the parser.

    Args:
        services: the parts of the server it uses.
        unread_replies: bounds the replies that all connections hold for clients that do not read.
    """

    __slots__ = ("_unread_replies", "_write")

    _write: Callable[[bytes], object]

    def __init__(self, services: ConnectionServices, unread_replies: UnreadReplies) -> None:
        super().__init__(services)
        self._unread_replies = unread_replies

    def data_received(self, data: bytes) -> None:
        """Serve the input."""
        counters = self._counters
        left = counters.until_slow_sample - 1
        if self._immediate_limit < 0 or not left:  # not on the fast path, or the read is sampled
            Connection.data_received(self, data)
            return
        executor: Any = self.executor
        taken: int = executor.take(data)
        if not taken:
            Connection.data_received(self, data)
            return
        counters.bytes_read += taken
        counters.until_slow_sample = left
        self.last_command = self._clock.second
        if self._out:
            self._flush()
        if taken < len(data):
            Connection.data_received(self, data[taken:])

    def reply(self, reply: bytes) -> None:
        """Send the reply to the only request in progress."""
        if self._immediate_limit < 0:
            self.out.append(reply)
            self.replies_ready()
            return
        self._counters.bytes_written += len(reply)
        self._transport.write(reply)
        if not self.writable:
            self.count_unread()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or reject it if there are too many."""
        Connection.connection_made(self, transport)
        self._write = writer_of(self._transport)
        self._set_fast_writes()

    def speak(self, dialect: Dialect) -> None:
        """Switch to a protocol; see `Connection`."""
        before: Any = getattr(self, "executor", None)
        Connection.speak(self, dialect)
        if isinstance(before, OrderedReplies):
            before.detach()  # it and its `lone` refer to each other

    def _enter_fast_path(self) -> None:
        Connection._enter_fast_path(self)
        self._set_fast_writes()

    def _leave_fast_path(self) -> None:
        Connection._leave_fast_path(self)
        self._set_fast_writes()

    def _set_fast_writes(self) -> None:
        """Let replies bypass this object while they need only be written."""
        executor: Any = getattr(self, "executor", None)
        if isinstance(executor, OrderedReplies) and executor.writes_lone:
            # A connection that the client has half-closed is closed here after its last reply.
            fast = self._immediate_limit >= 0 and hasattr(self, "_write") and not self._eof
            executor.lone.write = self._write if fast else None
            executor.lone.counters = self._counters

    def eof_received(self) -> bool:
        """Stay open while earlier commands have yet to be answered, and close after the last."""
        self._leave_fast_path()
        return Connection.eof_received(self)

    def replies_ready(self) -> None:
        """Send replies that have become ready, and continue if there is room again."""
        Connection.replies_ready(self)
        if not self.writable:
            self.count_unread()

    def _continue(self) -> None:
        """Write replies that have waited, and serve input that has."""
        Connection._continue(self)
        if not self.writable:
            self.count_unread()

    @property
    def waiting(self) -> int:
        """The bytes of replies that wait for an earlier one, which has not arrived."""
        executor: Any = self.executor
        held: int = 0 if executor is None else executor.held
        return held

    @property
    def held(self) -> int:
        """The bytes of replies that wait, or that the peer has yet to read."""
        return self.unread + self.waiting

    def count_unread(self) -> None:
        """Count the bytes held for the peer."""
        if not self._transport.is_closing():  # a closing one gets no more replies
            self._unread_replies.count(self)

    def resume_writing(self) -> None:
        """Continue: the peer has read its replies."""
        self._unread_replies.forget(self)
        Connection.resume_writing(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything except requests that are already with the nodes."""
        self._unread_replies.forget(self)
        Connection.connection_lost(self, exc)
