"""The protocols a connection may speak."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from memlite.protocol import Handler, Limits, TextParser
from memlite.server.execution.text_commands import TextCommands

if TYPE_CHECKING:
    from memlite.protocol.login import LoginReader  # only for servers with authentication

__all__ = ["BINARY", "LITE", "TEXT", "Dialect", "Parser"]


class Parser(Protocol):
    """Finds commands in a stream; see `memlite.protocol.TextParser`."""

    @property
    def backlog(self) -> int: ...  # noqa: D102 - see the class
    @property
    def in_value(self) -> bool: ...  # noqa: D102
    @property
    def in_command(self) -> bool: ...  # noqa: D102
    def receive(self, data: bytes, handler: Handler) -> bool: ...  # noqa: D102


class Dialect(NamedTuple):
    """A protocol.

    Attributes:
        parser: makes its parser.
        commands: makes its command set from an engine, admin, client and list for replies.
        login: makes its login reader, for clients that must authenticate.
        fast: whether ``get <key>`` may be answered on the fast path, without the parser.
    """

    parser: "Callable[[Limits], Parser]"
    commands: Callable[..., Any]
    login: "Callable[[Limits], LoginReader]"
    fast: bool = False


def _lazy(module: str, name: str) -> Callable[..., Any]:
    """Return a factory for a class whose module is imported on the first call."""

    def make(*arguments: object) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return make


# Most servers need only one protocol, and importing all of them would double the import time.
TEXT = Dialect(
    TextParser,
    TextCommands,
    _lazy("memlite.protocol.login", "TextLoginReader"),
    fast=True,
)
BINARY = Dialect(
    _lazy("memlite.protocol.binary", "BinaryParser"),
    _lazy("memlite.server.execution.binary_commands", "BinaryCommands"),
    _lazy("memlite.protocol.sasl", "SaslReader"),
)
LITE = Dialect(
    _lazy("memlite.protocol.lite", "LiteParser"),
    _lazy("memlite.server.execution.lite_commands", "LiteCommands"),
    _lazy("memlite.protocol.login", "TextLoginReader"),
)
