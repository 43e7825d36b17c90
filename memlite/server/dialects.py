"""The protocols a connection may speak, and how the first byte tells which."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from memlite.protocol import Limits, TextParser
from memlite.protocol.magic import MAGIC
from memlite.server.commands import TextCommands

if TYPE_CHECKING:
    from memlite.backends import Part
    from memlite.engine import MetaEngine
    from memlite.engine.store import StoreEngine
    from memlite.protocol.login import LoginReader
    from memlite.server.connection import Connection
    from memlite.server.deferred import Deferred
    from memlite.server.deferred_connection import DeferredConnection
    from memlite.server.server import Server

__all__ = ["BINARY", "LITE", "TEXT", "Dialect", "Negotiator", "Parser"]


class Parser(Protocol):
    """What finds commands in a stream; see `memlite.protocol.TextParser`."""

    @property
    def in_value(self) -> bool: ...  # noqa: D102
    @property
    def in_command(self) -> bool: ...  # noqa: D102
    def receive(self, data: bytes, handler: Any) -> bool: ...  # noqa: D102


class Dialect(NamedTuple):
    """A protocol.

    Attributes:
        parser: makes what finds its commands.
        commands: makes the handler that answers them at once.
        deferred: makes the one for a backend that must be asked.
        login: makes what reads who a client is, where it has to authenticate.
        straight: whether a read that is ``get <key>`` may be answered without the parser.
    """

    parser: "Callable[[Limits], Parser]"
    commands: "Callable[[MetaEngine, Server, Connection, list[Part]], Any]"
    deferred: "Callable[[Server, StoreEngine, DeferredConnection], Deferred[Any]]"
    login: "Callable[[Limits], LoginReader]"
    straight: bool = False


def _later(module: str, name: str) -> Callable[..., Any]:
    """Return what makes instances of a class whose module is not imported before the first."""

    def make(*arguments: object) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return make


# Most servers only ever need two of these, and to import the others takes as long as those.
TEXT = Dialect(
    TextParser,
    TextCommands,
    _later("memlite.server.deferred_text", "DeferredText"),
    _later("memlite.protocol.login", "TextLoginReader"),
    straight=True,
)
BINARY = Dialect(
    _later("memlite.protocol.binary", "BinaryParser"),
    _later("memlite.server.binary", "BinaryCommands"),
    _later("memlite.server.deferred_binary", "DeferredBinary"),
    _later("memlite.protocol.sasl", "SaslReader"),
)
LITE = Dialect(
    _later("memlite.protocol.lite", "LiteParser"),
    _later("memlite.server.lite", "LiteCommands"),
    _later("memlite.server.lite", "DeferredLite"),
    _later("memlite.protocol.login", "TextLoginReader"),
)


class Negotiator:
    """Stands in a parser's place until the first byte is there.

    Args:
        connection: speaks the text protocol, until told to speak another.
        server: whose connection it is.
    """

    __slots__ = ("_connection", "_server", "_text")

    in_value = False
    in_command = False

    def __init__(self, connection: "Connection", server: "Server") -> None:
        self._connection = connection
        self._server = server
        self._text = connection.parser

    def receive(self, data: bytes, handler: Any) -> bool:
        """Give way to the parser of the protocol that the peer speaks."""
        if not data:
            return False
        connection = self._connection
        if data[0] != MAGIC:
            connection.parser = self._text
            return self._text.receive(data, handler)
        connection.speak(BINARY)
        return connection.parser.receive(data, self._server.instrument(connection))
