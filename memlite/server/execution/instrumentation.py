"""Sampling of latencies, tracing of commands and notification of watchers.

Ordinary reads pay nothing for this: their commands go straight to the executor. The commands of an
observed read go through an `_ObservedExecutor` made for it.
"""

import logging
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Protocol

from memlite.core import logs
from memlite.memory import Part
from memlite.memory.item import key_of
from memlite.protocol.commands import QUIT, Arguments, Command
from memlite.protocol.handler import NO_SHORTCUTS, Handler
from memlite.protocol.magic import MAGIC_OF_REPLIES
from memlite.protocol.text_table import GET, REJECT, SET, SET_FRAMED
from memlite.server.execution.command_set import Executor, ObservableExecutor
from memlite.telemetry.counters import Counters
from memlite.telemetry.sampling import Sampler

__all__ = ["Instrumentation", "ObservedClient", "Recorder"]

_trace_log = logging.getLogger("memlite.trace")

_HEADS = (b"VALUE ", b"VA ")
_BINARY_REPLY = bytes([MAGIC_OF_REPLIES])


class ObservedClient(Protocol):
    """A client whose commands may be observed."""

    @property
    def number(self) -> int:
        """The socket's file descriptor."""

    @property
    def peer(self) -> str:
        """The client's address; empty over UDP."""


class Recorder(Protocol):
    """Records the times of commands."""

    def record(self, command: Command, arguments: Arguments, nanoseconds: int) -> None:
        """Take a command whose reply is ready."""


class Instrumentation:
    """Decides which reads are observed.

    Args:
        counters: hold the countdowns to the next sampled read.
        sampler: records samples.
        verbosity: the initial log level (``-v``).
        slow: returns the recorder of a client's slow commands, by its address; None without
            ``--slow-log``.
        fast_path_waits: whether even reads on the fast path may be slow, as each of them queries a
            store.

    Attributes:
        active: whether every parsed read must go through `observe`, because commands are traced or
            watched, or slow ones are logged.
        client: the file descriptor of the client whose command is running, for watchers.
        closes_fast_path: whether no read may take the fast path, for the same reasons.
        on_activation: called when `closes_fast_path` becomes true, to take connections off the
            fast path.
        sampler: as above.
        tracing: whether all commands are logged (``-vv``).
        verbosity: the log level, as set by ``-v`` or the verbosity command.
        wrap: returns the executor for the commands of a sampled read, for tracers.
    """

    def __init__(
        self,
        counters: Counters,
        sampler: Sampler,
        verbosity: int = 0,
        *,
        slow: Callable[[str], Recorder] | None = None,
        fast_path_waits: bool = True,
    ) -> None:
        self._counters = counters
        self._samples = _Samples(sampler)
        self._slow = slow
        self._slow_of: dict[ObservedClient, Recorder] = {}
        self._slow_closes_fast_path = slow is not None and fast_path_waits
        self.sampler = sampler
        self.verbosity = verbosity
        self.active = self.closes_fast_path = self.tracing = self._watched = False
        self.client = -1
        self.on_activation: Callable[[], None] = lambda: None
        self.wrap: Callable[[Executor], ObservableExecutor] = lambda executor: executor
        counters.sample_after(sampler.next_read())
        counters.until_slow_sample = sampler.next_read()
        self._update()

    def set_verbosity(self, level: int) -> None:
        """Set the log level (0 to 3)."""
        self.verbosity = level
        logging.getLogger("memlite").setLevel(logs.level_for(level))
        self._update()

    def watch_commands(self, watched: bool) -> None:
        """Start or stop recording which client's command is running."""
        self._watched = watched
        self._update()

    def _update(self) -> None:
        self.tracing = _trace_log.isEnabledFor(logging.DEBUG)
        watched = self.tracing or self._watched
        self.active = watched or self._slow is not None
        self.closes_fast_path = watched or self._slow_closes_fast_path
        if self.closes_fast_path:
            self.on_activation()

    def observe(self, executor: Executor, client: ObservedClient, *, fast: bool = False) -> Handler:
        """Return the handler for a sampled read, or for any read while `active`.

        Args:
            executor: carries out the commands.
            client: the client that sent them.
            fast: whether the read is sampled instead of taking the fast path.
        """
        number = -1
        if self.tracing or self._watched:  # not needed otherwise
            number = self.client = client.number
        recorders: list[Recorder] = []
        if fast:
            self._counters.sample_after(self.sampler.next_read())
        if not self._counters.until_slow_sample:
            self._counters.until_slow_sample = self.sampler.next_read()
            fast = True
        if fast and not self.tracing:
            recorders.append(self._samples)
        if self._slow is not None:
            recorders.append(self._slow_of.get(client) or self._slow_recorder(client))
        if not (recorders or self.tracing):
            return executor
        executing = self.wrap(executor) if fast else executor
        return _ObservedExecutor(executing, number, recorders, traces=self.tracing)

    def _slow_recorder(self, client: ObservedClient) -> Recorder:
        """Return the recorder of a connection's slow commands; it may outlive the connection."""
        assert self._slow is not None  # noqa: S101 - checked by the caller
        peer = client.peer
        recorder = self._slow(peer or "udp")
        if peer:
            self._slow_of[client] = recorder
        return recorder

    def forget(self, client: ObservedClient) -> None:
        """Forget a lost connection."""
        self._slow_of.pop(client, None)


