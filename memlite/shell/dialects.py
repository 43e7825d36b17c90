"""What a server may speak."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from memlite.shell import lite, typed
from memlite.shell.commands import COMMANDS, Command
from memlite.shell.typed import Typed

__all__ = ["DIALECTS", "MEMCACHED", "Dialect"]


class Dialect(NamedTuple):
    """A way to ask, and what there is to ask for.

    Attributes:
        commands: every command by its name, in the order ``help`` lists them.
        read_line: returns what a line asks for; see `memlite.shell.typed.read_line`.
        read_words: returns what a command given as words asks for; see `read_words` there.
    """

    commands: Mapping[str, Command]
    read_line: Callable[[bytes], Typed | None]
    read_words: Callable[[list[bytes], bytes | None], Typed | None]


MEMCACHED = Dialect(COMMANDS, typed.read_line, typed.read_words)

DIALECTS = {
    "memcached": MEMCACHED,
    "lite": Dialect(lite.COMMANDS, lite.read_line, lite.read_words),
}
"""Each by its name."""
