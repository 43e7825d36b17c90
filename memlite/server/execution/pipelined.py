"""Pipelined execution on a store that must be awaited: concurrent commands, ordered replies."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeAlias

from memlite.core.errors import CommandError, OutOfMemoryError, StorageError, VersionConflict
from memlite.engine.store import Attempt, StoreEngine
from memlite.memory import Part
from memlite.protocol.commands import QUIT, Arguments, Command
from memlite.protocol.text_table import REJECT, SET, SET_FRAMED
from memlite.server.execution.command_set import CommandObserver, CommandSet, Later
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.scheduler import Scheduler

__all__ = ["PipelinedExecutor", "ReplySink"]

_log = logging.getLogger("memlite")

_Reply: TypeAlias = tuple[list[Part], Later | None]
_Attempt: TypeAlias = Attempt[_Reply]

# Limits at which a connection stops reading: the commands in progress, their keys, and the bytes of
# replies that are waiting for an earlier one. The parser submits a turn's commands at a time, so
# each limit may be exceeded by one turn's worth.
_MAX_COMMANDS = 64
_MAX_KEYS = 256
_MAX_WAITING_BYTES = 4 * 1024 * 1024


class ReplySink(Protocol):
    """The destination of replies: a connection or a UDP request.

    Attributes:
        number: the socket's file descriptor, for the log.
        out: receives the replies, in order.
    """

    out: list[Part]

    @property
    def number(self) -> int: ...  # noqa: D102 - see the class

    def settle(self) -> None:
        """Send the replies in `out`."""


class _Request:
    """A command whose reply has not been sent.

    Attributes:
        command: the command's table row.
        arguments: its arguments.
        keys: the keys among its arguments.
        observer: is notified of its progress; None if it is not observed.
        replies: the reply, which is complete once the command is done.
        later: renders the rest of the reply once the store has assigned cas uniques.
        size: the size of the reply in bytes, once the command is done.
        done: whether the command is done.
    """

    __slots__ = (
        "_waiting", "arguments", "command", "done", "keys", "later", "observer", "replies", "size",
    )  # fmt: skip

    def __init__(
        self,
        command: Command,
        arguments: Arguments,
        keys: Sequence[bytes],
        observer: CommandObserver | None,
    ) -> None:
        self.command = command
        self.arguments = arguments
        self.keys = keys
        self.observer = observer
        self.replies: list[Part] = []
        self.later: Later | None = None
        self.size = 0
        self.done = False
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until the command is done."""
        if not self.done:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def render(self) -> None:
        """Complete the reply, now that cas uniques are known."""
        if self.later is not None:
            self.replies += self.later()
            self.later = None

    def finish(self) -> None:
        """Mark the command as done, and wake the commands that are waiting for it."""
        self.done = True
        self.render()
        self.size = sum(map(len, self.replies))
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


