"""The protocol for accepted connections: with TLS if their listener has it."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from memlite.core.clock import Clock
from memlite.server.connections.connection import Connection
from memlite.server.connections.listeners import Listener
from memlite.server.connections.register import Register
from memlite.server.scheduler import Scheduler
from memlite.telemetry.counters import Counters

if TYPE_CHECKING:
    from memlite.server.connections.tls import Tls

__all__ = ["connector"]


def connector(
    tls: "Tls | None",
    connect: Callable[[], Connection],
    *,
    register: Register,
    counters: Counters,
    scheduler: Scheduler,
    clock: Clock,
) -> Callable[[Listener], Callable[[], asyncio.Protocol]]:
    """Return a function from a listener to the protocol factory for its connections.

    Args:
        tls: the TLS settings; None without TLS.
        connect: creates a connection.
        register: the open connections.
        counters: the counters.
        scheduler: schedules work on the event loop.
        clock: the clock.
    """

    def factory(listener: Listener) -> Callable[[], asyncio.Protocol]:
        if not listener.tls or tls is None:
            return connect
        from memlite.server.connections.tls_transport import TlsTransport

        return lambda: TlsTransport(
            tls.context(listener.tls),
            connect,
            register=register,
            counters=counters,
            scheduler=scheduler,
            second=clock.second,
        )

    return factory
