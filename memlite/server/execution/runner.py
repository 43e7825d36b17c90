"""Carries out runs of commands in C, straight from the input, if the module was compiled.

`_native.c` handles the commands of `memlite.server.execution.short_commands` and
`short_binary_commands` on plain or absent items, and passes all others to those modules.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, cast

from memlite.core.build import extension
from memlite.engine import MemoryEngine
from memlite.engine.sizes import EvictionCounts
from memlite.memory import FullItem, Item, ItemTable, Part
from memlite.memory.eviction import S3Fifo
from memlite.memory.item import EPOCH, shared
from memlite.server.execution.dialects import BINARY, TEXT, Dialect
from memlite.server.execution.short_commands import SHORTCUTS
from memlite.server.execution.text_commands import TextCommands

__all__ = [
    "NATIVE",
    "VERSION",
    "BinaryFallback",
    "Run",
    "Runner",
    "Runs",
    "make_runner",
    "run_of",
    "runs_of",
    "text_fallback",
]

Run: TypeAlias = Callable[..., bytes | None]
"""Carries out commands; see `Runner.text`."""

Runs: TypeAlias = tuple[tuple[Dialect, Run], ...]
"""The run of each protocol."""

VERSION: Final = 7
"""The version of the interface; `_native.c` has the same."""

NATIVE: Final[Any] = extension("memlite.server.execution._native", VERSION)
"""The module in C; None if it is not used."""

_CR: Final = 13
_G: Final = b"g"[0]
_E: Final = b"e"[0]


class Runner(Protocol):
    """Carries out clients' input, as far as it consists of complete commands in their usual form.

    Attributes:
        position: where the last run ended: everything before has been carried out.
        served: the number of commands in that run.
        next_turn: where to begin in the next turn, if the run filled a turn and enough of the next
            command has arrived; otherwise 0, though the parser may find enough.
        missing: how many bytes complete the command at `position`, if it stores a value that may be
            stored and has not arrived in full; otherwise 0.
    """

    @property
    def position(self) -> int: ...  # noqa: D102 - see the class
    @property
    def served(self) -> int: ...  # noqa: D102
    @property
    def next_turn(self) -> int: ...  # noqa: D102
    @property
    def missing(self) -> int: ...  # noqa: D102

    def text(self, data: bytes, out: list[Part], begin: int = 0, /) -> bytes | None:
        """Carry out commands of the text protocol, at most as many as in a turn.

        Counts the bytes read, unless they are left over from input that was already counted. Also
        counts the read itself, if all of it has been carried out.

        Args:
            data: the input.
            out: an empty list.
            begin: where to begin; above 0 for input left over from earlier turns.

        Returns:
            The replies, counted as written, if they answer all of `data`. None if they do not, or
            are large: then they are in `out`, and `position` is where the run ended.
        """

    def binary(self, data: bytes, out: list[Part], begin: int = 0, /) -> bytes | None:
        """Carry out commands of the binary protocol; see `text`."""


def make_runner(engine: MemoryEngine, commands_per_read: int) -> Runner | None:
    """Return a runner of commands on an engine's table; None without the module in C.

    Args:
        engine: the engine that has the table.
        commands_per_read: as in `memlite.protocol.Limits`.
    """
    if NATIVE is None or type(engine) is not MemoryEngine or not engine.items.finds_without_effect:
        return None
    replies: list[Part] = []
    # Shortcuts use neither the admin nor the client.
    text = TextCommands(engine, cast("Any", None), cast("Any", None), replies)
    runner: Runner = NATIVE.Runner(
        engine,
        Item,
        FullItem,
        ItemTable,
        S3Fifo,
        shared,
        text_fallback(text),
        BinaryFallback(engine, replies),
        replies,
        commands_per_read,
        EvictionCounts,
        EPOCH,
    )
    return runner


def text_fallback(text: TextCommands) -> Callable[[bytes, int], int]:
    """Return a function that carries out the text command at a position, if it has a shortcut.

    The function returns the position of the next command, or 0 if nothing was done.
    """

    def carry_out(data: bytes, position: int) -> int:
        newline = data.find(b"\n", position)
        if newline <= position or data[newline - 1] != _CR:
            return 0
        gets = data[position] == _G and data[position + 1] == _E
        if gets and text.try_get(data[position : newline + 1]):
            return newline + 1
        words = data[position : newline - 1].split(b" ", 2)
        shortcut = SHORTCUTS.get(words[0])
        return 0 if shortcut is None else shortcut(text, words, data, newline + 1)

    return carry_out


class BinaryFallback:
    """Carries out complete packets; imports the code for that on the first call.

    Args:
        engine: the engine that has the table.
        replies: receives the replies.
    """

    def __init__(self, engine: MemoryEngine, replies: list[Part]) -> None:
        self._engine = engine
        self._replies = replies
        self._carry_out: Callable[[bytes, int], int] | None = None

    def __call__(self, data: bytes, position: int) -> int:
        """Carry out the packet at `position`; return the position of the next one, or 0."""
        if self._carry_out is None:
            from memlite.server.execution.packet_fallback import packet_fallback

            self._carry_out = packet_fallback(self._engine, self._replies)
        return self._carry_out(data, position)


def runs_of(runner: Runner | None) -> Runs:
    """Return the run of each protocol that has one.

    Call it once: if each connection looked them up, each would take 80 bytes more.
    """
    return () if runner is None else ((TEXT, runner.text), (BINARY, runner.binary))


def run_of(runs: Runs, dialect: Dialect) -> Run | None:
    """Return the run of a protocol; None for a protocol without runs."""
    for one, run in runs:
        if one is dialect:
            return run
    return None
