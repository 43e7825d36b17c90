"""Access to redis-py beyond its documented interface, and the versions that support it.

The parser of a connection, its `hiredis.Reader` and the marker for a reply that has not arrived
yet are internal to redis-py, which may change them in any major version. No other module of memlite
uses them, and `check` detects changes to them at start-up.
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
    NOT_ENOUGH_DATA = object()  # no reader returns it, and `check` notices

__all__ = ["NOT_ENOUGH_DATA", "check", "parser_of", "tell_of_changes"]

_FROM, _BELOW = (8, 0), (9,)
_NEEDED: Final = "redis>=8.0,<9 and hiredis>=3.2"  # as in pyproject.toml


def check() -> None:
    """Check that the installed versions have the internals used here.

    Raises:
        StartError: they do not. The text says which versions are needed.
    """
    version = tuple(redis.VERSION[:2])
    if not (_FROM <= version < _BELOW and _has_what_is_used()):
        raise StartError(
            f"--backend: valkey://: redis {redis.__version__} with hiredis {hiredis.__version__} "
            f"is installed, but memlite requires {_NEEDED}: pip install 'memlite-cache[valkey]'"
        )


def _has_what_is_used() -> bool:
    connection = Connection()
    try:
        parser = parser_of(connection)
        parser.on_connect(connection)  # as if it were open, but with nothing to read
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
    """Call a function with each message from the store about changed keys."""
    parser_of(connection).set_invalidation_push_handler(told)
