"""Locks files against other servers; the system releases locks when the process ends.

Two files are locked: one that exists for this alone, and the journal, as files can be removed while
a server runs.
"""

import contextlib
import os
import sys
from pathlib import Path

from memlite.core.errors import StartError

__all__ = ["is_same_file", "lock", "try_lock_journal", "unlock_journal"]

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has that name, and was not removed or replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def try_lock_journal(descriptor: int) -> bool:
    """Lock an open journal until it is closed; return False if another process holds the lock.

    Does nothing on Windows, where open files cannot be removed, and locked ones cannot be read.
    """
    if sys.platform != "win32":
        try:
            _try_lock(descriptor)
        except (BlockingIOError, PermissionError):
            return False
    return True


def unlock_journal(descriptor: int) -> None:
    """Undo `try_lock_journal`."""
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_UN)


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
