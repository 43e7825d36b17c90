"""Commands on a backend that must be asked: carried out side by side, answered in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from memlite.engine import Reads, StoreEngine
from memlite.errors import CommandError, StorageError, VersionConflict
from memlite.protocol.handler import COMMAND_CLASS
from memlite.server.commands import TextCommands
from memlite.server.connection import Connection
from memlite.server.instruments import trace_reply

if TYPE_CHECKING:
    from memlite.server.server import Server

__all__ = ["DeferredCommands", "DeferredConnection"]

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
        started: when it arrived, in nanoseconds; 0 when it is not to be measured.
        size: bytes of them, once it is done.
        done: whether it is.
        counted: what was counted for it, to be taken back if its write conflicts.
    """

    __slots__ = (
        "_waiting", "counted", "done", "keys", "name", "quiet", "replies", "size", "started",
    )  # fmt: skip

    def __init__(self, name: str, keys: Sequence[bytes], quiet: bool, started: int) -> None:
        self.name = name
        self.keys = keys
        self.quiet = quiet
        self.started = started
        self.replies: list[bytes] = []
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
        replies = self.replies
        if len(replies) > 1:
            # Some could not be spelled out before the backend had given the item its version.
            self.replies = replies = [part() if callable(part) else part for part in replies]
        self.size = sum(map(len, replies))
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


