"""Loads in the protocol of Redis and Valkey, for clients that talk to the store directly."""

import argparse
from typing import Final

from memlite.core.errors import ConfigError
from memlite.loadtest.workload import Workload

__all__ = ["DIRECT", "PING", "PONG", "refuse_unsupported_by_direct", "resp_get", "resp_set"]

DIRECT: Final = "redis-direct"
"""The backend name for the store itself, without memlite in front of it."""

PING: Final = b"*1\r\n$4\r\nPING\r\n"
PONG: Final = b"+PONG\r\n"

_OPERATIONS: Final = {"get", "set"}


def resp_get(key: bytes) -> bytes:
    """Return the request that reads a value."""
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key)


def resp_set(key: bytes, value: bytes) -> bytes:
    """Return the request that stores a value."""
    start = b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, len(value))
    return b"%b%b\r\n" % (start, value)


def refuse_unsupported_by_direct(options: argparse.Namespace, workload: Workload) -> None:
    """Refuse loads that need more than sets and gets of one key.

    Args:
        options: the command-line options.
        workload: the workload of the clients.

    Raises:
        ConfigError: the load needs more than that; the message names the option.
    """
    load = workload.load
    others = {kind for kind, weight in workload.mix.items() if weight} - _OPERATIONS
    refused = {
        "--client pymemcache": options.client != "text",
        "--trace": bool(workload.trace),
        "--multiget": load.multiget > 1,
        "--noreply": load.noreply,
        "--ttl": workload.ttl != 0,
        "--verify": options.verify,
        f"{', '.join(sorted(others))} in the mix: it supports only get and set": bool(others),
    }
    for what, wanted in refused.items():
        if wanted:
            raise ConfigError(f"bench: --backends {DIRECT} cannot be combined with {what}")
