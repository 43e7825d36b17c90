"""Ports for programs that cannot ask the system for any free port."""

import contextlib
import secrets
import socket
from pathlib import Path

__all__ = ["unused_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 12_000


def unused_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens.

    It is below the system's range of ephemeral ports. The system could give a port in that range
    to another test before the program listens.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = _LOWEST + secrets.randbelow(end - _LOWEST)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
