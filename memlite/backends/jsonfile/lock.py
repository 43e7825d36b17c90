"""Locks a file against other servers; the system releases the lock when the process ends."""

import contextlib
import os
import sys
from pathlib import Path

from memlite.core.errors import StartError

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
    """Create a file and lock it until the returned descriptor is closed.

    The file is never removed, because then two servers could hold locks on files of that name.

    Raises:
        StartError: another process holds the lock, or the file cannot be created.
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
    # For information only: a server must be able to start on a full disk and serve reads.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % os.getpid())
    return descriptor
