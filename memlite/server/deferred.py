"""Commands on a backend that must be asked: carried out side by side, answered in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from memlite.backends import Part
from memlite.engine.store import Reads, StoreEngine
from memlite.errors import CommandError, OutOfMemoryError, StorageError, VersionConflict
from memlite.protocol.handler import COMMAND_CLASS
from memlite.server.instruments import trace_reply

if TYPE_CHECKING:
    from memlite.server.deferred_connection import DeferredConnection
    from memlite.server.server import Server

__all__ = ["AtOnce", "Deferred"]

_log = logging.getLogger("memlite")

# Commands of one connection that may be under way before it is read on, the keys they may ask
# for, and bytes of replies that wait for an earlier one. The parser hands over a share of
# commands at a time, so that all may be passed by as much as one share.
_UNDER_WAY = 64
_KEYS_UNDER_WAY = 256
_WAITING_BYTES = 4 * 1024 * 1024

_Run = Callable[[], None]


class _Command:
    """A command whose reply is not out.

    Attributes:
        name: the handler's method.
        keys: those it is about.
        replies: what to send, once it is done.
        quiet: whether its client wants no answer.
        request: what arrived, if the protocol needs it to spell an error.
        started: when it arrived, in nanoseconds; 0 when it is not to be measured.
        size: bytes of them, once it is done.
        done: whether it is.
        counted: what was counted for it, to be taken back if its write conflicts.
    """

    __slots__ = (
        "_waiting", "counted", "done", "keys", "name", "quiet", "replies", "request", "size",
        "started",
    )  # fmt: skip

    def __init__(
        self, name: str, keys: Sequence[bytes], quiet: bool, started: int, request: object
    ) -> None:
        self.name = name
        self.keys = keys
        self.quiet = quiet
        self.request = request
        self.started = started
        self.replies: list[Part] = []
        self.size = 0
        self.done = False
        self.counted: tuple[int, ...] = ()
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Return once it is done."""
        if not self.done:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def finish(self) -> None:
        """Be done, and let those go on that wait for it."""
        self.done = True
        # Some could not be spelled out before the backend had given the item its version.
        self.replies = replies = [part() if callable(part) else part for part in self.replies]
        self.size = sum(map(len, replies))
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


class AtOnce(Protocol):
    """A handler that answers at once, by appending to `out`."""

    out: list[Part]

    def quit(self) -> None: ...  # noqa: D102 - see `Handler`


_Inner = TypeVar("_Inner", bound=AtOnce)


