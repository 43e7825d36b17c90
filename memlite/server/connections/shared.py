"""Connections of a server that is one of several processes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from memlite.server.connections.connection import Connection, ConnectionServices
from memlite.server.connections.states import State

if TYPE_CHECKING:
    from memlite.engine.shared import SharedItems

__all__ = ["PassedConnection", "SharedConnection"]


_G = ord("g")


class PassedConnection(Connection):
    """A connection accepted by another process, which reports when it is closed.

    Args:
        services: the parts of the server it uses.

    Attributes:
        on_lost: called when it is closed; None for no callback.
    """

    __slots__ = ("on_lost",)

    def __init__(self, services: ConnectionServices) -> None:
        super().__init__(services)
        self.on_lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything; see `Connection.connection_lost`."""
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()


class SharedConnection(PassedConnection):
    """Answers a get of one key by looking up its request line in the shared table.

    Used without a runner, and while the slow log is on, as the runner is not used then.

    Args:
        services: the parts of the server it uses.
    """

    __slots__ = ("_find",)

    def __init__(self, services: ConnectionServices) -> None:
        super().__init__(services)
        self._find = cast("SharedItems", self._table).find_reply

    def data_received(self, data: bytes) -> None:
        """Serve the input; the fast path of `Connection.data_received`."""
        counters = self._counters
        size = len(data)
        counters.bytes_read += size
        # No item has a shortcut while commands are observed; see `Usage.watch`.
        if size <= self._fast_limit and self._used[0]:
            find = self._find
            reply = find(data)
            if reply is not None:
                left = counters.until_sample - 1
                if not left:
                    self._serve(data, fast=True)
                    return
                counters.until_sample = left
                counters.bytes_written += len(reply)
                self.last_command = self._clock.second
                self._transport.write(reply)
                return
            if data[0] == _G and self._send_immediate_reply(data):
                return
        if self._state is not State.SERVING:
            self._keep_for_later(data)
        elif self._services.runner is None or not self._return_to_runner(data):
            self._serve(data)
