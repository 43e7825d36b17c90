"""What is used of redis-py beyond its documented interface, and the versions that have it.

The parser of a connection, its `hiredis.Reader` and the marker for a reply that has not arrived
yet are internal to redis-py, which may change them in any major version. Nothing else in memlite
touches them, and `check` tells at the start if they are not what they were.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import hiredis
import redis
from redis.asyncio.connection import Connection, SSLConnection

from memlite.core.errors import StartError

try:
    from redis._parsers.hiredis import NOT_ENOUGH_DATA
except ImportError:
    NOT_ENOUGH_DATA = object()  # which no reader returns, as `check` finds out

__all__ = ["NOT_ENOUGH_DATA", "check", "parser_of", "tell_of_changes"]

_FROM, _BELOW = (8, 0), (9,)
_NEEDED: Final = "redis>=8.0,<9 and hiredis>=3.2"  # as in pyproject.toml


def check() -> None:
    """Check that the versions that are installed have what is used.

    Raises:
        StartError: they do not. The text says which are needed.
    """
    version = tuple(redis.VERSION[:2])
    if not (_FROM <= version < _BELOW and _has_what_is_used()):
        raise StartError(
            f"--backend: valkey://: redis {redis.__version__} with hiredis {hiredis.__version__} "
            f"is installed, and memlite needs {_NEEDED}: pip install 'memlite-cache[valkey]'"
        )


def _has_what_is_used() -> bool:
    connection = Connection()
    try:
        parser = parser_of(connection)
        parser.on_connect(connection)  # as when it is open, only that there is nothing to read
        nothing = parser._reader.gets()
        used = parser.read_from_socket, parser.set_invalidation_push_handler
        return (
            nothing is NOT_ENOUGH_DATA
            and all(map(callable, used))
            and hasattr(SSLConnection, "_connection_arguments")
        )
    except (AttributeError, TypeError):
        return False


def parser_of(connection: Connection) -> Any:
    """Return the parser of a connection, which has a reader if the connection is open."""
    return connection._parser


def tell_of_changes(
    connection: Connection, told: Callable[[Sequence[Any]], Awaitable[None]]
) -> None:
    """Have a function called with each message of the store about keys that have changed."""
    parser_of(connection).set_invalidation_push_handler(told)
