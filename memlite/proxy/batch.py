"""Several requests of a client that arrived together, each for one node."""

from collections.abc import Mapping
from typing import Any

from memlite.protocol.replies import END
from memlite.proxy.framing import interleave
from memlite.proxy.requests import Origin, Request

__all__ = ["Batch", "BatchPart"]


class Batch(Request):
    """Requests whose replies are sent together; see `Request`.

    There is one object for each node instead of one for each request.

    Args:
        executor: the client's executor.
        nodes: the node of each request, in order.

    Attributes:
        count: how many requests there are.
        waits: whether some replies have arrived and others have not.
    """

    __slots__ = ("_missing", "_nodes", "_parts", "_sent", "count", "waits")

    def __init__(self, executor: Origin, nodes: list[Any]) -> None:
        # Repeats the base constructor: calling it takes a twentieth of the time of a small batch.
        self._executor = executor
        self.reply = None
        self.observer = None
        self.closes = False
        self._nodes = nodes
        self._parts: dict[object, BatchPart] = {}
        self._missing = 0
        self._sent = 0  # replies that were sent before others arrived
        self.count = len(nodes)
        self.waits = False

    def part(self, node: object, count: int, *, reads: bool) -> "BatchPart":
        """Return the receiver of a node's replies.

        Args:
            node: the node.
            count: how many of the requests are for it.
            reads: whether those change nothing.
        """
        self._missing += 1
        part = self._parts[node] = BatchPart(self, count, reads)
        return part

    @property
    def parts(self) -> Mapping[object, "BatchPart"]:
        """The replies of each node; empty once all have arrived."""
        return self._parts

    def count_failures(self, number: int) -> None:
        """Count requests that failed."""
        for _ in range(number):
            self._executor.count_failure()

    def part_done(self) -> None:
        """Note that all replies of a node have arrived."""
        self._missing -= 1
        if self._missing:
            if not self.waits:
                self.progressed()
        else:
            self.reply = self._rest()
            self._executor.answered()
            self._parts = {}  # breaks a cycle: this object must not wait for the collector

    def progressed(self) -> None:
        """Note that some replies have arrived. They are sent soon, as the rest may take long."""
        self.waits = True
        self._executor.progressed()

    def _rest(self) -> bytes:
        parts, nodes = self._parts, self._nodes
        bare = True
        for part in parts.values():
            if not part.bare:
                bare = False
        if not bare:
            for part in parts.values():
                part.complete()
        if self._sent:
            nodes = nodes[self._sent :]
            left = {node: part.replies[part.taken :] for node, part in parts.items()}
        else:
            left = {node: part.replies for node, part in parts.items()}
        return interleave(nodes, left, END if bare else b"", b"")

    def available(self) -> bytes:
        """Return the replies that can be sent although others are missing, each only once."""
        ready: list[bytes] = []
        parts = self._parts
        for node in self._nodes[self._sent :]:
            part = parts[node]
            if part.taken == len(part.replies):
                break
            reply = part.replies[part.taken]
            ready.append(reply + END if part.bare else reply)
            part.taken += 1
        self._sent += len(ready)
        self.waits = False
        return b"".join(ready)

    @property
    def held(self) -> int:
        """The bytes of replies that have arrived but were not sent."""
        waiting = sum([sum(map(len, part.replies[part.taken :])) for part in self._parts.values()])
        return len(self.reply or b"") + waiting

    def discard(self) -> None:
        """Discard the replies that have arrived."""
        Request.discard(self)
        for part in self._parts.values():
            part.replies = [b""] * len(part.replies)


class BatchPart:
    """Receives a node's replies.

    Attributes:
        batch: the batch that it is part of.
        missing: how many replies are still to come.
        reads: whether the requests change nothing.
        replies: the replies so far.
        bare: whether the replies lack their final ``END``.
        taken: how many of the replies were sent to the client.
    """

    __slots__ = ("bare", "batch", "missing", "reads", "replies", "taken")

    def __init__(self, batch: Batch, count: int, reads: bool) -> None:
        self.batch = batch
        self.missing = count
        self.reads = reads
        self.replies: list[bytes] = []
        self.bare = True
        self.taken = 0

    def take(self, replies: list[bytes], *, bare: bool) -> None:
        """Take replies, at most as many as are missing.

        Args:
            replies: the replies.
            bare: whether they lack their final ``END``.
        """
        if not bare:
            self.complete()
        elif not self.bare:
            replies = [reply + END for reply in replies]
        self.replies += replies
        self.missing -= len(replies)
        if not self.missing:
            self.batch.part_done()

    def complete(self) -> None:
        """Add the ``END`` to replies that lack it."""
        if self.bare:
            self.bare = False
            self.replies = [reply + END for reply in self.replies]

    def answer(self, reply: bytes) -> None:
        """Take a reply."""
        self.take([reply], bare=False)

    def fail(self, error: bytes) -> None:
        """Take the error that stands for each of the missing replies."""
        self.batch.count_failures(self.missing)
        self.take([error] * self.missing, bare=False)
