"""The types of administrative commands and of the functions that carry them out."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from memlite.server.interfaces import Client

__all__ = ["NO_SLOW_LOG", "PIPELINED", "AdminRequest", "Command", "CommandTable"]

NO_SLOW_LOG: Final = (
    b"CLIENT_ERROR slow commands are not logged; start the server with --slow-log\r\n"
)

PIPELINED: Final = b"ERROR cannot pipeline other commands before %b\r\n"


class AdminRequest(NamedTuple):
    """A command of the text protocol that does not concern a key.

    Attributes:
        words: the command and its arguments.
        noreply: whether the last word is ``noreply``.
        client: the connection it arrived on.
    """

    words: list[bytes]
    noreply: bool
    client: Client


Command = Callable[[AdminRequest], bytes]
"""Carries out a command and returns its reply; empty if there is none, or if it will follow."""

CommandTable = Mapping[bytes, Command]
"""Commands by their first word."""
