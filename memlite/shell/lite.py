r"""What is typed to a server that speaks the lite dialect, turned into what is sent.

A set comes in one of two forms::

    set greeting "hello world"      a quote: the value, its length is counted
    set greeting 11                 the dialect's own: the value follows, of so many bytes

All else is sent as it was typed, a malformed set too: the server reads no value behind it.
"""

from collections.abc import Sequence
from dataclasses import replace

from memlite.protocol.numbers import unsigned
from memlite.shell.commands import COMMANDS as MEMCACHED
from memlite.shell.quoting import TypedError, check_key, quoted
from memlite.shell.replies import Shape
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
        + "\nThe dialect's own form works as well: with the number of bytes in place of the value, "
        "which the shell then asks for: set KEY BYTES",
    ),
    "get": replace(MEMCACHED["get"], syntax="KEY", summary="show a value", reply=Shape.ITEM),
    "help": MEMCACHED["help"],
    "quit": MEMCACHED["quit"],
}
"""Every command by its name, in the order ``help`` lists them."""

_LOCAL = {"help": "help", "quit": "quit", "exit": "quit"}
_KEY_AT_MOST = 250
_SIZES_END = 2**31 - 2


def read_line(line: bytes) -> Typed | None:
    """Return what a line asks for; None of an empty one.

    Args:
        line: without its end.

    Raises:
        TypedError: it cannot be sent.
    """
    words = line.split()
    if not words:
        return None
    name = words[0].decode("latin-1")
    if name in _LOCAL:
        arguments = tuple(word.decode("utf-8", "backslashreplace") for word in words[1:])
        return Local(_LOCAL[name], arguments)
    if name == "set":
        found = quoted(line)
        if found is not None:
            return _with_value(*found)
        length = _length(words[2]) if len(words) == 3 else None
        # Of others the server must not think that a value follows: with spaces between the words
        # it sees those that are seen here.
        line = b" ".join(words)
        if length is not None and len(words[1]) <= _KEY_AT_MOST:
            return Awaiting(tuple(words), length, Shape.LINE)
    command = COMMANDS.get(name)
    return Request(line.strip() + b"\r\n", command.reply if command else Shape.LINE, tuple(words))


def read_words(words: Sequence[bytes], value: bytes | None = None) -> Typed | None:
    """Return what one command given as words asks for, as on the command line of another shell.

    The word behind the key of a set is its value as it is. One word with spaces in it is a line.

    Args:
        words: not empty.
        value: of a set, if it is not among the words.

    Raises:
        TypedError: it cannot be sent, or is not clear.
    """
    if value is not None:
        if words[0] != b"set" or len(words) < 2:
            raise TypedError("-x is for: set KEY")
        return _with_value(words[1], value, words[2:])
    if words[0] == b"set" and len(words) == 3:
        if _length(words[2]) is not None:
            key, number = words[1].decode("utf-8", "backslashreplace"), words[2].decode()
            raise TypedError(
                f"is {number} the value? Then quote it: 'set {key} \"{number}\"'; "
                "or give it on standard input (-x)"
            )
        return _with_value(words[1], words[2], ())
    return read_line(b" ".join(words))


def _with_value(key: bytes, value: bytes, rest: Sequence[bytes]) -> Request:
    if rest:
        raise TypedError(f"usage: {COMMANDS['set'].usage}; see 'help set'")
    check_key(key)
    return Awaiting((b"set", key, b"%d" % len(value)), len(value), Shape.LINE).request(value)


def _length(word: bytes) -> int | None:
    """Return the bytes that a set announces; None if a server would not take it for a number."""
    return unsigned(word, _SIZES_END)
