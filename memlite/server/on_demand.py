"""The modules that are imported lazily, when a command or a protocol first needs them.

Importing them at startup would double the startup time.
"""

import importlib

__all__ = ["MODULES", "import_all"]

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


def import_all() -> None:
    """Import them all now, because the process is about to lose read access to Python's files."""
    for name in MODULES:
        importlib.import_module(name)
