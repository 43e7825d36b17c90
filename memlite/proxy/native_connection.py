"""Client connections whose input is handled in C, if the C module was built."""

from memlite.core.clock import Clock
from memlite.protocol.limits import MAX_GET_LENGTH
from memlite.proxy.connection import ProxyConnection
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.framing import NATIVE
from memlite.telemetry.counters import Counters

__all__ = ["NativeConnection"]


class NativeConnection(ProxyConnection):
    """Forwards lone gets and changes of known keys without the interpreter.

    Args:
        services: the parts of the server it uses.
        unread_replies: bounds the replies that all connections hold for clients that do not read.
    """

    __slots__ = ()

    if NATIVE is not None:
        data_received = NATIVE.Receiver(
            ProxyConnection, ProxyExecutor, Counters, Clock, MAX_GET_LENGTH
        )
