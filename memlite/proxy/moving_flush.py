"""``flush_all`` while keys move between nodes."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from memlite.core.errors import StorageError
from memlite.protocol import replies
from memlite.proxy.absences import Absences
from memlite.proxy.async_requests import ask
from memlite.proxy.changes import Changes
from memlite.proxy.emptying import finish_flush
from memlite.proxy.node import TOO_LATE, Node, Receiver
from memlite.proxy.resend import Target, send_again
from memlite.server.scheduler import Scheduler

__all__ = ["AfterFlush", "MovingFlush"]

_DELAYED: Final = b"SERVER_ERROR a delayed flush_all is not possible while keys move\r\n"
_PASSES: Final = 2
"""An item that was being copied during the first pass may have arrived after it."""


class MovingFlush:
    """Empties all nodes, while later requests wait.

    Args:
        nodes: the nodes.
        scheduler: runs the flush.
        ended: returns awaitables that are done when all earlier requests are answered.
        begun: called when other requests must wait.
        delivered: called after a reply was handed out.
        valid: returns whether the nodes are still the same.
        find: returns the target of a key when a request has waited.
        changes: the changes in progress of keys that have copies; None if no key has any.
        absences: returns the notes on the nodes, or None if there are none.

    Attributes:
        find: as above.
        in_progress: whether requests wait.
        over: done when no request is waiting any longer; None if there is no flush.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        scheduler: Scheduler,
        ended: Callable[[], Sequence[Awaitable[None]]],
        begun: Callable[[], None],
        delivered: Callable[[], None],
        valid: Callable[[], bool],
        find: Callable[[bytes], Target],
        changes: Changes | None = None,
        absences: Callable[[], Absences | None] = lambda: None,
    ) -> None:
        self._nodes = nodes
        self._scheduler = scheduler
        self._ended = ended
        self._begun = begun
        self._delivered = delivered
        self._valid = valid
        self.find = find
        self._changes = changes
        self._absences = absences
        self._waiting: deque[Callable[[], None]] = deque()
        self._after_flush: dict[Target, AfterFlush] = {}
        self.in_progress = False
        self.over: asyncio.Future[None] | None = None

    def after_flush(self, target: Target) -> "AfterFlush":
        """Return an object that sends requests to a target once the flush is over."""
        found = self._after_flush.get(target)
        if found is None:
            found = self._after_flush[target] = AfterFlush(self, target)
        return found

    def wait(self, again: Callable[[], None]) -> None:
        """Queue a request; `again` sends it."""
        self._waiting.append(again)

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send ``flush_all``. Its reply is the first that is not ``OK``, else ``OK``."""
        if self.in_progress:
            self.wait(partial(self.send, request, receiver))
            return
        words = request.split()
        if len(words) > 1 and int(words[1]) > 0:
            receiver.fail(_DELAYED)
            return
        self.in_progress = True
        if self.over is None:
            self.over = self._scheduler.loop.create_future()
        self._begun()
        self._scheduler.spawn(self._flush(request, receiver, self._ended()))

    async def _flush(
        self, request: bytes, receiver: Receiver, before: Sequence[Awaitable[None]]
    ) -> None:
        changes, absences = self._changes, self._absences()
        if changes is not None:
            await self._until_unchanged(changes)
        for other in before:
            await other
        reply = replies.OK if self._valid() else TOO_LATE
        targets = self._nodes if absences is None else absences.flushed(self._nodes)
        for _ in range(_PASSES):
            if reply == replies.OK:
                reply = await self._all([ask(target, request) for target in targets])
        if reply == replies.OK:
            restore = None if absences is None else absences.kept(self._nodes)
            reply = await self._all([finish_flush(partial(ask, node)) for node in self._nodes])
            if restore is not None:
                restore()
        if reply.startswith(b"SERVER_ERROR "):
            receiver.fail(reply)
        else:
            receiver.answer(reply)
        self.in_progress = False
        self._after_flush.clear()
        if changes is not None:
            changes.flushed()
        while self._waiting and not self.in_progress:
            self._waiting.popleft()()
        if not self.in_progress and self.over is not None:
            self.over.set_result(None)
            self.over = None
        self._delivered()

    async def _until_unchanged(self, changes: Changes) -> None:
        """Wait until no key with copies is being changed; none will be until `Changes.flushed`."""
        unchanged: asyncio.Future[None] = self._scheduler.loop.create_future()

        def ask() -> None:
            changes.flush(partial(unchanged.set_result, None), ask)

        ask()
        await unchanged

    async def _all(self, asked: Sequence[Awaitable[bytes]]) -> bytes:
        """Return the first of the nodes' replies that is not ``OK``, else ``OK``."""
        found = await asyncio.gather(*asked, return_exceptions=True)
        for one in found:
            if isinstance(one, StorageError):
                return b"SERVER_ERROR %b\r\n" % str(one).encode()
            if isinstance(one, BaseException):
                raise one
            if one != replies.OK:
                return one
        return replies.OK


class AfterFlush:
    """Sends requests to a target once a flush is over."""

    def __init__(self, flush: MovingFlush, target: Target) -> None:
        self._flush = flush
        self._target = target

    def send(self, request: bytes, receiver: Receiver) -> None:
        """Send a request; see `Node.send`."""
        if self._flush.in_progress:
            self._flush.wait(partial(send_again, request, receiver, self._flush.find))
        else:
            self._target.send(request, receiver)
