"""How many clients there can be: the server's limit, and this machine's."""

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

# What a worker has open besides its connections.
_OTHER_FILES = 64
# What a server needs besides the clients' connections: memcached counts files of its own.
_OTHER_CONNECTIONS = 64


class TooManyClientsError(StartError):
    """There are more clients than the server serves."""


class ClientRefusedError(StartError):
    """A worker's client did not get in.

    Attributes:
        reason: why, in a few words.
        full: whether the server said that it has too many connections.
    """

    def __init__(self, reason: str, *, full: bool) -> None:
        super().__init__(f"bench: {reason}")
        self.reason = reason
        self.full = full


def at_the_limit(error: ClientRefusedError, clients: int, limit: int | None) -> bool:
    """Return whether a client was refused because there are too many.

    A server at its limit may say so, close connections, or leave them waiting.

    Args:
        error: what the worker reported.
        clients: how many clients there were to be.
        limit: the server's limit of connections; None if it does not tell.
    """
    if error.full:
        return True
    near = limit is not None and clients + _OTHER_CONNECTIONS > limit
    return near and error.reason in (RESET, TIMEOUT)


def too_many_clients(name: str, clients: int, limit: int | None) -> TooManyClientsError:
    """Return the error that says how many connections a server accepts, and what to do.

    Args:
        name: the server's display name.
        clients: how many clients there were to be.
        limit: the server's limit of connections; None if it does not tell.
    """
    advice = -(-(clients + _OTHER_CONNECTIONS) // 100) * 100
    if limit is None:
        accepts = "does not accept so many connections"
    else:
        accepts = f"accepts {limit:,} connections"
        if limit >= clients:
            accepts += ", and needs some of them itself or has other clients"
    return TooManyClientsError(
        f"bench: {name} {accepts}: for {clients:,} clients, start it with -c {advice}"
    )


def raise_file_limit(clients: int, workers: int) -> None:
    """Raise the limit on open files, which workers inherit, to what their connections need.

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
        # Only root may raise the hard limit, and not everywhere.
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(needed, hard)))
    except (OSError, ValueError):
        raise StartError(
            f"bench: {clients:,} clients with --workers {workers} need {needed:,} open files in "
            f"each, and the limit is {hard:,}: raise it with ulimit -n, or use more --workers"
        ) from None


def what_failed(error: OSError) -> str:
    """Return what kept a client from connecting, in words that name the side at fault."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "the load generator has too many open files: raise the limit with ulimit -n"
    if error.errno == errno.EADDRNOTAVAIL:
        return "the load generator has no local port left: use fewer clients, or wait a minute"
    if isinstance(error, ssl.SSLError):
        return "TLS handshake failed"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error, ConnectionResetError):
        return RESET
    return error.strerror or str(error)
