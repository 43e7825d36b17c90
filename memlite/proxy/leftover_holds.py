"""Holds that are found at a key's primary because the nodes have changed.

A hold protects a copy from a change at the primary. At the primary itself it protects nothing
once the change that it was placed for is over: a ``set`` replaces it at any time. Commands that
build on the item would mistake it for one.
"""

from collections.abc import Callable
from typing import Final, Protocol

from memlite.proxy.answers import Answer
from memlite.proxy.node import Receiver
from memlite.proxy.replica_requests import HELD, LEASED, Key, drop, is_hold, look, number, state

__all__ = ["builds_on_item", "odd", "remove_leftover"]

_ODD: Final = b"SERVER_ERROR node %b: has only a copy; the nodes have changed\r\n"


class _Primary(Protocol):
    @property
    def name(self) -> str: ...

    def send(self, request: bytes, receiver: Receiver) -> None: ...


def odd(node: _Primary) -> bytes:
    """Return the reply to a request for a key for which a node has only a hold."""
    return _ODD % node.name.encode("ascii", "backslashreplace")


def builds_on_item(request: bytes) -> bool:
    """Return whether a change depends on the current item."""
    return not request.startswith(b"set ")


def remove_leftover(node: _Primary, key: Key, newest: float, then: Callable[[bytes], None]) -> None:
    """Remove a hold that a change has left at the key's primary.

    Args:
        node: the primary.
        key: the key.
        newest: a hold with at most this many seconds left belongs to a change that is over.
        then: called with empty bytes if no hold is left, else with the reply to a request for the
            key.
    """

    def seen(reply: bytes, failed: bool) -> None:
        if failed or number(reply, b"f") not in (HELD, LEASED):
            then(b"")
        else:
            node.send(look(key), Answer(looked, reads=True))

    def looked(reply: bytes, failed: bool) -> None:
        if failed or not is_hold(reply):
            then(b"")
            return
        left = number(reply, b"t")
        held = number(reply, b"f") == HELD
        if held and (left is None or not 0 <= left <= newest):
            then(odd(node))
            return
        # If another hold has replaced it, the request that follows finds that one.
        node.send(drop(key, number(reply, b"c") or 0), Answer(lambda *_: then(b"")))

    node.send(state(key), Answer(seen, reads=True))
