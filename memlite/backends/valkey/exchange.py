"""A batch of commands and their replies on a connection of redis-py.

redis-py's own methods take a dozen calls for a command and three coroutines for a reply, which is
half of the processor time of a pipeline. This module calls hiredis, which redis-py uses too, to
pack and parse directly. It awaits only replies that have not arrived yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hiredis import pack_command
from redis.asyncio.connection import Connection
from redis.exceptions import ConnectionError as NoConnectionError

from memlite.backends.valkey.library import NOT_ENOUGH_DATA, parser_of

__all__ = ["MISSING", "Arguments", "Command", "Late", "Replies", "Reply", "send"]

Arguments = tuple[bytes | str | int, ...]


@dataclass(frozen=True, slots=True)
class Late:
    """A command whose arguments depend on the time at which it is sent.

    Attributes:
        name: its name in metrics.
        made: returns its arguments.
    """

    name: str
    made: Callable[[], Arguments]


Command = Arguments | Late

Reply = object
"""The result of a command; a `ResponseError` if the server refused it."""

MISSING = NOT_ENOUGH_DATA
"""Stands for a reply that has not arrived yet."""

# Larger batches are not copied into one piece.
_JOINED = 64 * 1024


async def send(connection: Connection, commands: Sequence[Arguments]) -> None:
    """Send commands, and wait until there is room for more."""
    # The type stub declares a tuple of one element.
    packed = [pack_command(arguments) for arguments in commands]  # type: ignore[arg-type]
    if len(packed) > 1 and sum(map(len, packed)) < _JOINED:
        packed = [b"".join(packed)]
    await connection.send_packed_command(packed, check_health=False)


class Replies:
    """The replies to commands sent over a connection.

    Args:
        connection: an open connection.
    """

    __slots__ = ("_parse", "_parser")

    def __init__(self, connection: Connection) -> None:
        self._parser = parser = parser_of(connection)
        self._parse = parser._reader.gets

    def arrived(self) -> Reply:
        """Return the next reply, or `MISSING` if not all of it has arrived.

        Raises:
            ConnectionError: of redis-py: the server reports that the connection is unusable.
            InvalidResponse: of redis-py: the data is not a reply.
        """
        reply = self._parse()
        if isinstance(reply, NoConnectionError):
            raise reply
        return reply

    async def next(self) -> Reply:
        """Return the next reply; see `arrived`.

        Raises:
            OSError: the connection is lost.
        """
        while (reply := self.arrived()) is MISSING:
            await self._parser.read_from_socket()
        return reply
