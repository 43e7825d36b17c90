"""Protocol negotiation: the first byte distinguishes the binary from the text protocol."""

from typing import Protocol

from memlite.protocol import Handler
from memlite.protocol.magic import MAGIC
from memlite.server.execution.dialects import BINARY, Dialect, Parser

__all__ = ["Negotiator"]


class _Speaker(Protocol):
    parser: Parser

    def speak(self, dialect: Dialect) -> None: ...

    def handler(self) -> Handler: ...


class Negotiator:
    """Stands in for the parser until the first byte arrives.

    Args:
        connection: the connection, which speaks the text protocol by default.
    """

    __slots__ = ("_connection", "_text")

    backlog = 0
    in_value = False
    in_command = False

    def __init__(self, connection: _Speaker) -> None:
        self._connection = connection
        self._text = connection.parser

    def receive(self, data: bytes, handler: Handler) -> bool:
        """Hand over to the parser of the client's protocol."""
        if not data:
            return False
        connection = self._connection
        if data[0] != MAGIC:
            connection.parser = self._text
            return self._text.receive(data, handler)
        connection.speak(BINARY)
        return connection.parser.receive(data, connection.handler())
