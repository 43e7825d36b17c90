"""Files that are read as a whole, such as password and settings files.

A path may name a pipe or a device instead. Opening or reading one can block forever, so it is given
a few seconds: enough for a shell's ``<(command)``.
"""

import errno
import os
import select
import stat
import time
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["PATIENCE", "WholeFile", "check_regular", "read_whole"]

PATIENCE: Final = 10.0
"""Seconds within which a pipe or a device must reach its end, when a program starts."""

_PIECE: Final = 65_536
# Missing on Windows, which has no such pipes among its files.
_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


class WholeFile(NamedTuple):
    """A file that was read.

    Attributes:
        content: its content.
        mode: its type and permissions (`stat`).
    """

    content: bytes
    mode: int


def read_whole(path: str | Path, limit: int, patience: float = PATIENCE) -> WholeFile:
    """Read a file.

    Args:
        path: the file, a pipe or a device.
        limit: its maximum size in bytes.
        patience: seconds within which a pipe or a device must reach its end.

    Raises:
        OSError: it cannot be read, is larger, or does not reach its end; `strerror` says which.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        mode = os.fstat(descriptor).st_mode
        waits = not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
        until = time.monotonic() + patience
        content = b""
        while len(content) <= limit:
            if waits:
                _await_input(descriptor, until, patience)
            try:
                piece = os.read(descriptor, min(_PIECE, limit + 1 - len(content)))
            except BlockingIOError:  # another process has taken it
                continue
            if not piece:
                return WholeFile(content, mode)
            content += piece
    finally:
        os.close(descriptor)
    raise OSError(errno.EFBIG, f"larger than {limit} bytes")


def check_regular(path: str | Path) -> None:
    """Check that a path names no pipe or device, on which code that opens it would block forever.

    Raises:
        OSError: it exists, and is not a file.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - may be a str
    except OSError:
        return  # opening it reports the reason
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a regular file, but a pipe, device or socket")


def _await_input(descriptor: int, until: float, patience: float) -> None:
    """Wait until there is input to read, or its end.

    Raises:
        OSError: neither came before `until`.
    """
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    left = max(0.0, until - time.monotonic())
    if not waiting.poll(left * 1000):
        text = f"not a regular file, and no end of input within {patience:g} s"
        raise OSError(errno.ETIMEDOUT, text)
