"""The protocols a connection may speak, and how the first byte tells which."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from memlite.engine import MetaEngine, StoreEngine
from memlite.errors import ProtocolViolation
from memlite.protocol import Limits, TextParser
from memlite.server.admin import Admin
from memlite.server.commands import TextCommands
from memlite.server.deferred import Deferred
from memlite.server.deferred_text import DeferredText

if TYPE_CHECKING:
    from memlite.server.connection import Connection
    from memlite.server.deferred_connection import DeferredConnection
    from memlite.server.server import Server

__all__ = ["TEXT", "Dialect", "Negotiator", "Parser"]

_BINARY_MAGIC = 0x80


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
        straight: whether a read that is ``get <key>`` may be answered without the parser.
    """

    parser: "Callable[[Limits], Parser]"
    commands: "Callable[[MetaEngine, Admin, Connection, list[bytes]], Any]"
    deferred: "Callable[[Server, StoreEngine, DeferredConnection], Deferred[Any]]"
    straight: bool = False


TEXT = Dialect(TextParser, TextCommands, DeferredText, straight=True)


class Negotiator:
    """Stands in a parser's place until the first byte is there.

    Args:
        connection: speaks the text protocol, until told to speak another.
    """

    __slots__ = ("_connection", "_text")

    in_value = False
    in_command = False

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._text = connection.parser

    def receive(self, data: bytes, handler: Any) -> bool:
        """Give way to the parser of the protocol that the peer speaks."""
        if not data:
            return False
        if data[0] == _BINARY_MAGIC:
            raise ProtocolViolation("the binary protocol, which this version does not speak")
        self._connection.parser = self._text
        return self._text.receive(data, handler)
