"""The protocol dialects the shell can speak."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from memlite.shell import lite, typed
from memlite.shell.commands import COMMANDS, Command
from memlite.shell.typed import Typed

__all__ = ["DIALECTS", "MEMCACHED", "Dialect"]


class Dialect(NamedTuple):
    """A dialect: its commands, and how they are parsed.

    Attributes:
        commands: all commands by name, in the order ``help`` lists them.
        read_line: parses a typed line; see `memlite.shell.typed.read_line`.
        read_words: parses a command given as words; see `memlite.shell.typed.read_words`.
    """

    commands: Mapping[str, Command]
    read_line: Callable[[bytes], Typed | None]
    read_words: Callable[[list[bytes], bytes | None], Typed | None]


MEMCACHED = Dialect(COMMANDS, typed.read_line, typed.read_words)

DIALECTS = {
    "memcached": MEMCACHED,
    "lite": Dialect(lite.COMMANDS, lite.read_line, lite.read_words),
}
"""The dialects by name."""
