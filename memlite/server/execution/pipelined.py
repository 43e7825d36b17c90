"""Pipelined execution on a store that must be awaited: concurrent commands, ordered replies."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from memlite.backends import Record
from memlite.core.errors import CommandError, OutOfMemoryError, StorageError, VersionConflict
from memlite.core.logs import failure
from memlite.engine.store import Attempt, StoreEngine
from memlite.memory import Part
from memlite.protocol.commands import QUIT, Access, Arguments, Command
from memlite.protocol.handler import NO_SHORTCUTS, Shortcuts
from memlite.protocol.limits import MAX_GET_LENGTH, MAX_KEY_LENGTH
from memlite.protocol.replies import STORED
from memlite.protocol.text_table import GET, REJECT, SET, SET_FRAMED
from memlite.server.execution.command_set import CommandObserver, CommandSet, Later
from memlite.server.execution.instrumentation import Instrumentation
from memlite.server.execution.reply_room import Place, ReplyRoom
from memlite.server.scheduler import Scheduler

__all__ = ["ReplySink", "StoreExecutor"]

_log = logging.getLogger("memlite")

_Reply: TypeAlias = tuple[list[Part], Later | None]
_Attempt: TypeAlias = Attempt[_Reply]

_NOTHING: _Reply = ([], None)

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
        unread: bytes of replies that the peer has yet to read; 0 while the transport accepts more.
            The sink calls `StoreExecutor.peer_has_read` after it has become 0.
    """

    @property
    def out(self) -> list[Part]: ...  # noqa: D102 - see the class

    @property
    def unread(self) -> int: ...  # noqa: D102 - see the class

    @property
    def number(self) -> int: ...  # noqa: D102 - see the class

    def replies_ready(self) -> None:
        """Send the replies in `out`."""


