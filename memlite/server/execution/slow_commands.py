"""The slow log's view of a command: the name by which clients know it, and its keys."""

from typing import Final

from memlite.protocol.commands import Arguments, Command
from memlite.telemetry.slow import SlowLog

__all__ = ["SlowCommands", "name_of"]

_MAX_WORD_LENGTH: Final = 32


class SlowCommands:
    """Passes one client's slow commands to the slow log.

    Args:
        log: the slow log.
        client: the client's address.
    """

    __slots__ = ("_client", "_log", "_threshold")

    def __init__(self, log: SlowLog, client: str) -> None:
        self._log = log
        self._client = client
        self._threshold = log.threshold

    def record(self, command: Command, arguments: Arguments, nanoseconds: int) -> None:
        """Take a command whose reply is ready."""
        if nanoseconds >= self._threshold:
            keys = command.keys(arguments)
            self._log.record(name_of(command, arguments), keys, nanoseconds, self._client)


def name_of(command: Command, arguments: Arguments) -> str:
    """Return the name of a command as clients write it."""
    name = command.name
    if name == "set_framed":
        return "set"
    if name in ("admin", "too_large"):  # the command's word is its first argument
        word = arguments[0][0] if name == "admin" else arguments[0]
        return _printable(word)
    if name in ("binary_reject", "reject", "bad_chunk"):
        return name
    if name.startswith("binary_"):
        return _name_of_opcode(arguments[0].opcode)
    return command.syntax.partition(" ")[0]


def _printable(word: bytes) -> str:
    """Return a client's word, shortened; "unknown" if characters in it could confuse a reader."""
    text = word[:_MAX_WORD_LENGTH].decode("latin-1").lower()
    return text if text.isascii() and text.replace("_", "").isalnum() else "unknown"


def _name_of_opcode(opcode: int) -> str:
    from memlite.protocol.packets import Opcode  # most servers never need it

    try:
        return Opcode(opcode).name.lower()
    except ValueError:
        return "unknown"
