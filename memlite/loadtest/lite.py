"""Loads in the lite dialect, which has only sets and gets of one key."""

import argparse

from memlite.core.errors import ConfigError
from memlite.loadtest.workload import Workload

__all__ = ["lite_set", "refuse_unsupported_by_lite"]

_OPERATIONS = {"get", "set"}


def lite_set(key: bytes, value: bytes) -> bytes:
    """Return the request that stores a value."""
    return b"set %b %d\r\n%b\r\n" % (key, len(value), value)


def refuse_unsupported_by_lite(options: argparse.Namespace, workload: Workload) -> None:
    """Refuse loads that the lite dialect cannot express.

    Args:
        options: the command-line options.
        workload: the workload of the clients.

    Raises:
        ConfigError: the lite dialect cannot express the load; the message names the option.
    """
    load = workload.load
    others = {kind for kind, weight in workload.mix.items() if weight} - _OPERATIONS
    refused = {
        "--client pymemcache": options.client != "text",
        "--user": options.user is not None,
        "--trace": bool(workload.trace),
        "--multiget": load.multiget > 1,
        "--noreply": load.noreply,
        "--ttl": workload.ttl != 0,
        f"{', '.join(sorted(others))} in the mix: it has only get and set": bool(others),
        "servers that bench starts: specify running ones with --target": (
            options.command == "compare" and not options.target
        ),
    }
    for what, wanted in refused.items():
        if wanted:
            raise ConfigError(f"bench: --dialect lite cannot be combined with {what}")
