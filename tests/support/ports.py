"""Ports for programs that cannot listen on any free one."""

import contextlib
import secrets
import socket
from pathlib import Path

__all__ = ["unused_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 12_000


def unused_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens.

    It is below those that the system gives to whoever asks for any free one. Among these, another
    test could get the same one before the program listens.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = _LOWEST + secrets.randbelow(end - _LOWEST)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
