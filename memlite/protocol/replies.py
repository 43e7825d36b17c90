"""The text protocol's reply lines: constants, and functions for lines with variable parts."""

from collections.abc import Iterable
from typing import Final

from memlite.core.errors import CommandError, OutOfMemoryError, Shortage

__all__ = [
    "AUTHENTICATION_FAILURE",
    "BAD_DATA_CHUNK",
    "BAD_FORMAT",
    "BAD_TERMINATION",
    "BAD_TOKEN",
    "DELETED",
    "END",
    "ERROR",
    "EXISTS",
    "INVALID_DELTA",
    "INVALID_EXPTIME",
    "NON_NUMERIC",
    "NOT_FOUND",
    "NOT_STORED",
    "OK",
    "OUT_OF_MEMORY",
    "RESET",
    "STORED",
    "TOKEN_TOO_LONG",
    "TOO_LARGE",
    "TOO_MANY_CONNECTIONS",
    "TOO_MANY_FAILURES",
    "TOUCHED",
    "UNAUTHENTICATED",
    "error_line",
    "stat_lines",
    "value_head_with_cas",
]

STORED = b"STORED\r\n"
NOT_STORED = b"NOT_STORED\r\n"
EXISTS = b"EXISTS\r\n"
NOT_FOUND = b"NOT_FOUND\r\n"
DELETED = b"DELETED\r\n"
TOUCHED = b"TOUCHED\r\n"
OK = b"OK\r\n"
RESET = b"RESET\r\n"
END = b"END\r\n"

ERROR = b"ERROR\r\n"
BAD_FORMAT = b"CLIENT_ERROR bad command line format\r\n"
BAD_DATA_CHUNK = b"CLIENT_ERROR bad data chunk\r\n"
INVALID_EXPTIME = b"CLIENT_ERROR invalid exptime argument\r\n"
INVALID_DELTA = b"CLIENT_ERROR invalid numeric delta argument\r\n"
NON_NUMERIC = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
TOO_LARGE = b"SERVER_ERROR object too large for cache\r\n"
OUT_OF_MEMORY = b"SERVER_ERROR out of memory\r\n"
TOO_MANY_CONNECTIONS = b"ERROR Too many open connections\r\n"

UNAUTHENTICATED = b"CLIENT_ERROR unauthenticated\r\n"
AUTHENTICATION_FAILURE = b"CLIENT_ERROR authentication failure\r\n"
TOKEN_TOO_LONG = b"CLIENT_ERROR auth token too long\r\n"
BAD_TOKEN = b"CLIENT_ERROR bad authentication token format\r\n"
BAD_TERMINATION = b"CLIENT_ERROR bad command line termination\r\n"
# Specific to memlite: memcached does not limit failed attempts.
TOO_MANY_FAILURES = b"CLIENT_ERROR too many failed authentications, try again later\r\n"


_SHORTAGE: Final = {
    Shortage.ITEM: b"SERVER_ERROR out of memory storing object\r\n",
    Shortage.NUMBER: OUT_OF_MEMORY,
    Shortage.NEW_NUMBER: b"SERVER_ERROR Out of memory allocating new item\r\n",
}


def error_line(error: CommandError) -> bytes:
    """Return the reply to a command that failed."""
    if isinstance(error, OutOfMemoryError):
        return _SHORTAGE[error.shortage]
    return b"SERVER_ERROR %b\r\n" % str(error).encode()


def value_head_with_cas(key: bytes, flags: int, size: int, unique: int) -> bytes:
    """Return the ``VALUE`` line of gets, which ends with the cas unique."""
    return b"VALUE %b %d %d %d\r\n" % (key, flags, size, unique)


def stat_lines(stats: Iterable[tuple[str, object]]) -> bytes:
    r"""Return a ``STAT <name> <value>\r\n`` line for each pair, and the ``END`` line."""
    lines = [f"STAT {name} {value}\r\n" for name, value in stats]
    lines.append("END\r\n")
    return "".join(lines).encode("utf-8", "surrogateescape")
