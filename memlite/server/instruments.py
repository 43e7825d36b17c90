"""Handlers around a handler: one that times commands, one that logs them.

Both look like the handler they stand before, so that the path of an ordinary command pays
nothing for either. One of each serves all connections: it is pointed at a connection's handler
for the length of a read.
"""

import logging
from collections.abc import Callable, Sequence
from random import Random
from time import perf_counter_ns
from typing import Any, cast

from memlite.backends import Part
from memlite.protocol.handler import COMMAND_CLASS, KEY_ARGUMENT, Handler
from memlite.protocol.magic import MAGIC_OF_REPLIES
from memlite.stats import COMMAND_CLASSES, LatencyHistogram

__all__ = ["LatencySampler", "Tracer", "trace_reply"]

_log = logging.getLogger("memlite.trace")

_HEADS = (b"VALUE ", b"VA ")
_BINARY_REPLY = bytes([MAGIC_OF_REPLIES])


class _Around:
    """Gives a class every method of `Handler`, each going through `_call`."""

    def __init__(self) -> None:
        for name in COMMAND_CLASS:
            setattr(self, name, self._method(name))

    def _method(self, name: str) -> Callable[..., bool | None]:
        raise NotImplementedError


class LatencySampler(_Around):
    """Measures how long commands take from being parsed to their reply being ready.

    Args:
        note: is told the keys of each command that is measured.
        interval: one read in so many is measured.

    Attributes:
        interval: as above.
        histograms: by command class, in nanoseconds.
    """

    def __init__(
        self, note: Callable[[Sequence[bytes]], None] = lambda keys: None, interval: int = 64
    ) -> None:
        self.reset()
        self.interval = interval
        self._note = note
        self._draw = Random().random  # noqa: S311 - no secret
        self._target: Any = None
        super().__init__()

    def reset(self) -> None:
        """Forget what was measured (``stats reset``)."""
        self.histograms = {name: LatencyHistogram() for name in COMMAND_CLASSES}

    def next_read(self) -> int:
        """Return in how many reads to measure again: at random, `interval` on average.

        Of a client with a period of its own the same command would be measured otherwise, always.
        """
        # randrange() takes ten times as long.
        return 1 + int(self._draw() * (2 * self.interval - 1))

    def before(self, handler: Handler) -> Handler:
        """Return a handler that measures and passes on to `handler`, until the next call."""
        self._target = handler
        return cast("Handler", self)

    def _method(self, name: str) -> Callable[..., bool | None]:
        command_class = COMMAND_CLASS[name]
        key_argument = KEY_ARGUMENT.get(name)

        def timed(*arguments: object) -> bool | None:
            start = perf_counter_ns()
            result: bool | None = getattr(self._target, name)(*arguments)
            if result is not False:  # a hit that was none is followed by a get
                self.histograms[command_class].record(perf_counter_ns() - start)
                if key_argument is not None:
                    self._note(_keys(arguments[key_argument]))
                elif name == "hit":
                    self._note((cast("bytes", arguments[0])[4:-2],))
            return result

        return timed


class Tracer(_Around):
    """Logs commands and replies, as memcached does on stderr with ``-vv``. Keys at debug level."""

    def __init__(self) -> None:
        self._target: Any = None
        self._out: list[Part] = []
        self._number = 0
        super().__init__()

    def before(self, handler: Handler, out: list[Part], number: int) -> Handler:
        """Return a handler that logs and passes on to `handler`, until the next call.

        Args:
            handler: carries out the commands.
            out: where it appends replies.
            number: names the connection in the log.
        """
        self._target = handler
        self._out = out
        self._number = number
        return cast("Handler", self)

    def _method(self, name: str) -> Callable[..., bool | None]:
        if name == "hit":
            return lambda line: False  # it comes again as a get

        def traced(*arguments: object) -> None:
            _log.debug("<%d %s", self._number, _spell(name, arguments))
            replied = len(self._out)
            getattr(self._target, name)(*arguments)
            trace_reply(self._number, self._out[replied:])

        return traced


def _keys(argument: Any) -> Sequence[bytes]:
    """Return the keys that an argument named by `KEY_ARGUMENT` stands for."""
    if isinstance(argument, list):
        return argument
    return (getattr(argument, "key", argument),)


def trace_reply(number: int, replies: Sequence[Part]) -> None:
    """Log a command's replies as the tracer does, for those that come later.

    Args:
        number: names the connection in the log.
        replies: the parts of its answer.
    """
    value_follows = False
    for reply in replies:
        if value_follows or isinstance(reply, memoryview):
            value_follows = False
            continue
        _log.debug(">%d %s", number, _first_words(reply))
        # What has no value behind its first line has that in the next part.
        value_follows = reply.startswith(_HEADS) and reply.find(b"\r\n") in (-1, len(reply) - 2)


# Methods of which an argument is a value, and where; values are logged by their length.
_VALUE_AT = dict.fromkeys(("set", "add", "replace", "append", "prepend", "cas"), 3)
_VALUE_AT["meta_set"] = 1


def _spell(name: str, arguments: tuple[object, ...]) -> str:
    # These say themselves which command they are.
    words = [] if name == "admin" or name.startswith("binary_") else [name]
    for index, argument in enumerate(arguments):
        if isinstance(argument, list):
            words += [_text(word) for word in argument]
        elif index == 2 and name == "set_framed" and isinstance(argument, bytes):
            _, flags, size = argument.split(b"\r\n", 1)[0].rsplit(b" ", 2)
            words[0] = "set"
            words.insert(2, _text(flags))
            words.append(_text(size))
        elif isinstance(argument, bytes):
            words.append(
                str(len(argument)) if index == _VALUE_AT.get(name) else _text(argument.rstrip())
            )
        elif argument is True:
            if name != "admin":  # whose words have it
                words.append("noreply")
        elif argument is not False:
            words.append(str(argument))
    return " ".join(words)


def _first_words(reply: bytes) -> str:
    if reply.startswith(_BINARY_REPLY):
        from memlite.protocol import packets  # as soon as somebody speaks it, not before

        if len(reply) >= packets.HEADER:
            return packets.describe_reply(reply)
    if reply.startswith(b"VALUE "):
        return "sending key " + _text(reply.split(b" ", 2)[1])
    return _text(reply.split(b"\r\n", 1)[0])


def _text(word: bytes) -> str:
    r"""Return `word` with all but visible ASCII escaped (``\x1b``), for terminals to stay sane."""
    return word.decode("latin-1").encode("unicode_escape").decode("ascii")
