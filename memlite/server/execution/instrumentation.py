"""Sampling of latencies, tracing of commands and notification of watchers.

Ordinary reads pay nothing for this: their commands go straight to the executor. The commands of an
observed read go through an `_ObservedExecutor` made for it.
"""

import logging
from collections.abc import Callable, Sequence
from time import perf_counter_ns

from memlite.core import logs
from memlite.memory import Part
from memlite.memory.item import key_of
from memlite.protocol.commands import QUIT, Arguments, Command
from memlite.protocol.handler import Handler
from memlite.protocol.magic import MAGIC_OF_REPLIES
from memlite.protocol.text_table import REJECT, SET, SET_FRAMED
from memlite.server.execution.command_set import Executor, ObservableExecutor
from memlite.telemetry.counters import Counters
from memlite.telemetry.sampling import Sampler

__all__ = ["Instrumentation"]

_trace_log = logging.getLogger("memlite.trace")

_HEADS = (b"VALUE ", b"VA ")
_BINARY_REPLY = bytes([MAGIC_OF_REPLIES])


class Instrumentation:
    """Decides which reads are observed.

    Args:
        counters: hold the countdowns to the next sampled read.
        sampler: records samples.
        verbosity: the initial log level (``-v``).

    Attributes:
        active: whether every read must go through `observe`, because commands are being traced or
            watched.
        client: the file descriptor of the client whose command is running, for watchers.
        on_activation: called when `active` becomes true, to take connections off the fast path.
        sampler: as above.
        tracing: whether all commands are logged (``-vv``).
        verbosity: the log level, as set by ``-v`` or the verbosity command.
        wrap: returns what carries out the commands of a sampled read, for tracers.
    """

    def __init__(self, counters: Counters, sampler: Sampler, verbosity: int = 0) -> None:
        self._counters = counters
        self.sampler = sampler
        self.verbosity = verbosity
        self.active = self.tracing = self._watched = False
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
        self.active = self.tracing or self._watched
        if self.active:
            self.on_activation()

    def observe(self, executor: Executor, number: int, *, fast: bool = False) -> Handler:
        """Return the handler for a sampled read, or for any read while `active`.

        Args:
            executor: carries out the commands.
            number: the client's file descriptor, for the log and for watchers.
            fast: whether the read is sampled instead of taking the fast path.
        """
        self.client = number
        if fast:
            self._counters.sample_after(self.sampler.next_read())
        if not self._counters.until_slow_sample:
            self._counters.until_slow_sample = self.sampler.next_read()
        elif not (fast or self.tracing):
            return executor
        if self.tracing:
            return _ObservedExecutor(executor, number, None)
        return _ObservedExecutor(self.wrap(executor), number, self.sampler)


class _Observation:
    """The observation of one command.

    Args:
        command: the command's table row.
        arguments: its arguments.
        number: the client's file descriptor, for the log.
        sampler: records the latency; None to log the reply instead.
    """

    __slots__ = ("_arguments", "_command", "_number", "_sampler", "_started")

    def __init__(
        self, command: Command, arguments: Arguments, number: int, sampler: Sampler | None
    ) -> None:
        self._command = command
        self._arguments = arguments
        self._number = number
        self._sampler = sampler
        self._started = perf_counter_ns()

    def ready(self) -> None:
        """Record the latency."""
        if self._sampler is not None:
            elapsed = perf_counter_ns() - self._started
            keys = self._command.keys(self._arguments)
            self._sampler.record(self._command.latency, elapsed, keys)

    def replied(self, replies: Sequence[Part]) -> None:
        """Log the reply."""
        if self._sampler is None:
            _trace_replies(self._number, replies)


class _ObservedExecutor:
    """A `Handler` that passes commands on to an executor, and times or logs each of them.

    The log has the format that memcached writes to stderr with ``-vv``.

    Args:
        executor: carries out the commands.
        number: the client's file descriptor, for the log.
        sampler: records latencies; None to log commands and replies instead.
    """

    def __init__(self, executor: ObservableExecutor, number: int, sampler: Sampler | None) -> None:
        self._executor = executor
        self._number = number
        self._sampler = sampler

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command."""
        if self._sampler is None:
            _trace_log.debug("<%d %s", self._number, _describe(command.name, arguments))
        observation = _Observation(command, arguments, self._number, self._sampler)
        self._executor.execute_observed(command, arguments, observation)

    def hit(self, line: bytes) -> bool:
        """Answer a get if its reply is ready; return False while tracing, to log the command."""
        if self._sampler is None:
            return False
        started = perf_counter_ns()
        if not self._executor.hit(line):
            return False
        self._sampler.record("get", perf_counter_ns() - started, (key_of(line),))
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
