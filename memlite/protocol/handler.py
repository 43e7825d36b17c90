"""The interface that parsers call."""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from memlite.protocol.commands import Arguments, Command

__all__ = ["NO_SHORTCUTS", "SEVERAL_GETS", "Handler", "Shortcuts"]

Shortcuts: TypeAlias = dict[Any, Callable[..., Any]]
"""Functions for commands in their usual form; see `Handler`."""
NO_SHORTCUTS: Final[Shortcuts] = {}
SEVERAL_GETS: Final = b"get "  # not a possible first word, because of the space


class Handler(Protocol):
    """Carries out commands in order of arrival and sends their replies.

    The methods return no reply: a handler may answer at once (memory) or later (stores), always in
    order. `execute` takes any command. The text parser calls `try_get`, `set` and `set_framed`
    instead as fast paths. Every parser calls `reject` and `quit`.

    Attributes:
        shortcuts: functions that carry out a command in its usual form before it is parsed further;
            empty if each command is observed, forwarded or answered later. Text protocol shortcuts
            are found by the first word of the line, and called with the handler; the first word,
            the second and the rest of the line; the input; and the position after the line. They
            return the position of the next command, or 0 if nothing was done. `SEVERAL_GETS` is
            called with the handler and lines that begin like gets, with their endings; it returns
            how many it has answered before the first line that `try_get` would not answer. Binary
            protocol shortcuts are found by the opcode, and called with the handler and the packet's
            opcode, opaque, cas unique, extras, key and value; they return whether anything was
            done.
    """

    @property
    def shortcuts(self) -> Shortcuts: ...

    def try_get(self, line: bytes) -> bool:
        r"""Answer ``get <key>*\r\n`` now if possible; otherwise do nothing and return False.

        The parser first calls this with any line, including its line ending, that begins with
        ``ge``. If the result is False, it parses the line as usual.
        """

    def set(self, key: bytes, flags: int, exptime: int, value: bytes, noreply: bool) -> None:
        """Carry out ``set``: `memlite.protocol.text_table.SET`."""

    def set_framed(self, key: bytes, exptime: int, framed: bytes, noreply: bool) -> None:
        r"""Carry out a set whose value is already in the form of a get's reply.

        Large values and most small ones arrive this way.

        Args:
            key: the item's key.
            exptime: as for `set`.
            framed: ``VALUE <key> <flags> <size>\r\n<value>\r\nEND\r\n``.
            noreply: as for `set`.
        """

    def execute(self, command: Command, arguments: Arguments) -> None:
        """Carry out a command of the protocol's table.

        Args:
            command: the command's table row.
            arguments: the arguments of the command set's method of that name. Values come without
                their line ending; `noreply`, if there is one, comes last.
        """

    def reject(self, reply: bytes, noreply: bool) -> None:
        """Answer a malformed command with the reply line `reply`."""

    def quit(self) -> None:
        """Close the connection once earlier replies have been sent."""
