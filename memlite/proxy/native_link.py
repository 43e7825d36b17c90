"""Connections to nodes whose input is taken in C, where a compiler made the module."""

from memlite.proxy.framing import NATIVE
from memlite.proxy.link import Link

__all__ = ["NativeLink"]


class NativeLink(Link):
    """Hands out replies without the interpreter, if they and who gets them are of the usual kinds.

    Args:
        owner: takes what arrives.
    """

    __slots__ = ()

    if NATIVE is not None:
        data_received = NATIVE.Receiver(Link)
