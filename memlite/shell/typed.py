r"""Turn typed lines into requests.

A storage command has one of two forms, distinguished by the character after the key::

    set greeting "hello world" 0 60     a quoted value, whose length is counted
    set greeting 0 60 11                memcached's form: a value of that many bytes follows

The numbers of a storage command are validated, because a server that rejects its line would
interpret the value as commands. All other commands are sent as typed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memlite.client.replies import FENCE, Shape
from memlite.shell.commands import COMMANDS, LOCAL, STORAGE
from memlite.shell.quoting import TypedError, check_key, quoted

__all__ = ["Awaiting", "Local", "Request", "Typed", "TypedError", "read_line", "read_words"]


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send.

    Attributes:
        data: its bytes, including the fence if `shape` requires one.
        shape: the expected shape of the reply.
        words: the words of its command line.
    """

    data: bytes
    shape: Shape
    words: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Awaiting:
    """A storage command whose value is still to be read.

    Attributes:
        words: the words of its command line.
        length: length of the value in bytes.
        shape: the expected shape of the reply.
    """

    words: tuple[bytes, ...]
    length: int
    shape: Shape = Shape.FENCED

    def request(self, value: bytes) -> Request:
        """Return the complete request, with a value of `length` bytes."""
        fence = FENCE if self.shape is Shape.FENCED else b""
        data = b"%b\r\n%b\r\n%b" % (b" ".join(self.words), value, fence)
        return Request(data, self.shape, self.words)


@dataclass(frozen=True, slots=True)
class Local:
    """A command that the shell executes itself, one of `commands.LOCAL`."""

    name: str
    arguments: tuple[str, ...] = ()


Typed = Request | Awaiting | Local


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
    if name in LOCAL:
        return _local(name, words[1:])
    if name not in STORAGE:
        return _unquoted(line.strip(), words)
    parsed = quoted(line)
    if parsed is not None:
        return _with_value(name, *parsed)
    try:
        return _with_length(name, words)
    except TypedError as error:
        raise TypedError(str(error), _announced_length(name, words)) from None


def read_words(words: Sequence[bytes], value: bytes | None = None) -> Typed | None:
    """Parse a command given as separate words, as on the system's command line.

    In a storage command, the word after the key is the literal value: quotes and escapes have no
    meaning. A single word that contains spaces is parsed as a line.

    Args:
        words: one or more words.
        value: the value of a storage command, if it is not among the words.

    Raises:
        TypedError: the command cannot be sent, or is ambiguous.
    """
    if len(words) == 1 and value is None:
        return read_line(words[0])
    name = words[0].decode("latin-1")
    if name not in STORAGE:
        if value is not None:
            raise TypedError(f"{name} takes no value (-x)")
        return read_line(b" ".join(words))
    if value is not None:
        if len(words) < 2:
            raise _usage(name)
        return _with_value(name, words[1], value, words[2:])
    if len(words) < 3:
        raise _usage(name)
    if words[2].isdigit() and (name == "ms" or _has_length_form(name, list(words))):
        key, number = words[1].decode("utf-8", "backslashreplace"), words[2].decode()
        raise TypedError(
            f"is {number} the value? If so, quote it: '{name} {key} \"{number}\" ...'; "
            "or pass it on standard input (-x)"
        )
    return _with_value(name, words[1], words[2], words[3:])


def _local(name: str, words: Sequence[bytes]) -> Local:
    arguments = tuple(word.decode("utf-8", "backslashreplace") for word in words)
    return Local("quit" if name == "exit" else name, arguments)


def _unquoted(line: bytes, words: list[bytes]) -> Request:
    """Return the request for a command without a value, or for an unknown command."""
    command = COMMANDS.get(words[0].decode("latin-1"))
    shape = command.reply if command else Shape.FENCED
    if words[0] == b"lru_crawler" and words[1:2] in ([b"metadump"], [b"mgdump"]):
        shape = Shape.DUMP
    quiet = (shape is Shape.LINE and words[-1] == b"noreply") or (
        shape is Shape.META and any(word.startswith(b"q") for word in words[2:])
    )
    if quiet:
        shape = Shape.FENCED
    fence = FENCE if shape is Shape.FENCED else b""
    return Request(b"%b\r\n%b" % (line, fence), shape, tuple(words))


def _has_length_form(name: str, words: list[bytes]) -> bool:
    """Return whether a line has memcached's form: key, numbers, and optionally another word."""
    end = 6 if name == "cas" else 5
    return len(words) in (end, end + 1) and all(_is_number(word) for word in words[2:end])


def _with_length(name: str, words: list[bytes]) -> Awaiting:
    """Parse a storage command in memcached's form."""
    if name == "ms":
        if len(words) < 3 or not words[2].isdigit():
            raise _usage(name)
        length, numbers = words[2], []
    else:
        if not _has_length_form(name, words) or words[6 if name == "cas" else 5 :] not in (
            [],
            [b"noreply"],
        ):
            raise _usage(name)
        length, numbers = words[4], [*words[2:4], *(words[5:6] if name == "cas" else ())]
        if not length.isdigit():
            raise TypedError("a value cannot have a negative length")
    _check(words[1], numbers)
    if len(length) > 20:
        raise TypedError("the value is too long")
    return Awaiting(tuple(words), int(length))


def _announced_length(name: str, words: list[bytes]) -> int | None:
    """Return the value length that an otherwise invalid line announces; None if it has none."""
    length = b"".join(words[2:3] if name == "ms" else words[4:5])
    return int(length) if length.isdigit() and len(length) <= 20 else None


def _with_value(name: str, key: bytes, value: bytes, rest: Sequence[bytes]) -> Request:
    """Return the request for a storage command whose value is known."""
    length = b"%d" % len(value)
    words: list[bytes]
    if name == "ms":
        _check(key, ())
        words = [b"ms", key, length, *rest]
    else:
        numbers = list(rest)
        tail = [numbers.pop()] if numbers[-1:] == [b"noreply"] else []
        unique = []
        if name == "cas":
            if len(numbers) not in (1, 3):
                raise _usage(name)
            unique = [numbers.pop()]
        if len(numbers) > 2 or not all(map(_is_number, [*numbers, *unique])):
            raise _usage(name)
        flags, exptime = [*numbers, b"0", b"0"][:2] if len(numbers) != 1 else [*numbers, b"0"]
        _check(key, [flags, exptime, *unique])
        words = [name.encode(), key, flags, exptime, length, *unique, *tail]
    return Awaiting(tuple(words), len(value)).request(value)


def _check(key: bytes, numbers: Sequence[bytes]) -> None:
    """Reject a line after which a server would not read the value.

    Args:
        key: the key.
        numbers: empty, or flags, exptime and optionally the cas unique value.
    """
    check_key(key)
    limits = (("flags", 0, 2**32), ("exptime", -(2**31), 2**31), ("the cas unique", 0, 2**64))
    for text, (field, least, end) in zip(numbers, limits, strict=False):
        if not least <= int(text) < end:
            raise TypedError(f"{field} must be from {least} to {end - 1}")


def _is_number(word: bytes) -> bool:
    return re.fullmatch(rb"-?[0-9]{1,20}", word) is not None


def _usage(name: str) -> TypedError:
    return TypedError(f"usage: {COMMANDS[name].usage}; see 'help {name}'")