class _Samples:
    """Passes commands to a sampler."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def record(self, command: Command, arguments: Arguments, nanoseconds: int) -> None:
        """Take a command whose reply is ready."""
        self._sampler.record(command.latency, nanoseconds, command.keys(arguments))


class _Observation:
    """The observation of one command.

    Args:
        command: the command's table row.
        arguments: its arguments.
        number: the client's file descriptor, for the log.
        recorders: record its time.
        traces: whether to log the reply.
    """

    __slots__ = ("_arguments", "_command", "_number", "_recorders", "_started", "_traces")

    def __init__(
        self,
        command: Command,
        arguments: Arguments,
        number: int,
        recorders: Sequence[Recorder],
        traces: bool,
    ) -> None:
        self._command = command
        self._arguments = arguments
        self._number = number
        self._recorders = recorders
        self._traces = traces
        self._started = perf_counter_ns()

    def ready(self) -> None:
        """Record the latency."""
        elapsed = perf_counter_ns() - self._started
        for recorder in self._recorders:
            recorder.record(self._command, self._arguments, elapsed)

    def replied(self, replies: Sequence[Part]) -> None:
        """Log the reply."""
        if self._traces:
            _trace_replies(self._number, replies)


class _ObservedExecutor:
    """A `Handler` that passes commands on to an executor, and times or logs each of them.

    The log has the format that memcached writes to stderr with ``-vv``.

    Args:
        executor: carries out the commands.
        number: the client's file descriptor, for the log.
        recorders: record the times of commands.
        traces: whether to log commands and replies.
    """

    shortcuts = NO_SHORTCUTS

    def __init__(
        self,
        executor: ObservableExecutor,
        number: int,
        recorders: Sequence[Recorder],
        *,
        traces: bool,
    ) -> None:
        self._executor = executor
        self._number = number
        self._recorders = recorders
        self._traces = traces

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command."""
        if self._traces:
            _trace_log.debug("<%d %s", self._number, _describe(command.name, arguments))
        observation = _Observation(command, arguments, self._number, self._recorders, self._traces)
        self._executor.execute_observed(command, arguments, observation)

    def try_get(self, line: bytes) -> bool:
        """Answer a get of one key if its reply is ready; return False while tracing, to log it."""
        if self._traces or line.count(b" ") != 1:
            return False
        started = perf_counter_ns()
        if not self._executor.try_get(line):
            return False
        elapsed = perf_counter_ns() - started
        for recorder in self._recorders:
            recorder.record(GET, ((key_of(line),),), elapsed)
        return True

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Carry out ``set``."""
        self.execute(SET, (key, flags, exptime, value, noreply))

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        """Carry out ``set`` with a value already in the form of a get's reply."""
        self.execute(SET_FRAMED, (key, exptime, framed, noreply))

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer a malformed command."""
        self.execute(REJECT, (reply, noreply))

    def quit(self) -> None:
        """Close the connection."""
        self.execute(QUIT, ())


def _trace_replies(number: int, replies: Sequence[Part]) -> None:
    """Log the parts of a command's reply."""
    value_follows = False
    for reply in replies:
        if value_follows or isinstance(reply, memoryview):
            value_follows = False
            continue
        _trace_log.debug(">%d %s", number, _first_words(reply))
        # If this part ends after its first line, the next part is the value.
        value_follows = reply.startswith(_HEADS) and reply.find(b"\r\n") in (-1, len(reply) - 2)


# The index of the value among the arguments of a command; only its length is logged.
_VALUE_AT = dict.fromkeys(("set", "add", "replace", "append", "prepend", "cas"), 3)
_VALUE_AT["meta_set"] = 1


def _describe(name: str, arguments: Arguments) -> str:
    # For these, the arguments include the command's name.
    words = [] if name == "admin" or name.startswith("binary_") else [name]
    for index, argument in enumerate(arguments):
        if isinstance(argument, list):
            words += [_escape(word) for word in argument]
        elif index == 2 and name == "set_framed" and isinstance(argument, bytes):
            _, flags, size = argument.split(b"\r\n", 1)[0].rsplit(b" ", 2)
            words[0] = "set"
            words.insert(2, _escape(flags))
            words.append(_escape(size))
        elif isinstance(argument, bytes):
            words.append(
                str(len(argument)) if index == _VALUE_AT.get(name) else _escape(argument.rstrip())
            )
        elif argument is True:
            if name != "admin":  # whose words include "noreply"
                words.append("noreply")
        elif argument is not False:
            words.append(str(argument))
    return " ".join(words)


def _first_words(reply: bytes) -> str:
    if reply.startswith(_BINARY_REPLY):
        from memlite.protocol import packets  # imported lazily: most servers never need it

        if len(reply) >= packets.HEADER:
            return packets.describe_reply(reply)
    if reply.startswith(b"VALUE "):
        return "sending key " + _escape(reply.split(b" ", 2)[1])
    return _escape(reply.split(b"\r\n", 1)[0])


def _escape(word: bytes) -> str:
    r"""Escape everything except printable ASCII (``\x1b``), to keep terminals sane."""
    return word.decode("latin-1").encode("unicode_escape").decode("ascii")