class Deferred(Generic[_Inner]):
    """Hands each command to the engine, and replies to the connection in the order they came in.

    The base of a protocol's handler around one that answers at once. Commands on different keys run
    side by side, those on one key one after the other, and those that are about no key (stats,
    flush_all, quit) by themselves.

    Args:
        server: whose engine carries them out.
        engine: that engine.
        connection: whose commands they are.
        inner: answers at once.

    Attributes:
        timed: whether to measure the commands that arrive now.
        ended: whether the client has said ``quit``: what comes behind it is nobody's.
        behind: whether the administrative command that runs now had to wait for others.
    """

    def __init__(
        self,
        server: "Server",
        engine: StoreEngine,
        connection: "DeferredConnection",
        inner: _Inner,
    ) -> None:
        self._server = server
        self._engine = engine
        self._connection: DeferredConnection | None = connection
        self._out = connection.out
        self._inner = inner
        self._queue: deque[_Command] = deque()
        self._last: dict[bytes, _Command] = {}  # to be awaited, by key
        self._barrier: _Command | None = None
        self._delivery_due = False
        self._waiting_bytes = 0  # of replies
        self._asked = 0  # keys, by commands that are not done
        self.timed = False
        self.ended = False
        self.behind = False

    @property
    def pending(self) -> bool:
        """Whether replies are still to come."""
        return bool(self._queue)

    @property
    def full(self) -> bool:
        """Whether so much is under way that no more should be read."""
        return (
            len(self._queue) >= _UNDER_WAY
            or self._asked >= _KEYS_UNDER_WAY
            or self._waiting_bytes > _WAITING_BYTES
        )

    def detach(self) -> None:
        """Let go of a connection that is lost; what has begun is carried out all the same."""
        self._connection = None

    def straight_hit(self, line: bytes) -> bytes | None:
        r"""Return the reply to the text protocol's ``get <key>\r\n``, if it can be sent now."""
        return None

    def quit(self) -> None:
        """``quit``, after all before it."""
        self.ended = True
        self._submit_alone("quit", self._inner.quit, False)

    # Carrying them out

    def _submit(
        self,
        name: str,
        reads: Reads,
        keys: Sequence[bytes],
        run: _Run,
        noreply: bool = False,
        request: object = None,
    ) -> None:
        command = _Command(name, keys, noreply, perf_counter_ns() if self.timed else 0, request)
        before = []
        if self._last:
            before = [self._last[key] for key in keys if key in self._last]
        if self._barrier is not None:
            before.append(self._barrier)
        writes = None
        if not before:
            writes = self._attempt(command, reads, keys, run)
            if writes == []:
                if self._queue:
                    self._enqueue(command)
                    self._finish(command)
                else:  # nothing to wait for, and so nothing left to spell out
                    self._out += command.replies
                    if command.started:
                        self._measured(command)
                return
        self._enqueue(command)
        if writes is not None and len(writes) == 1 and isinstance(writes[0], asyncio.Future):
            # It has happened, and is being made durable: what comes behind it need not wait.
            writes[0].add_done_callback(partial(self._written, command, reads, run))
            return
        self._last.update(dict.fromkeys(keys, command))
        self._server.spawn(self._carry_out(command, before, reads, run, writes))

    def _enqueue(self, command: _Command) -> None:
        self._queue.append(command)
        self._asked += len(command.keys)

    def _attempt(
        self, command: _Command, reads: Reads, keys: Sequence[bytes], run: _Run
    ) -> list[Awaitable[object]] | None:
        self._begin(command)
        try:
            writes = self._engine.attempt(reads, keys, run)
        except VersionConflict:
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            self._refuse(command, error)
            return []
        if writes and reads.writes:
            command.counted = self._engine.counted
        return writes

    def _written(
        self, command: _Command, reads: Reads, run: _Run, write: asyncio.Future[object]
    ) -> None:
        error = asyncio.CancelledError() if write.cancelled() else write.exception()
        if isinstance(error, VersionConflict) and reads.writes:
            self._server.counters.subtract(command.counted)
            self._last.update(dict.fromkeys(command.keys, command))
            self._server.spawn(self._carry_out(command, [], reads, run, None))
            return
        if error is not None:
            self._refuse(command, error)
        self._finish(command)

    async def _carry_out(
        self,
        command: _Command,
        before: Sequence[_Command],
        reads: Reads,
        run: _Run,
        writes: Sequence[Awaitable[object]] | None,
    ) -> None:
        """Carry out a command that has to wait: for others, for what it reads, for its writes."""
        try:
            for other in before:
                await other.wait()
            if writes is None:
                await self._engine.carry_out(
                    reads, command.keys, partial(self._rerun, command, run)
                )
            else:
                await self._engine.written(writes)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see below
            if isinstance(error, VersionConflict) and writes and reads.writes:
                self._server.counters.subtract(command.counted)
                await self._carry_out(command, (), reads, run, None)
                return
            # Whatever it is, the client gets an answer.
            self._refuse(command, error)
        for key in command.keys:
            if self._last.get(key) is command:
                del self._last[key]
        self._finish(command)

    def _rerun(self, command: _Command, run: _Run) -> None:
        command.replies.clear()
        self._begin(command)
        run()

    def _begin(self, command: _Command) -> None:
        self._inner.out = command.replies
        if self._engine.observed:
            connection = self._connection
            self._server.watchers.number = -1 if connection is None else connection.number

    def _submit_alone(self, name: str, run: _Run, noreply: bool, request: object = None) -> None:
        command = _Command(name, (), noreply, perf_counter_ns() if self.timed else 0, request)
        before = list(self._queue)
        self._enqueue(command)
        self._barrier = command
        if before:
            self._server.spawn(self._carry_out_alone(command, before, run))
        else:
            # Not delivered at once: the parser is at work, and has perhaps not come to the end.
            self._deliver_soon()
            self.behind = False
            self._run_alone(command, run)

    async def _carry_out_alone(
        self, command: _Command, before: Sequence[_Command], run: _Run
    ) -> None:
        for other in before:
            await other.wait()
        self._deliver()
        self.behind = True
        self._run_alone(command, run)

    def _run_alone(self, command: _Command, run: _Run) -> None:
        writes = self._attempt(command, Reads.NOTHING, (), run)
        if writes:  # flush_all
            self._server.spawn(self._carry_out(command, (), Reads.NOTHING, run, writes))
        else:
            self._finish(command)

    # Answering

    def _refuse(self, command: _Command, error: BaseException) -> None:
        if not isinstance(error, CommandError):
            _log.error("%s failed", command.name, exc_info=error)
            error = StorageError("internal error")
        if isinstance(error, StorageError):
            self._server.counters.storage_errors += 1
        elif isinstance(error, OutOfMemoryError):
            self._server.counters.store_no_memory += 1
        command.replies = [] if command.quiet else [self._spell(command.request, error)]

    def _spell(self, request: object, error: CommandError) -> bytes:
        """Return the reply that tells of an error."""
        return error.reply

    def _finish(self, command: _Command) -> None:
        command.finish()
        self._asked -= len(command.keys)
        self._waiting_bytes += command.size
        if command.started:
            self._measured(command)
        if self._barrier is command:
            self._barrier = None
        if len(self._queue) == 1 and not self._delivery_due:
            self._deliver()
        else:
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._delivery_due:
            self._delivery_due = True
            self._server.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Send the replies that are due; those that became so together, in one write."""
        self._delivery_due = False
        queue, connection = self._queue, self._connection
        while queue and queue[0].done:
            command = queue.popleft()
            replies = command.replies
            self._waiting_bytes -= command.size
            if connection is not None:
                self._out += replies
                if self._server.tracing:
                    trace_reply(connection.number, replies)
        if connection is not None:
            connection.settle()

    def _measured(self, command: _Command) -> None:
        self._measure(COMMAND_CLASS[command.name], command.started, command.keys)

    def _measure(self, command_class: str, started: int, keys: Sequence[bytes]) -> None:
        self._server.sampler.histograms[command_class].record(perf_counter_ns() - started)
        self._server.hotkeys.record(keys)
