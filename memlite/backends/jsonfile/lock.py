"""One server at a time: a lock that the system takes back when the process ends, however."""

import contextlib
import os
import sys
from pathlib import Path

from memlite.errors import StartError

__all__ = ["lock"]

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock(path: Path) -> int:
    """Lock a file, made for the purpose, until the returned descriptor is closed.

    The file stays: to remove it would let two servers hold a lock of that name.

    Raises:
        StartError: another process holds it, or it cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise StartError(f"--backend: there is no folder {path.parent}; make it first") from None
    except OSError as error:
        raise StartError(f"--backend: {path}: {error.strerror}") from None
    try:
        _try_lock(descriptor)
    except (BlockingIOError, PermissionError):
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StartError(
            f"--backend: {path.with_suffix('')} is in use by another server"
            + (f" (process {holder})" if holder else "")
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise StartError(f"--backend: {path} cannot be locked: {error.strerror}") from None
    # For people to see; a full disk, which can still be read from, must not forbid to start.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % os.getpid())
    return descriptor
