"""What makes a ``flush_all`` final at a memcached.

There it keeps an item that is read for the second time in about the same second. ``flush_all 1``
takes everything that has a time up to the current second, at once, and what is stored in the rest
of it; that second is over when an item can be read back. A memlite needs none of this, and would
carry ``flush_all 1`` out a second later.
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
"""After which the second is over, whatever can be read: some nodes store nothing."""
_PAUSE: Final = 0.02


class _Node(Protocol):
    def send(self, request: bytes, receiver: Answer) -> None: ...


def is_memcached(version: bytes) -> bool:
    """Return whether a reply to ``version`` is that of a memcached."""
    return version.startswith(b"VERSION 1.") and b"memlite" not in version


def _probe() -> tuple[bytes, bytes]:
    """Return what stores an item that nobody else has, and what reads it."""
    key = b"memlite:probe:" + os.urandom(8).hex().encode()
    return b"set %b 0 5 0\r\n\r\n" % key, b"get %b\r\n" % key


async def finish_flush(ask: Callable[[bytes], Awaitable[bytes]]) -> bytes:
    """Wait until everything that a node had at a ``flush_all`` is gone for good.

    Args:
        ask: sends the node a request, and returns the reply.

    Returns:
        ``OK``, or what the node says instead.
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
    """Wait likewise for several memcacheds, without a task.

    Args:
        nodes: at least one.
        then: is given the first reply that is not ``OK``, or that, once all are done.
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
