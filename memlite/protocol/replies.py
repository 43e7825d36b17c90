"""The text protocol's reply lines, ready to send, and the few that must be made."""

from collections.abc import Iterable

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
    "RESET",
    "STORED",
    "TOKEN_TOO_LONG",
    "TOO_LARGE",
    "TOO_MANY_CONNECTIONS",
    "TOO_MANY_FAILURES",
    "TOUCHED",
    "UNAUTHENTICATED",
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
TOO_MANY_CONNECTIONS = b"ERROR Too many open connections\r\n"

UNAUTHENTICATED = b"CLIENT_ERROR unauthenticated\r\n"
AUTHENTICATION_FAILURE = b"CLIENT_ERROR authentication failure\r\n"
TOKEN_TOO_LONG = b"CLIENT_ERROR auth token too long\r\n"
BAD_TOKEN = b"CLIENT_ERROR bad authentication token format\r\n"
BAD_TERMINATION = b"CLIENT_ERROR bad command line termination\r\n"
# memlite's own: memcached lets everybody try as often as they like.
TOO_MANY_FAILURES = b"CLIENT_ERROR too many failed authentications, try again later\r\n"


def value_head_with_cas(key: bytes, flags: int, size: int, unique: int) -> bytes:
    """Return the line before a value as gets sends it, with the cas unique behind the length."""
    return b"VALUE %b %d %d %d\r\n" % (key, flags, size, unique)


def stat_lines(stats: Iterable[tuple[str, object]]) -> bytes:
    r"""Return ``STAT <name> <value>\r\n`` for each pair, and the END line."""
    lines = [f"STAT {name} {value}\r\n" for name, value in stats]
    lines.append("END\r\n")
    return "".join(lines).encode("utf-8", "surrogateescape")
