r"""Turn typed lines into requests of the lite dialect.

A set has one of two forms::

    set greeting "hello world"      a quoted value, whose length is counted
    set greeting 11                 the dialect's own form: a value of that many bytes follows

Everything else is sent as typed. This includes a malformed set, after which the server reads no
value.
"""

from collections.abc import Sequence
from dataclasses import replace

from memlite.client.replies import Shape
from memlite.protocol.numbers import unsigned
from memlite.shell.commands import COMMANDS as MEMCACHED
from memlite.shell.quoting import MAX_KEY_LENGTH, TypedError, check_key, quoted
from memlite.shell.typed import Awaiting, Local, Request, Typed

__all__ = ["COMMANDS", "read_line", "read_words"]

_SET = MEMCACHED["set"]

COMMANDS = {
    "set": replace(
        _SET,
        syntax='KEY "VALUE"',
        example='set greeting "hello world"',
        reply=Shape.LINE,
        more=_SET.more.partition("\n")[0]
        + "\nThe dialect's own form works as well. It has the number of bytes instead of the "
        "value, which the shell then prompts for: set KEY BYTES",
    ),
    "get": replace(MEMCACHED["get"], syntax="KEY", summary="show a value", reply=Shape.ITEM),
    "help": MEMCACHED["help"],
    "quit": MEMCACHED["quit"],
}
"""All commands by name, in the order ``help`` lists them."""

_LOCAL = {"help": "help", "quit": "quit", "exit": "quit"}
_VALUE_LENGTH_END = 2**31 - 2


def read_line(line: bytes) -> Typed | None:
    """Parse a typed line; returns None for a blank one.

    Args:
        line: the line, without its line ending.

    Raises:
        TypedError: the line cannot be sent.
    """
    words = line.split()
    if not words:
        return None
    name = words[0].decode("latin-1")
    if name in _LOCAL:
        arguments = tuple(word.decode("utf-8", "backslashreplace") for word in words[1:])
        return Local(_LOCAL[name], arguments)
    if name == "set":
        parsed = quoted(line)
        if parsed is not None:
            return _with_value(*parsed)
        length = _length(words[2]) if len(words) == 3 else None
        # The server must not expect a value after any other line. Joining the words with single
        # spaces ensures that it splits the line into the same words.
        line = b" ".join(words)
        if length is not None and len(words[1]) <= MAX_KEY_LENGTH:
            return Awaiting(tuple(words), length, Shape.LINE)
    command = COMMANDS.get(name)
    return Request(line.strip() + b"\r\n", command.reply if command else Shape.LINE, tuple(words))


def read_words(words: Sequence[bytes], value: bytes | None = None) -> Typed | None:
    """Parse a command given as separate words, as on the system's command line.

    In a set, the word after the key is the literal value. A single word that contains spaces is
    parsed as a line.

    Args:
        words: one or more words.
        value: the value of a set, if it is not among the words.

    Raises:
        TypedError: the command cannot be sent, or is ambiguous.
    """
    if value is not None:
        if words[0] != b"set" or len(words) < 2:
            raise TypedError("-x requires: set KEY")
        return _with_value(words[1], value, words[2:])
    if words[0] == b"set" and len(words) == 3:
        if _length(words[2]) is not None:
            key, number = words[1].decode("utf-8", "backslashreplace"), words[2].decode()
            raise TypedError(
                f"is {number} the value? If so, quote it: 'set {key} \"{number}\"'; "
                "or pass it on standard input (-x)"
            )
        return _with_value(words[1], words[2], ())
    return read_line(b" ".join(words))


def _with_value(key: bytes, value: bytes, rest: Sequence[bytes]) -> Request:
    if rest:
        raise TypedError(f"usage: {COMMANDS['set'].usage}; see 'help set'")
    check_key(key)
    return Awaiting((b"set", key, b"%d" % len(value)), len(value), Shape.LINE).request(value)


def _length(word: bytes) -> int | None:
    """Parse the length of a set's value; None if a server would not accept it as a number."""
    return unsigned(word, _VALUE_LENGTH_END)