class DeferredCommands:
    """Hands each command to the engine, and replies to the connection in the order they came in.

    Implements `memlite.protocol.Handler`, around a handler that answers at once. Commands on
    different keys run side by side, those on one key one after the other, and those that are about
    no key (stats, flush_all, quit) by themselves.

    Args:
        server: whose engine carries them out.
        connection: whose commands they are.

    Attributes:
        timed: whether to measure the commands that arrive now.
        ended: whether the client has said ``quit``: what comes behind it is nobody's.
        behind: whether the administrative command that runs now had to wait for others.
    """

    def __init__(
        self, server: "Server", engine: StoreEngine, connection: "DeferredConnection"
    ) -> None:
        self._server = server
        self._engine = engine
        self._connection: DeferredConnection | None = connection
        self._out = connection.out
        self._inner = TextCommands(engine, server.admin, connection, [])
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

    # The handler's methods

    def hit(self, key: bytes) -> bool:
        """``get <key>`` when the key is at hand."""
        if self._queue:
            return False
        started = perf_counter_ns() if self.timed else 0
        reply = self.straight_hit(key)
        if reply is None:
            return False
        self._out.append(reply)
        if started:
            self._measure("get", started, (key,))
        return True

    def straight_hit(self, key: bytes) -> bytes | None:
        """Return the reply to ``get <key>``, if it can be sent now."""
        if self._queue:
            return None
        try:
            return self._engine.hit(key)
        except Exception:  # noqa: BLE001 - get meets it again, and answers
            return None

    def get(self, keys: list[bytes]) -> None:
        """``get <key>*``."""
        self._submit("get", Reads.CACHED, keys, partial(self._inner.get, keys))

    def gets(self, keys: list[bytes]) -> None:
        """``gets <key>*``."""
        self._submit("gets", Reads.CURRENT, keys, partial(self._inner.gets, keys))

    def gat(self, exptime: int, keys: list[bytes]) -> None:
        """``gat <exptime> <key>*``."""
        self._submit("gat", Reads.TO_CHANGE, keys, partial(self._inner.gat, exptime, keys))

    def gats(self, exptime: int, keys: list[bytes]) -> None:
        """``gats <exptime> <key>*``."""
        self._submit("gats", Reads.TO_CHANGE, keys, partial(self._inner.gats, exptime, keys))

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``set``."""
        run = partial(self._inner.set, key, flags, exptime, value, noreply)
        self._submit("set", Reads.NOTHING, (key,), run, noreply)

    def add(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``add``."""
        run = partial(self._inner.add, key, flags, exptime, value, noreply)
        self._submit("add", Reads.TO_CHANGE, (key,), run, noreply)

    def replace(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``replace``."""
        run = partial(self._inner.replace, key, flags, exptime, value, noreply)
        self._submit("replace", Reads.TO_CHANGE, (key,), run, noreply)

    def append(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``append``."""
        run = partial(self._inner.append, key, flags, exptime, value, noreply)
        self._submit("append", Reads.TO_CHANGE, (key,), run, noreply)

    def prepend(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """``prepend``."""
        run = partial(self._inner.prepend, key, flags, exptime, value, noreply)
        self._submit("prepend", Reads.TO_CHANGE, (key,), run, noreply)

    def cas(
        self, key: bytes, flags: int, exptime: int, value: bytes, unique: int, noreply: bool
    ) -> None:
        """``cas``."""
        run = partial(self._inner.cas, key, flags, exptime, value, unique, noreply)
        self._submit("cas", Reads.TO_CHANGE, (key,), run, noreply)

    def delete(self, key: bytes, noreply: bool) -> None:
        """``delete``."""
        run = partial(self._inner.delete, key, noreply)
        self._submit("delete", Reads.TO_CHANGE, (key,), run, noreply)

    def incr(self, key: bytes, delta: int, noreply: bool) -> None:
        """``incr``."""
        run = partial(self._inner.incr, key, delta, noreply)
        self._submit("incr", Reads.TO_CHANGE, (key,), run, noreply)

    def decr(self, key: bytes, delta: int, noreply: bool) -> None:
        """``decr``."""
        run = partial(self._inner.decr, key, delta, noreply)
        self._submit("decr", Reads.TO_CHANGE, (key,), run, noreply)

    def touch(self, key: bytes, exptime: int, noreply: bool) -> None:
        """``touch``."""
        run = partial(self._inner.touch, key, exptime, noreply)
        self._submit("touch", Reads.TO_CHANGE, (key,), run, noreply)

    def too_large(self, command: bytes, key: bytes, noreply: bool) -> None:
        """Refuse a value; see `TextCommands`."""
        run = partial(self._inner.too_large, command, key, noreply)
        self._submit("too_large", Reads.NOTHING, (key,), run, noreply)

    def admin(self, words: list[bytes], noreply: bool) -> None:
        """Any other command, after all before it and before all behind it."""
        self._submit_alone("admin", partial(self._inner.admin, words, noreply), noreply)

    def quit(self) -> None:
        """``quit``, after all before it."""
        self.ended = True
        self._submit_alone("quit", self._inner.quit, False)

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer what could not be carried out, when it is its turn."""
        run = partial(self._inner.reject, reply, noreply)
        self._submit("reject", Reads.NOTHING, (), run, noreply)

    # Carrying them out

    def _submit(
        self, name: str, reads: Reads, keys: Sequence[bytes], run: _Run, noreply: bool = False
    ) -> None:
        command = _Command(name, keys, noreply, perf_counter_ns() if self.timed else 0)
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
        if writes and reads is Reads.TO_CHANGE:
            command.counted = self._engine.counted
        return writes

    def _written(
        self, command: _Command, reads: Reads, run: _Run, write: asyncio.Future[object]
    ) -> None:
        error = asyncio.CancelledError() if write.cancelled() else write.exception()
        if isinstance(error, VersionConflict) and reads is Reads.TO_CHANGE:
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
            if isinstance(error, VersionConflict) and writes and reads is Reads.TO_CHANGE:
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

    def _submit_alone(self, name: str, run: _Run, noreply: bool) -> None:
        command = _Command(name, (), noreply, perf_counter_ns() if self.timed else 0)
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
        command.replies = [] if command.quiet else [error.reply]

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


class DeferredConnection(Connection):
    """A connection whose commands may have to wait for the backend."""

    __slots__ = ()

    commands: DeferredCommands

    def __init__(self, server: "Server", engine: StoreEngine) -> None:
        super().__init__(server)
        self.commands = DeferredCommands(server, engine, self)
        self._hit = self.commands.straight_hit

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind but what has begun."""
        self.commands.detach()
        del self._hit  # the commands' method; see there
        super().connection_lost(exc)

    def note_activity(self, second: int) -> None:
        """Bring `last_command` up to date; who waits for the backend is not idle."""
        super().note_activity(second)
        if self.waiting:
            self.last_command = second

    @property
    def waiting(self) -> bool:
        """Whether replies are still to come."""
        return self.commands.pending

    @property
    def pipelined(self) -> bool:
        """Whether replies to earlier commands are to be sent, or were while this one waited."""
        return self.commands.behind or super().pipelined

    def _serve(self, data: bytes) -> None:
        commands = self.commands
        if commands.ended:
            return
        super()._serve(data)
        commands.timed = False  # or the reads that are not to be measured were, too
        if commands.full:
            self._stall()

    def _go_on(self) -> None:
        if not self._transport.is_closing() and self.commands.full:
            return  # settle comes back to it
        super()._go_on()

    def settle(self) -> None:
        """Send replies that have become ready, and go on if there is room again."""
        if self._transport.is_closing():
            return
        out = self.out
        if len(out) == 1 and not self._unsent:
            reply = out.pop()
            self._counters.bytes_written += len(reply)
            self._transport.write(reply)
        elif out:
            self._flush()
        if self._stalled:
            if not self._turn_due:  # one turn at a time, or others would not get theirs
                self._go_on()
        elif self._eof and not self.waiting:
            self.close()