class _Request:
    """A command whose reply has not been sent.

    Attributes:
        command: the command's table row.
        arguments: its arguments.
        keys: the keys among its arguments.
        access: the reads that it needs before it runs.
        observer: is notified of its progress; None if it is not observed.
        counted: whether it has been carried out and counted, but had no room for its reply.
        replies: the reply, once the command is done.
        size: the size of the reply in bytes, once the command is done.
        done: whether the command is done.
        waiting: the commands that wait until it is done.
    """

    __slots__ = (
        "access", "arguments", "command", "counted", "done", "keys", "observer", "replies", "size",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        command: Command,
        arguments: Arguments,
        keys: Sequence[bytes],
        access: Access,
        observer: CommandObserver | None,
    ) -> None:
        self.command = command
        self.arguments = arguments
        self.keys = keys
        self.access = access
        self.observer = observer
        self.counted = False
        self.replies: list[Part] = []
        self.size = 0
        self.done = False
        self.waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until the command is done."""
        if not self.done:
            future = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            await future


class _Read(_Request):
    """A ``get`` of one key that waits for nothing but its read; see `Reader`.

    Attributes:
        executor: the executor that carries it out.
        key: its key.
    """

    __slots__ = ("executor", "key")

    executor: "StoreExecutor"
    key: bytes

    def found(self, record: Record | None) -> None:
        """Receive the record that was read."""
        self.executor.show(self, record)

    def unfinished(self, rest: Coroutine[Any, Any, Record | None]) -> None:
        """Read the rest in a task."""
        self.executor.go_on(self, rest)


class StoreExecutor:
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
        shortcuts: see `Handler`.
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
        self._observer: CommandObserver | None = None  # of the command being submitted
        self._queue: deque[_Request] = deque()
        self._last: dict[bytes, _Request] = {}  # the last command to wait for, by key
        self._barrier: _Request | None = None
        self._delivery_due = False
        self._room = ReplyRoom(_MAX_WAITING_BYTES)
        self._keys = 0  # keys of commands in progress
        self.ended = False
        self.had_to_wait = False
        shows = commands.shows_stored_replies and not engine.peeks
        self.shortcuts: Final = _SHORTCUTS if shows else NO_SHORTCUTS

    @property
    def pending(self) -> bool:
        """Whether there are commands still to be answered."""
        return bool(self._queue)

    @property
    def full(self) -> bool:
        """Whether too many commands are in progress to read more input."""
        return (
            len(self._queue) >= _MAX_COMMANDS
            or self._keys >= _MAX_KEYS
            or self._room.waiting > _MAX_WAITING_BYTES
        )

    def detach(self) -> None:
        """Disconnect from a lost connection; commands under way are still carried out."""
        self._sink = None
        self._room.release()

    def peer_has_read(self) -> None:
        """Continue with reads that have waited for the peer to read."""
        self._room.offer(self._queue, self._unread)

    @property
    def _unread(self) -> int:
        return 0 if self._sink is None else self._sink.unread

    # Called by parsers

    def immediate_reply(self, line: bytes) -> bytes | None:
        r"""Answer ``get <key>\r\n`` if no other command is in progress; see `Executor`."""
        if self._queue:
            return None
        if self._engine.peeks:
            try:
                return self._engine.try_get(line)
            except Exception:  # noqa: BLE001 - get will hit the error again and report it
                return None
        key = line[4:-2]
        if not key or b" " in key or b"\n" in key or line[-2:] != b"\r\n":
            return None
        self._read(key)
        return b""

    def try_get(self, line: bytes) -> bool:
        """Answer ``get <key>`` if its reply is ready."""
        if len(line) > MAX_GET_LENGTH or not self._engine.peeks:
            return False
        reply = self.immediate_reply(line)
        if reply is None:
            return False
        self._out.append(reply)
        return True

    def short_get(self, words: Sequence[bytes], data: bytes, position: int) -> int:
        """Carry out ``get <key>`` if it waits for nothing but its read; see `Handler`."""
        if len(words) != 2 or self._barrier is not None:
            return 0
        key = words[1]
        if key in self._last or not 0 < len(key) <= MAX_KEY_LENGTH:
            return 0
        self._read(key)
        return position

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Carry out ``set``."""
        self.execute(SET, (key, flags, exptime, value, noreply))

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """Carry out ``set`` with a value already in the form of a get's reply.

        It reads nothing and replaces any item. Unless it has to wait for other commands, it needs
        neither a transaction nor the command set.
        """
        arguments = (key, exptime, framed, noreply)
        if self._barrier is None and key not in self._last:
            request = _Request(SET_FRAMED, arguments, (key,), Access.BLIND, None)
            try:
                write = self._engine.put_framed(key, exptime, framed)
            except Exception as error:  # noqa: BLE001 - see `_attempt`
                self._submit(request, (), Attempt(self._refusal(request, error), (), None))
                return
            if write is not None:
                reply: list[Part] = [] if noreply else [STORED]
                self._submit(request, (), Attempt((reply, None), (write,), None))
                return
        self.execute(SET_FRAMED, arguments)

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer a malformed command, in order."""
        self.execute(REJECT, (reply, noreply))

    def quit(self) -> None:
        """Close the connection after all earlier commands."""
        self.execute(QUIT, ())

    def execute_observed(
        self, command: Command, arguments: Arguments, observer: CommandObserver
    ) -> None:
        """Carry out a command, and notify `observer`."""
        self._observer = observer
        try:
            self.execute(command, arguments)
        finally:
            self._observer = None

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command: at once if possible, else in a task."""
        access = command.fixed_access or command.access(arguments)
        keys = command.keys(arguments)
        request = _Request(command, arguments, keys, access, self._observer)
        if access is Access.ALONE:
            self._submit_alone(request)
            return
        last = self._last
        before = [last[key] for key in keys if key in last] if last else []
        if self._barrier is not None:
            before.append(self._barrier)
        attempt = None
        if not before and (self._engine.peeks or not access.reads):
            attempt = self._attempt(request)
        elif (
            not before
            and command is GET
            and len(keys) == 1
            and self._observer is None
            and self._commands.shows_stored_replies
        ):
            self._read(keys[0])
            return
        self._submit(request, before, attempt)

    def _submit(
        self, request: _Request, before: Sequence[_Request], attempt: _Attempt | None
    ) -> None:
        """Answer a command, or queue it until its predecessors and its writes are done."""
        if attempt is not None and not (attempt.writes or self._queue):
            self._answer(request, attempt)
            return
        self._queue.append(request)
        self._keys += len(request.keys)
        if attempt is not None:
            writes = attempt.writes
            if not writes and not self._fits(request, attempt.result):
                attempt = None  # it is read again
                request.counted = True
            elif not writes:
                self._finish(request, self._engine.confirm(attempt))
                return
            elif len(writes) == 1 and isinstance(writes[0], asyncio.Future):
                # The change is visible and only being made durable; later commands need not wait.
                writes[0].add_done_callback(partial(self._written, request, attempt))
                return
        self._last.update(dict.fromkeys(request.keys, request))
        self._scheduler.spawn(self._carry_out(request, before, attempt))

    def _answer(self, request: _Request, attempt: _Attempt) -> None:
        """Append the reply of a command that waits for nothing."""
        replies, later = self._engine.confirm(attempt)
        if later is not None:
            replies += later()
        self._out += replies
        if request.observer is not None:
            request.observer.ready()
            request.observer.replied(replies)

    def _attempt(self, request: _Request) -> _Attempt | None:
        """Carry out a command without waiting if possible; otherwise return None."""
        try:
            return self._engine.attempt(request.access, request.keys, partial(self._run, request))
        except VersionConflict:
            return None
        except Exception as error:  # noqa: BLE001 - the client must get a reply in any case
            return Attempt(self._refusal(request, error), (), None)

    def _run(self, request: _Request) -> _Reply:
        """Run a command on the command set. The engine may call this repeatedly."""
        if self._engine.observed:
            sink = self._sink
            self._instrumentation.client = -1 if sink is None else sink.number
        commands = self._commands
        replies: list[Part] = []
        out, commands.out = commands.out, replies
        try:
            later: Later | None = getattr(commands, request.command.name)(*request.arguments)
        finally:
            commands.out = out  # a large reply must not be kept until the next command
        return replies, later

    def _run_again(self, request: _Request) -> _Reply:
        """Repeat a read that had no room for its reply, without counting it again."""
        return self._engine.uncounted(partial(self._run, request))

    def _written(self, request: _Request, attempt: _Attempt, write: asyncio.Future[object]) -> None:
        # Nothing is raised and caught here: the traceback of an exception that a local variable
        # refers to is a reference cycle, which would keep the connection alive.
        error = asyncio.CancelledError() if write.cancelled() else write.exception()
        if error is None:
            reply = self._engine.confirm(attempt) if attempt.counted else attempt.result
            self._finish(request, reply)
        elif isinstance(error, VersionConflict) and request.access.conditional:  # it runs again
            self._last.update(dict.fromkeys(request.keys, request))
            self._scheduler.spawn(self._carry_out(request, (), None))
        else:
            self._engine.confirm(attempt)
            self._finish(request, self._refusal(request, error))

    async def _carry_out(
        self, request: _Request, before: Sequence[_Request], attempt: _Attempt | None
    ) -> None:
        """Carry out a command that must wait for others, for its reads, or for its writes."""
        engine = self._engine
        try:
            for other in before:
                await other.wait()
            reply = _NOTHING if before and self._is_abandoned(request) else None
            if attempt is not None:
                try:
                    reply = await engine.finish(attempt)
                except VersionConflict:
                    if not request.access.conditional:
                        raise
            if reply is None:
                run = partial(self._run_again if request.counted else self._run, request)
                reply = await engine.carry_out(request.access, request.keys, run)
                place = self._line_up(request, reply)
                if place is not None:
                    reply = _NOTHING  # the values are not kept
                    reply = await self._when_it_fits(request, place)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see `_attempt`
            reply = self._refusal(request, error)
        self._finish(request, reply)

    def _is_abandoned(self, request: _Request) -> bool:
        """Return whether the client has disconnected, and the command would change nothing."""
        access = request.access
        return self._sink is None and access.reads and not access.conditional

    async def _when_it_fits(self, request: _Request, place: Place) -> _Reply:
        """Wait for room for the reply, and read again; repeat this until the reply fits."""
        again = partial(self._run_again, request)
        while True:
            with place:
                await place.wait()
                if self._is_abandoned(request):
                    return _NOTHING
                reply = await self._engine.carry_out(request.access, request.keys, again)
            further = self._line_up(request, reply)
            if further is None:
                return reply
            place, reply = further, _NOTHING

    # A get of one key that waits for nothing but its read

    def _read(self, key: bytes) -> None:
        request = _Read(GET, ([key],), (key,), Access.CACHED, None)
        request.executor, request.key = self, key
        self._queue.append(request)
        self._keys += 1
        self._last[key] = request
        backend = self._engine.backend
        if not (backend.begins and backend.begin_get(key, request)):
            self._scheduler.spawn(self._get(request, backend.get_cached(key)))

    def go_on(self, request: _Read, rest: Coroutine[Any, Any, Record | None]) -> None:
        """Continue reading in a task, unless the client has disconnected."""
        if self._sink is None:
            rest.close()
            self._finish(request, _NOTHING)
        else:
            self._scheduler.spawn(self._get(request, rest))

    async def _get(self, request: _Read, reading: Awaitable[Record | None]) -> None:
        try:
            record = await reading
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see `_attempt`
            self._finish(request, self._refusal(request, error))
        else:
            self.show(request, record)

    def show(self, request: _Read, record: Record | None) -> None:
        """Carry out the command on the record; read again later if the reply has no room."""
        try:
            found = self._engine.reply_to_get(request.key, record, partial(self._run, request))
            reply: _Reply = ([found], None) if isinstance(found, bytes) else found
            place = self._line_up(request, reply) if len(self._queue) > 1 else None
            if place is not None:
                self._scheduler.spawn(self._get_when_it_fits(request, place))
                return
        except Exception as error:  # noqa: BLE001 - see `_attempt`
            reply = self._refusal(request, error)
        self._finish(request, reply)

    async def _get_when_it_fits(self, request: _Read, place: Place) -> None:
        try:
            reply = await self._when_it_fits(request, place)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see `_attempt`
            reply = self._refusal(request, error)
        self._finish(request, reply)

    # Whether there is room

    def _fits(self, request: _Request, reply: _Reply) -> bool:
        """Return whether there is room for a reply; True if the command cannot be repeated."""
        if not self._may_drop(request):
            return True
        return self._room.fits(_size(reply), self._unread, first=self._queue[0] is request)

    def _line_up(self, request: _Request, reply: _Reply) -> Place | None:
        """Return None if there is room for a reply; otherwise its place in the line for room."""
        if not self._may_drop(request):
            return None
        first = self._queue[0] is request
        return self._room.claim(request, _size(reply), self._unread, first=first)

    def _may_drop(self, request: _Request) -> bool:
        """Return whether a command can be repeated, and its client is still connected."""
        access = request.access
        return self._sink is not None and access.cached and not access.conditional

    def _submit_alone(self, request: _Request) -> None:
        self.ended = self.ended or request.command is QUIT
        before = list(self._queue)
        self._queue.append(request)
        self._barrier = request
        if before:
            self._scheduler.spawn(self._carry_out_alone(request, before))
        else:
            # Do not deliver at once: the parser is still running and may submit more.
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
            self._finish(request, self._engine.confirm(attempt))

    # Replies

    def _refusal(self, request: _Request, error: BaseException) -> _Reply:
        """Count a failed command, and return its reply."""
        command, arguments = request.command, request.arguments
        if not isinstance(error, CommandError):
            if not (self._sink is None and isinstance(error, asyncio.CancelledError)):  # a stop
                _log.error(
                    "%s failed",
                    command.name,
                    exc_info=error,
                    extra=failure("command_failed", command=command.name),
                )
            error = StorageError("internal error")
        counters = self._engine.counters
        if isinstance(error, StorageError):
            counters.storage_errors += 1
        elif isinstance(error, OutOfMemoryError):
            counters.store_no_memory += 1
        quiet = command.quiet(arguments)
        return [] if quiet else [self._commands.error_reply(error, arguments)], None

    def _finish(self, request: _Request, reply: _Reply) -> None:
        """Keep the reply until it is due, and wake the commands that wait for this command."""
        replies, later = reply
        if later is not None:
            replies += later()
        request.replies = replies
        request.size = size = sum(map(len, replies))
        request.done = True
        for key in request.keys:
            if self._last.get(key) is request:
                del self._last[key]
        for future in request.waiting:
            if not future.done():
                future.set_result(None)
        self._keys -= len(request.keys)
        self._room.waiting += size
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
            self._room.waiting -= request.size
            if sink is not None:
                self._out += request.replies
                if request.observer is not None:
                    request.observer.replied(request.replies)
        if sink is not None:
            sink.replies_ready()
        if self._room.short:
            self.peer_has_read()  # or earlier replies have been delivered


def _size(reply: _Reply) -> int:
    return sum(map(len, reply[0]))


_SHORTCUTS: Final[Shortcuts] = {b"get": StoreExecutor.short_get}
"""For a backend that must be queried for every get: such gets need no further parsing."""
