"""The proxy's own requests to nodes, with awaitable replies."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from memlite.core.errors import StorageError
from memlite.proxy.node import Receiver

__all__ = ["ask"]


class _Target(Protocol):
    def send(self, request: bytes, receiver: Receiver) -> None: ...


class _Waiter:
    """Receives a node's reply, or its failure."""

    __slots__ = ("future", "reads")

    def __init__(self, *, reads: bool) -> None:
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.reads = reads

    def answer(self, reply: bytes) -> None:
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: bytes) -> None:
        if not self.future.done():
            text = error.removeprefix(b"SERVER_ERROR ").decode("ascii", "backslashreplace")
            self.future.set_exception(StorageError(text))


def ask(node: _Target, request: bytes) -> Awaitable[bytes]:
    """Send a request, and return an awaitable for its reply.

    Raises:
        StorageError: (when awaited) the node has failed; the text says why.
    """
    waiter = _Waiter(reads=request.startswith(b"mg "))
    node.send(request, waiter)
    return waiter.future
