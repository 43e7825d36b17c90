"""Making a ``flush_all`` final at a memcached.

There, ``flush_all`` spares an item that is read for the second time in about the same second.
``flush_all 1`` at once removes everything with a time up to the current second, and everything that
is stored in the rest of that second, which is over when an item can be read back. memlite needs
none of this, and would carry out ``flush_all 1`` a second later.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from memlite.client import FENCE
from memlite.protocol import replies
from memlite.proxy.answers import Answer

__all__ = ["finish_all", "finish_flush", "is_memcached"]

_FLUSH_SECOND: Final = b"flush_all 1\r\n"
_SECONDS: Final = 3.0
"""Seconds after which that second is assumed to be over, as some nodes store nothing."""
_PAUSE: Final = 0.02


class _Node(Protocol):
    def send(self, request: bytes, receiver: Answer) -> None: ...


def is_memcached(version: bytes) -> bool:
    """Return whether a reply to ``version`` is that of a memcached."""
    return version.startswith(b"VERSION 1.") and b"memlite" not in version


def _probe() -> tuple[bytes, bytes]:
    """Return a request that stores a unique item, and one that reads it."""
    key = b"memlite:probe:" + os.urandom(8).hex().encode()
    return b"set %b 0 5 0\r\n\r\n" % key, b"get %b\r\n" % key


async def finish_flush(ask: Callable[[bytes], Awaitable[bytes]]) -> bytes:
    """Wait until all items that a node had at a ``flush_all`` are removed for good.

    Args:
        ask: sends the node a request, and returns the reply.

    Returns:
        ``OK``, or the node's reply if that is another.
    """
    if not is_memcached(await ask(FENCE)):
        return replies.OK
    reply = await ask(_FLUSH_SECOND)
    if reply != replies.OK:
        return reply
    clock = asyncio.get_running_loop().time
    until = clock() + _SECONDS
    while True:
        store, read = _probe()
        await ask(store)
        if (await ask(read)).startswith(b"VALUE ") or clock() >= until:
            return replies.OK
        await asyncio.sleep(_PAUSE)


def finish_all(nodes: Sequence[_Node], then: Callable[[bytes], None]) -> None:
    """Like `finish_flush`, for several memcacheds, without a task.

    Args:
        nodes: at least one.
        then: called with the first reply that is not ``OK``, else with ``OK``, once all are done.
    """
    _Finishing(nodes, then).start()


class _Finishing:
    def __init__(self, nodes: Sequence[_Node], then: Callable[[bytes], None]) -> None:
        self._nodes = nodes
        self._then = then
        self._missing = len(nodes)
        self._bad = b""
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + _SECONDS

    def start(self) -> None:
        for node in self._nodes:
            node.send(_FLUSH_SECOND, Answer(partial(self._flushed, node)))

    def _flushed(self, node: _Node, reply: bytes, failed: bool) -> None:
        if failed or reply != replies.OK:
            self._end(reply)
        else:
            self._ask(node)

    def _ask(self, node: _Node) -> None:
        store, read = _probe()
        node.send(store, Answer(lambda *_: None, reads=True))
        node.send(read, Answer(partial(self._looked, node), reads=True))

    def _looked(self, node: _Node, reply: bytes, failed: bool) -> None:
        if failed:
            self._end(reply)
        elif reply.startswith(b"VALUE ") or self._loop.time() >= self._until:
            self._end(b"")
        else:
            self._loop.call_later(_PAUSE, self._ask, node)

    def _end(self, bad: bytes) -> None:
        self._bad = self._bad or bad
        self._missing -= 1
        if not self._missing:
            self._then(self._bad or replies.OK)
