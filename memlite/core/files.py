"""Files that are read as a whole, such as those of passwords and settings.

What is named in place of a file may be a pipe or a device. Opening or reading that can wait for
ever, so it is given some seconds: enough for a shell's ``<(command)``.
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
"""Seconds in which a pipe or a device has to come to an end, when a program starts."""

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
        content: what is in it.
        mode: its type and permissions (`stat`).
    """

    content: bytes
    mode: int


def read_whole(path: str | Path, limit: int, patience: float = PATIENCE) -> WholeFile:
    """Read a file.

    Args:
        path: the file, a pipe or a device.
        limit: bytes that it may have.
        patience: seconds in which a pipe or a device has to come to an end.

    Raises:
        OSError: it cannot be read, is larger, or does not come to an end; `strerror` says which.
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
    """Check that others, which would wait for a pipe or a device for ever, may open a file.

    Raises:
        OSError: it is there, and no file.
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - may be a str
    except OSError:
        return  # whoever opens it says why
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a file, but a pipe, a device or a socket")


def _await_input(descriptor: int, until: float, patience: float) -> None:
    """Wait until there is something to read, or its end.

    Raises:
        OSError: there was nothing until then.
    """
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    left = max(0.0, until - time.monotonic())
    if not waiting.poll(left * 1000):
        text = f"not a file, and it has not come to an end within {patience:g} s"
        raise OSError(errno.ETIMEDOUT, text)
