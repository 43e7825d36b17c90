"""Executors whose requests pass through the queue, for `--in-flight`, `--trace`, `--slow-log`."""

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from memlite.memory import Part
from memlite.protocol.limits import MAX_GET_LENGTH
from memlite.proxy.admin import ProxyAdmin
from memlite.proxy.binary import BinaryProxyExecutor
from memlite.proxy.cluster import Cluster, Target
from memlite.proxy.executor import ProxyExecutor, is_multiget
from memlite.proxy.ordering import MAX_REQUESTS, ForwardingClient
from memlite.proxy.parts import JoinedMultiGet
from memlite.proxy.queue import RequestQueue, Sends, Ticket
from memlite.proxy.recognizer import Recognizer
from memlite.proxy.requests import Read, Request, Whole

__all__ = ["QueuedBinaryExecutor", "QueuedTextExecutor"]

_numbers: Final = count(1)

# Most requests pass through these; calling them through `super` takes more instructions.
_take: Final = ProxyExecutor.take
_forward: Final = ProxyExecutor._forward
_forward_all: Final = ProxyExecutor._forward_all

if TYPE_CHECKING:
    _Base = ProxyExecutor
else:
    _Base = object


class _Queued(_Base):
    """Sends requests through the queue.

    Attributes:
        gone: whether the client has disconnected.
        number: the connection's number, from 1.
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
        self._turns = queue.turns
        self._all = queue.turns.every == 1  # whether every request passes through the queue
        if not self._all:
            self.lone.turns = self._turns
        self.gone = False
        self.number = next(_numbers)
        self.peer = ""
        self.replied = 0

    def detach(self) -> None:
        """Disconnect from a lost connection; waiting reads are no longer sent."""
        self.gone = True
        super().detach()

    def take(self, data: bytes) -> int:
        """Forward requests of the usual kinds; see `ProxyExecutor`.

        The request that passes through the queue is taken by itself; the requests before it are
        taken together, and so are those after it.
        """
        if self._all:
            if is_multiget(data):
                return self._take_multiget(data)
            node = self._by_line.get(data) if len(data) <= MAX_GET_LENGTH else None
            if node is None or len(self._queue) >= MAX_REQUESTS:
                return 0
            self._forward(node, data, Read(self))
            return len(data)
        turns = self._turns
        if (len(data) <= MAX_GET_LENGTH and not turns.is_near()) or is_multiget(data):  # mostly
            return _take(self, data)
        position = 0
        while position < len(data):
            rest = data[position:] if position else data
            taken = self._take_one(rest) if turns.is_near() else _take(self, rest)
            if not taken:
                break
            position += taken
        return position

    def _take_one(self, data: bytes) -> int:
        """Forward the first request by itself."""
        requests: list[bytes] = []
        targets: list[Target] = []
        if self._recognizer is None or self._room() < 1:
            return 0
        taken, reads = self._recognizer.scan(data, 1, requests, targets)
        if targets:
            self._forward(targets[0], requests[0], Read(self) if reads else Request(self))
        return taken

    def _most_together(self) -> int:
        before: int = self._turns.left - 1
        return min(self._room(), before)

    def _send_alone(self, target: Target, data: bytes, *, reads: bool) -> None:
        self._turns.left -= 1
        super()._send_alone(target, data, reads=reads)

    def _forward_joined(self, shares: Sequence[Any], order: bytes, *, reads: bool) -> None:
        self._turns.left -= len(order)
        super()._forward_joined(shares, order, reads=reads)

    def _forward_batch(self, requests: list[bytes], targets: list[Target], *, reads: bool) -> bool:
        done = super()._forward_batch(requests, targets, reads=reads)
        if done:
            self._turns.left -= len(targets)
        return done

    def _forward(self, node: Target, data: bytes, request: Request) -> None:
        if self._turns.passes():
            self._submit(request, [(node, data, request)])
        else:
            _forward(self, node, data, request)

    def _forward_all(self, whole: Whole | Any, parts: Sequence[tuple[Target, bytes]]) -> None:
        if self._turns.passes():
            self._submit(whole, [(n, data, whole.part(i)) for i, (n, data) in enumerate(parts)])
        else:
            _forward_all(self, whole, parts)

    def _submit(self, request: Request | Any, sends: Sends) -> None:
        awaited = not self._queue
        if not self.peer and self._client is not None:
            self.peer = self._client.peer
        self._begin(request)
        ticket = Ticket(self._requests, self, sends, request.observer, reads=request.reads)
        request.observer = ticket
        if type(request) is JoinedMultiGet:
            ticket.awaits(request)
        self._requests.submit(ticket, awaited=awaited)
        self._end(request)


class QueuedTextExecutor(_Queued, ProxyExecutor):
    """Forwards a text client's commands through the queue."""


class QueuedBinaryExecutor(_Queued, BinaryProxyExecutor):
    """Forwards a binary client's commands through the queue."""
