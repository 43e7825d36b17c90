"""Connections to nodes whose input is handled in C, where the C module was built."""

from memlite.proxy.framing import NATIVE
from memlite.proxy.link import Link

__all__ = ["NativeLink"]


class NativeLink(Link):
    """Hands out replies without the interpreter, if they and their receivers are of usual kinds.

    Args:
        owner: takes the replies.
    """

    __slots__ = ()

    if NATIVE is not None:
        data_received = NATIVE.Receiver(Link)
