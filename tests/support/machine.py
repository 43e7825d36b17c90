"""An isolated machine: processes in namespaces, in which every port is free.

The examples in the documentation can thus be run as printed, with their ports and addresses, beside
other tests and servers that use the same ones.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["can_have_one", "inside", "start_network"]

_UNSHARE = (
    "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
    *(() if os.geteuid() == 0 else ("--map-root-user",)),
)  # fmt: skip

# From linux/sockios.h
_SET_FLAGS, _SET_ADDRESS, _SET_NETMASK = 0x8914, 0x8916, 0x891C
_UP = 1


def inside(*command: str | Path) -> list[str]:
    """Return a command that runs another command on an isolated machine.

    When the command ends, so do all processes that it started.
    """
    return [*_UNSHARE, *map(str, command)]


@cache
def can_have_one() -> bool:
    """Return whether this system lets this user create namespaces."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run(inside("true"), capture_output=True, check=False).returncode == 0
    )


def start_network() -> None:
    """Set up the loopback interface of the machine, and all addresses of 10.0.0.0/8."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for request, argument in (
            (_SET_FLAGS, struct.pack("16sh14x", b"lo", _UP)),
            (_SET_ADDRESS, _with_address(b"lo:1", "10.0.0.1")),
            (_SET_NETMASK, _with_address(b"lo:1", "255.0.0.0")),
        ):
            fcntl.ioctl(any_socket, request, argument)


def _with_address(interface: bytes, address: str) -> bytes:
    return struct.pack("16sHH4s16x", interface, socket.AF_INET, 0, socket.inet_aton(address))