class PipelinedExecutor:
    """Carries out one connection's commands on a store, and sends replies in order of arrival.

    Commands on different keys run concurrently, commands on the same key one after the other.
    Commands that must run alone (stats, flush_all, quit) wait for all earlier commands and delay
    all later ones.

    Args:
        engine: carries out commands as transactions on the store.
        commands: the protocol's command set, on that engine.
        sink: the connection.
        scheduler: runs commands that must wait.
        instrumentation: is told which client's command is running.

    Attributes:
        ended: whether the client has sent ``quit``; any further input is discarded.
        had_to_wait: whether the running administrative command had to wait for earlier ones.
    """

    def __init__(
        self,
        engine: StoreEngine,
        commands: CommandSet,
        sink: ReplySink,
        scheduler: Scheduler,
        instrumentation: Instrumentation,
    ) -> None:
        self._engine = engine
        self._commands = commands
        self._sink: ReplySink | None = sink
        self._out = sink.out
        self._scheduler = scheduler
        self._instrumentation = instrumentation
        self._queue: deque[_Request] = deque()
        self._last: dict[bytes, _Request] = {}  # the last command to wait for, by key
        self._barrier: _Request | None = None
        self._delivery_due = False
        self._waiting_bytes = 0  # bytes of replies waiting for an earlier one
        self._keys = 0  # keys of commands in progress
        self.ended = False
        self.had_to_wait = False

    @property
    def pending(self) -> bool:
        """Whether there are commands still to be answered."""
        return bool(self._queue)

    @property
    def full(self) -> bool:
        """Whether so many commands are in progress that no more input should be read."""
        return (
            len(self._queue) >= _MAX_COMMANDS
            or self._keys >= _MAX_KEYS
            or self._waiting_bytes > _MAX_WAITING_BYTES
        )

    def detach(self) -> None:
        """Disconnect from a lost connection; commands under way are still carried out."""
        self._sink = None

    # Called by parsers

    def ready_reply(self, line: bytes) -> bytes | None:
        r"""Return the reply to ``get <key>\r\n`` if it can be sent now, and count the hit."""
        if self._queue:
            return None
        try:
            return self._engine.hit(line)
        except Exception:  # noqa: BLE001 - get will hit the error again and report it
            return None

    def hit(self, line: bytes) -> bool:
        """Answer ``get <key>`` if its reply is ready."""
        reply = self.ready_reply(line)
        if reply is None:
            return False
        self._out.append(reply)
        return True

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Carry out ``set``."""
        self._submit(SET, (key, flags, exptime, value, noreply), None)

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """Carry out ``set`` with a value already in the form of a get's reply."""
        self._submit(SET_FRAMED, (key, exptime, framed, noreply), None)

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer a malformed command, in order."""
        self._submit(REJECT, (reply, noreply), None)

    def quit(self) -> None:
        """Close the connection after all earlier commands."""
        self._submit(QUIT, (), None)

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command."""
        self._submit(command, arguments, None)

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command, and notify `observer`."""
        self._submit(command, arguments, observer)

    # Execution

    def _submit(
        self, command: Command, arguments: Arguments, observer: CommandObserver | None
    ) -> None:
        if command.alone(arguments):
            self._submit_alone(_Request(command, arguments, (), observer))
            return
        request = _Request(command, arguments, command.keys(arguments), observer)
        last = self._last
        before = [last[key] for key in request.keys if key in last] if last else []
        if self._barrier is not None:
            before.append(self._barrier)
        attempt = None
        if not before:
            attempt = self._attempt(request)
            if attempt is not None and not attempt.writes:
                self._settle(request, attempt)
                if self._queue:
                    self._enqueue(request)
                    self._finish(request)
                else:  # nothing to wait for
                    self._answer(request)
                return
        self._enqueue(request)
        writes = () if attempt is None else attempt.writes
        if attempt is not None and len(writes) == 1 and isinstance(writes[0], asyncio.Future):
            # The change is visible and only being made durable; later commands need not wait.
            writes[0].add_done_callback(partial(self._written, request, attempt))
            return
        self._last.update(dict.fromkeys(request.keys, request))
        self._scheduler.spawn(self._carry_out(request, before, attempt))

    def _answer(self, request: _Request) -> None:
        request.render()
        self._out += request.replies
        if request.observer is not None:
            request.observer.ready()
            request.observer.replied(request.replies)

    def _enqueue(self, request: _Request) -> None:
        self._queue.append(request)
        self._keys += len(request.keys)

    def _attempt(self, request: _Request) -> _Attempt | None:
        """Carry out a command without waiting if possible; otherwise return None."""
        access = request.command.access(request.arguments)
        try:
            return self._engine.attempt(access, request.keys, partial(self._run, request))
        except VersionConflict:
            return None
        except Exception as error:  # noqa: BLE001 - the client must get a reply in any case
            return Attempt(self._refusal(request, error), (), {})

    def _run(self, request: _Request) -> _Reply:
        """Have the command set carry out a command. The engine may call this repeatedly."""
        if self._engine.observed:
            sink = self._sink
            self._instrumentation.client = -1 if sink is None else sink.number
        return self._commands.collect(request.command, request.arguments)

    def _settle(
        self, request: _Request, attempt: _Attempt, error: BaseException | None = None
    ) -> bool:
        """Set the reply of a command whose writes have finished.

        Nothing is raised and caught here: the traceback of an exception that a local variable
        refers to is a reference cycle, which would keep the connection alive.

        Returns:
            False if the command lost a race and must be carried out again.
        """
        if isinstance(error, VersionConflict) and self._may_run_again(request):
            return False
        reply = self._engine.confirm(attempt)
        if error is not None:
            reply = self._refusal(request, error)
        request.replies, request.later = reply
        return True

    def _written(self, request: _Request, attempt: _Attempt, write: asyncio.Future[object]) -> None:
        error = asyncio.CancelledError() if write.cancelled() else write.exception()
        if self._settle(request, attempt, error):
            self._finish(request)
        else:
            self._last.update(dict.fromkeys(request.keys, request))
            self._scheduler.spawn(self._carry_out(request, (), None))

    @staticmethod
    def _may_run_again(request: _Request) -> bool:
        return request.command.access(request.arguments).conditional

    async def _carry_out(
        self, request: _Request, before: Sequence[_Request], attempt: _Attempt | None
    ) -> None:
        """Carry out a command that must wait for others, for its reads, or for its writes."""
        try:
            for other in before:
                await other.wait()
            reply = await (
                self._carry_out_fully(request)
                if attempt is None
                else self._finish_attempt(request, attempt)
            )
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see `_attempt`
            reply = self._refusal(request, error)
        request.replies, request.later = reply
        for key in request.keys:
            if self._last.get(key) is request:
                del self._last[key]
        self._finish(request)

    async def _finish_attempt(self, request: _Request, attempt: _Attempt) -> _Reply:
        try:
            return await self._engine.finish(attempt)
        except VersionConflict:
            if not self._may_run_again(request):
                raise
        return await self._carry_out_fully(request)

    async def _carry_out_fully(self, request: _Request) -> _Reply:
        access = request.command.access(request.arguments)
        return await self._engine.carry_out(access, request.keys, partial(self._run, request))

    def _submit_alone(self, request: _Request) -> None:
        self.ended = self.ended or request.command is QUIT
        before = list(self._queue)
        self._enqueue(request)
        self._barrier = request
        if before:
            self._scheduler.spawn(self._carry_out_alone(request, before))
        else:
            # Not delivered at once, because the parser is still running and may submit more.
            self._deliver_soon()
            self.had_to_wait = False
            self._run_alone(request)

    async def _carry_out_alone(self, request: _Request, before: Sequence[_Request]) -> None:
        for other in before:
            await other.wait()
        self._deliver()
        self.had_to_wait = True
        self._run_alone(request)

    def _run_alone(self, request: _Request) -> None:
        attempt = self._attempt(request)
        if attempt is None or attempt.writes:  # flush_all
            self._scheduler.spawn(self._carry_out(request, (), attempt))
        else:
            self._settle(request, attempt)
            self._finish(request)

    # Replies

    def _refusal(self, request: _Request, error: BaseException) -> _Reply:
        """Count a failed command, and return its reply."""
        command, arguments = request.command, request.arguments
        if not isinstance(error, CommandError):
            _log.error("%s failed", command.name, exc_info=error)
            error = StorageError("internal error")
        counters = self._engine.counters
        if isinstance(error, StorageError):
            counters.storage_errors += 1
        elif isinstance(error, OutOfMemoryError):
            counters.store_no_memory += 1
        quiet = command.quiet(arguments)
        return [] if quiet else [self._commands.error_reply(error, arguments)], None

    def _finish(self, request: _Request) -> None:
        request.finish()
        self._keys -= len(request.keys)
        self._waiting_bytes += request.size
        if request.observer is not None:
            request.observer.ready()
        if self._barrier is request:
            self._barrier = None
        if len(self._queue) == 1 and not self._delivery_due:
            self._deliver()
        else:
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._delivery_due:
            self._delivery_due = True
            self._scheduler.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Send all replies that are due, in one write."""
        self._delivery_due = False
        queue, sink = self._queue, self._sink
        while queue and queue[0].done:
            request = queue.popleft()
            self._waiting_bytes -= request.size
            if sink is not None:
                self._out += request.replies
                if request.observer is not None:
                    request.observer.replied(request.replies)
        if sink is not None:
            sink.settle()
