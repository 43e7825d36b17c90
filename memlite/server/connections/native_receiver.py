"""Input handling in C, from the transport to the runner and back, if the module was compiled."""

import asyncio
import sys
from typing import Any, Final

from memlite.core.build import extension
from memlite.core.clock import Clock
from memlite.server.connections.connection import Connection
from memlite.server.connections.intake import FULL_READ, Intake
from memlite.server.connections.states import TRANSITIONS, Event, State
from memlite.server.execution.runner import Runner
from memlite.telemetry.counters import Counters

__all__ = ["NATIVE", "connection_type", "descriptor"]

_VERSION: Final = 5
"""Must match `_native.c`."""

NATIVE: Final[Any] = extension("memlite.server.connections._native", _VERSION)
"""The module in C; None if it is not used."""


def descriptor(transport: asyncio.Transport) -> int | None:
    """Return the file descriptor of a transport that sends its data unchanged.

    These are uvloop's transports without TLS, which send immediately as much as they can, as the
    receiver does.

    Returns:
        -1 if its socket is closed; None if transports of its type do not qualify.
    """
    loop: Any = sys.modules.get("uvloop.loop")
    if loop is None or type(transport) not in (loop.TCPTransport, loop.UnixTransport):
        return None
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


def connection_type(runner: Runner | None, kind: type[Connection] = Connection) -> type[Connection]:
    """Return the class of connections for a server with this runner.

    Connections pass their input to the runner without the interpreter whenever the runner may be
    used, and all other input to the method of `kind`.

    Args:
        runner: carries out the commands; None without one.
        kind: the base class.
    """
    if runner is None:
        return kind
    if NATIVE is None:
        return _in_python(kind)
    yielded = TRANSITIONS[State.SERVING, Event.SHARE_USED]
    receiver = NATIVE.Receiver(
        kind, Clock, descriptor, Counters, Intake, State.SERVING, yielded, FULL_READ
    )
    methods = {"__slots__": (), "data_received": receiver, "_next_turn": receiver}
    return type(f"Receiving{kind.__name__}", (kind,), methods)


def _in_python(kind: type[Connection]) -> type[Connection]:
    otherwise = kind.data_received

    def data_received(connection: Connection, data: bytes) -> None:
        if not connection.receive_by_runner(data):
            otherwise(connection, data)

    return type(
        f"Running{kind.__name__}", (kind,), {"__slots__": (), "data_received": data_received}
    )
