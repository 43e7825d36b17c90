"""Executors whose requests pass the queue: for `--in-flight`, `--trace` and `--slow-log`."""

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from memlite.memory import Part
from memlite.protocol.limits import MAX_GET_LENGTH
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.binary import BinaryProxyExecutor
from memlite.proxy.cluster import Cluster, Target
from memlite.proxy.executor import ProxyExecutor
from memlite.proxy.node import MAX_IN_BATCH, Node
from memlite.proxy.ordering import ForwardingClient
from memlite.proxy.queue import RequestQueue, Sends, Ticket
from memlite.proxy.recognizer import Recognizer
from memlite.proxy.requests import Read, Request, Whole

__all__ = ["QueuedBinaryExecutor", "QueuedTextExecutor"]

_numbers: Final = count(1)

if TYPE_CHECKING:
    _Base = ProxyExecutor
else:
    _Base = object


class _Queued(_Base):
    """Has requests pass the queue.

    Attributes:
        gone: whether the client has disconnected.
        number: of the connection, from 1.
        peer: the client's address; empty before its first request.
        replied: when the last reply was given to the connection, in nanoseconds; 0 for never.
    """

    def __init__(
        self,
        cluster: Cluster,
        admin: ProxyAdmin,
        client: ForwardingClient,
        out: list[Part],
        recognizer: Recognizer | None,
        queue: RequestQueue,
    ) -> None:
        super().__init__(cluster, admin, client, out, recognizer)
        self._requests = queue
        self.gone = False
        self.number = next(_numbers)
        self.peer = ""
        self.replied = 0

    def detach(self) -> None:
        """Disconnect from a lost connection; reads that wait are not sent any more."""
        self.gone = True
        super().detach()

    def take(self, data: bytes) -> int:
        """Forward requests of the usual kinds that do not pass the queue; see `ProxyExecutor`."""
        requests = self._requests
        left = requests.countdown - 1
        if not left:
            return self._take_one(data)
        if (
            len(data) <= MAX_GET_LENGTH
            and not self._queue
            # As in `ProxyExecutor`; the further call would take 1.5% of the time of a request.
            and self.lone.take(self._by_line, data, Node)
        ):
            requests.countdown = left
            return len(data)
        taken = super().take(data)
        if self.lone.alone:  # others are counted as they are forwarded
            requests.countdown = left
        return taken

    def _take_one(self, data: bytes) -> int:
        """Have a request that is known by its line pass the queue."""
        node = self._by_line.get(data) if len(data) <= MAX_GET_LENGTH else None
        if node is None or len(self._queue) >= MAX_IN_BATCH:
            return 0
        self._forward(node, data, Read(self))
        return len(data)

    def _may_batch(self, count: int) -> bool:
        requests = self._requests
        if requests.countdown <= count:
            return False  # one of them passes the queue
        requests.countdown -= count
        return True

    def _forward_batch(self, requests: list[bytes], targets: list[Target], *, reads: bool) -> bool:
        if self._requests.countdown <= len(targets):
            return False  # one of them passes the queue
        done = super()._forward_batch(requests, targets, reads=reads)
        if done:
            self._requests.countdown -= len(targets)
        return done

    def _forward(self, node: Target, data: bytes, request: Request) -> None:
        if self._requests.passes():
            self._submit(request, [(node, data, request)])
        else:
            super()._forward(node, data, request)

    def _forward_all(self, whole: Whole, parts: Sequence[tuple[Target, bytes]]) -> None:
        if self._requests.passes():
            self._submit(whole, [(n, data, whole.part(i)) for i, (n, data) in enumerate(parts)])
        else:
            super()._forward_all(whole, parts)

    def _submit(self, request: Request, sends: Sends) -> None:
        awaited = not self._queue
        if not self.peer and self._client is not None:
            self.peer = self._client.peer
        self._begin(request)
        ticket = Ticket(self._requests, self, sends, request.observer, reads=request.reads)
        request.observer = ticket
        self._requests.submit(ticket, awaited=awaited)
        self._end(request)


class QueuedTextExecutor(_Queued, ProxyExecutor):
    """Forwards a text client's commands by way of the queue."""


class QueuedBinaryExecutor(_Queued, BinaryProxyExecutor):
    """Forwards a binary client's commands by way of the queue."""
