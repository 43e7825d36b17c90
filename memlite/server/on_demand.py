"""Modules that are imported lazily, when a command or a protocol first needs them.

Importing them at startup would double the startup time.
"""

import importlib
from collections.abc import Sequence

__all__ = ["COMMON", "MODULES", "import_all"]

MODULES = (
    "memlite.protocol.binary",
    "memlite.protocol.lite",
    "memlite.protocol.login",
    "memlite.protocol.sasl",
    "memlite.core.uris",
    "memlite.server.admin.admin",
    "memlite.server.execution.binary_commands",
    "memlite.server.execution.pipelined",
    "memlite.server.admin.dumps",
    "memlite.server.connections.tls_transport",
    "memlite.server.execution.lite_commands",
    "memlite.server.admin.periodic_report",
    "memlite.server.admin.watchers",
)

COMMON = (
    "memlite.server.admin.admin",
    "memlite.server.execution.pipelined",
    "memlite.server.admin.watchers",
)
"""The modules that any worker (``-t``) is likely to need: imported once, before the fork."""


def import_all(names: Sequence[str] = MODULES) -> None:
    """Import modules now (default: all), as the process may be about to lose access to files."""
    for name in names:
        importlib.import_module(name)
