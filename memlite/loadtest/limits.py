"""Limits on the number of clients: the server's and this machine's."""

import errno
import resource
import ssl

from memlite.core.errors import StartError

__all__ = [
    "ClientRefusedError",
    "TooManyClientsError",
    "at_the_limit",
    "raise_file_limit",
    "too_many_clients",
    "what_failed",
]

RESET = "connection reset"
TIMEOUT = "timeout"

# Files that a worker has open besides its connections.
_OTHER_FILES = 64
# Connections to allow for besides the clients': memcached counts its own open files.
_OTHER_CONNECTIONS = 64


class TooManyClientsError(StartError):
    """There are more clients than the server accepts."""


class ClientRefusedError(StartError):
    """A worker's client could not connect.

    Attributes:
        reason: why, in a few words.
        full: whether the server reported too many connections.
    """

    def __init__(self, reason: str, *, full: bool) -> None:
        super().__init__(f"bench: {reason}")
        self.reason = reason
        self.full = full


def at_the_limit(error: ClientRefusedError, clients: int, limit: int | None) -> bool:
    """Return whether a client was refused because there are too many clients.

    A server at its limit may say so, close connections, or leave them waiting.

    Args:
        error: the error that the worker reported.
        clients: the planned number of clients.
        limit: the server's connection limit; None if unknown.
    """
    if error.full:
        return True
    near = limit is not None and clients + _OTHER_CONNECTIONS > limit
    return near and error.reason in (RESET, TIMEOUT)


def too_many_clients(name: str, clients: int, limit: int | None) -> TooManyClientsError:
    """Return an error that states how many connections a server accepts, and what to do.

    Args:
        name: the server's display name.
        clients: the planned number of clients.
        limit: the server's connection limit; None if unknown.
    """
    advice = -(-(clients + _OTHER_CONNECTIONS) // 100) * 100
    if limit is None:
        accepts = "does not accept that many connections"
    else:
        accepts = f"accepts {limit:,} connections"
        if limit >= clients:
            accepts += ", some of which are already in use"
    return TooManyClientsError(
        f"bench: {name} {accepts}: for {clients:,} clients, start it with -c {advice}"
    )


def raise_file_limit(clients: int, workers: int) -> None:
    """Raise the limit on open files, which workers inherit, to the number that they need.

    Args:
        clients: the highest number of clients.
        workers: the number of worker processes.

    Raises:
        StartError: the limit cannot be raised that far.
    """
    needed = -(-clients // workers) + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard == resource.RLIM_INFINITY:
        hard = needed
    try:
        # Only root may raise the hard limit, and not on every system.
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(needed, hard)))
    except (OSError, ValueError):
        raise StartError(
            f"bench: {clients:,} clients with --workers {workers} need {needed:,} open files "
            f"per worker, but the limit is {hard:,}: raise it with ulimit -n, or use more --workers"
        ) from None


def what_failed(error: OSError) -> str:
    """Return why a client could not connect, in words that name the side at fault."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "the load generator has too many open files: raise the limit with ulimit -n"
    if error.errno == errno.EADDRNOTAVAIL:
        return "the load generator has run out of local ports: use fewer clients, or wait a minute"
    if isinstance(error, ssl.SSLError):
        return "TLS handshake failed"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error, ConnectionResetError):
        return RESET
    return error.strerror or str(error)
