"""The replies to a client's requests, in the order of the requests."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from memlite.core.build import mypyc_attr
from memlite.memory import Part
from memlite.proxy.cluster import Cluster
from memlite.proxy.merge import Merger
from memlite.proxy.node import MAX_IN_BATCH
from memlite.proxy.parts import merged
from memlite.proxy.requests import Request
from memlite.proxy.single_requests import Lone
from memlite.server.execution.command_set import CommandObserver

__all__ = ["MAX_REQUESTS", "ForwardingClient", "OrderedReplies"]

# Limits at which a connection stops reading, as in `StoreExecutor`.
MAX_REQUESTS: Final = MAX_IN_BATCH
"""The most requests of a client that are with the nodes at a time."""
_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024


class _KeepingParser(Protocol):
    @property
    def request(self) -> bytes: ...


class ForwardingClient(Protocol):
    """A client whose requests are forwarded.

    Attributes:
        out: receives the replies, in order.
        parser: holds the bytes of the request being carried out.
        peer: its address.
    """

    out: list[Part]

    @property
    def peer(self) -> str: ...  # noqa: D102 - see the class

    @property
    def parser(self) -> _KeepingParser: ...  # noqa: D102 - see the class

    def replies_ready(self) -> None:
        """Send the replies in `out`."""

    def reply(self, reply: bytes) -> None:
        """Send the reply to the only request in progress."""

    def count_unread(self) -> None:
        """Note that the client has yet to read data written to it."""

    def close(self) -> None:
        """Close once all replies are sent."""


@mypyc_attr(allow_interpreted_subclasses=True)
class OrderedReplies:
    """Sends a client the replies to its requests in the order of the requests.

    A request that arrives alone has no object of its own: `lone` takes its reply.

    Args:
        cluster: the nodes.
        client: the connection.
        out: the list to which replies are appended.

    Attributes:
        lone: stands for the request that arrives alone.
        writes_lone: whether its reply may be written without this object.
    """

    def __init__(self, cluster: Cluster, client: ForwardingClient, out: list[Part]) -> None:
        self._cluster = cluster
        self._client: ForwardingClient | None = client
        self._out = out
        self._queue: deque[Any] = deque()  # requests, of which some are in C
        self._observer: CommandObserver | None = None  # of the command being submitted
        self.lone = Lone(self)
        self.lone.others, self.lone.out = self._queue, out
        self.lone.dues, self.lone.partly = cluster.due, cluster.partly
        self.lone.timing = self._timing = cluster.timing
        self.writes_lone = True
        self._first: Request | None = None  # stands for the lone request once others follow it

    @property
    def pending(self) -> bool:
        """Whether there are commands still to be answered."""
        return bool(self.lone.alone or self._queue)

    @property
    def full(self) -> bool:
        """Whether too much is in progress to read more input."""
        queue = self._queue
        if len(queue) >= MAX_REQUESTS:
            return True
        return len(queue) > 1 and (
            sum(request.count for request in queue) >= MAX_REQUESTS
            or sum(len(request.reply or b"") for request in queue) > _MAX_WAITING_BYTES
        )

    @property
    def held(self) -> int:
        """The bytes of replies that wait for an earlier reply."""
        queue = self._queue
        return sum([request.held for request in queue]) if queue else 0

    def peer_has_read(self) -> None:
        """Do nothing: replies are few enough to wait, see `memlite.proxy.unread_replies`."""

    def detach(self) -> None:
        """Disconnect from a lost connection; the nodes still answer."""
        self._client = None
        self._discard()
        self.lone.write = None
        if not self.lone.alone and self._first is None:
            self.lone.executor = None  # they refer to each other

    def _discard(self) -> None:
        """Forget replies with no client to take them: they may wait long for an earlier one."""
        for request in self._queue:
            observer = request.observer
            if observer is None:
                request.discard()
            elif request.reply is not None:
                request.observer = None  # it must see the original reply
                observer.ready()
                observer.replied([request.reply] if request.reply else [])
                request.discard()

    def _begin(self, request: Request | Any) -> None:
        if self.lone.since:
            self._timing.end_thinking(self.lone)
        if self.lone.alone:
            self.lone.alone = False
            self._first = Request(self)
            self._queue.append(self._first)
        request.observer = self._observer
        self._queue.append(request)

    def _end(self, request: Request | Any) -> None:
        """Send an immediate reply at once; the connection flushes after the parser."""
        if request.reply is not None and self._queue[0] is request:
            self._out_of_queue()

    def _reply(self, reply: bytes) -> None:
        """Answer without a node."""
        if not self._queue and not self.lone.alone and self._observer is None:
            if reply:
                self._out.append(reply)
            return
        request = Request(self)
        request.reply = reply
        self._begin(request)
        self._end(request)

    def answered(self) -> None:
        """Note that a request was answered."""
        lone = self.lone
        if not lone.due:
            lone.due = True
            self._cluster.due.append(self)

    def answer(self, reply: bytes) -> None:
        """Take the reply to a request that arrived alone; see `take`."""
        lone, client = self.lone, self._client
        if client is None:
            lone.executor = None
        if lone.alone:
            lone.alone = False
            if client is not None:
                client.reply(reply)
                self._timing.begin_thinking(self.lone)
        elif self._first is not None:
            first, self._first = self._first, None
            first.answer(reply)

    def wrote(self) -> None:
        """Note that the client, which has just been sent a reply, has stopped reading."""
        if self._client is not None:
            self._client.count_unread()

    def fail(self, error: bytes) -> None:
        """Take the error that stands for the reply to a request that arrived alone."""
        self.count_failure()
        self.answer(error)

    def progressed(self) -> None:
        """Send the first request's replies so far, unless the others arrive at once."""
        lone = self.lone
        if not lone.progresses:
            lone.progresses = True
            self._cluster.progressed(self)

    def send_progress(self) -> None:
        """Send the first request's replies so far."""
        self.lone.progresses = False
        if self._queue and self._queue[0].waits and self._client is not None:
            replies = self._queue[0].available()
            if replies:
                self._out.append(replies)
                self._client.replies_ready()

    def count_failure(self) -> None:
        """Count a request, or a part of one, that failed."""
        self._cluster.failures += 1

    def count_failed_shards(self, number: int) -> None:
        """Count parts of a retrieval whose keys are misses because a node failed."""
        self._cluster.failed_shards += number

    @property
    def merger(self) -> Merger:
        """Finds the items in replies."""
        return self._cluster.merger

    def merged_reply(
        self, order: bytes, parts: Sequence[Any], unusual: Sequence[bytes | None]
    ) -> bytes:
        """Return the reply to a get of several keys; see `merged`. Called by C code."""
        return merged(self, order, parts, unusual, strict=self._cluster.strict)

    def deliver(self) -> None:
        """Send the replies that are due, in one write."""
        self.lone.due = False
        self._out_of_queue()
        if self._client is not None:
            self._client.replies_ready()
            if not self._queue:
                self._timing.begin_thinking(self.lone)
        else:
            self._discard()

    def _out_of_queue(self) -> None:
        queue, client = self._queue, self._client
        while queue and queue[0].reply is not None:
            request = queue.popleft()
            reply = request.reply
            if request.observer is not None and reply is not None:
                request.observer.ready()
                request.observer.replied([reply] if reply else [])
            if client is None:
                continue
            if reply:
                self._out.append(reply)
            if request.closes:
                client.close()
        if queue and queue[0].waits:
            self.progressed()
