"""What a server imports only when somebody asks for it, by a command or a protocol.

To have it all from the start would double the time that the start takes.
"""

import importlib

__all__ = ["MODULES", "import_all"]

MODULES = (
    "memlite.protocol.binary",
    "memlite.protocol.lite",
    "memlite.protocol.login",
    "memlite.protocol.sasl",
    "memlite.protocol.uris",
    "memlite.server.admin",
    "memlite.server.binary",
    "memlite.server.deferred_binary",
    "memlite.server.deferred_connection",
    "memlite.server.deferred_text",
    "memlite.server.dumps",
    "memlite.server.encrypted",
    "memlite.server.lite",
    "memlite.server.watchers",
)


def import_all() -> None:
    """Import it now: the process is about to lose the right to read Python's files."""
    for name in MODULES:
        importlib.import_module(name)
