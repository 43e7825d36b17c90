"""How the built-in clients behave."""

import ssl
from collections.abc import Callable
from typing import NamedTuple

from memlite.client.login import TextLogin
from memlite.loadtest.dialects import Dialect

__all__ = ["Check", "Settings"]

Check = Callable[[bytes, bytes], bool]
"""Tells whether a value was stored under a key."""


class Settings(NamedTuple):
    """How the clients of a worker behave.

    Attributes:
        address: host and port, or the path of a UNIX socket.
        connections: the number of connections.
        pipeline: requests that a connection may have outstanding.
        think_time: seconds between a reply and the next request.
        timeout: seconds after which a request counts as failed.
        check: checks the values of replies; None for no check.
        keep: whether the values of replies are needed, for that or for a second step.
        login: sent first on each connection; None for none.
        tls: encrypts connections; None for plain text.
        dialect: the protocol they speak.
        extra_addresses: further addresses of the same cluster; the connections are spread over all
            of them.
    """

    address: tuple[str, int] | str
    connections: int
    pipeline: int = 1
    think_time: float = 0.0
    timeout: float = 5.0
    check: Check | None = None
    keep: bool = False
    login: TextLogin | None = None
    tls: ssl.SSLContext | None = None
    dialect: Dialect = Dialect.MEMCACHED
    extra_addresses: tuple[tuple[str, int] | str, ...] = ()
