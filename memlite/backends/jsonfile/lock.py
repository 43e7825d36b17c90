"""Locks files against other servers; the system releases locks when the process ends.

Two files are locked: a dedicated lock file, and the journal, because files can be removed while a
server runs.
"""

import contextlib
import logging
import os
import shlex
import sys
from pathlib import Path

from memlite.core.errors import StartError

__all__ = ["Lock", "is_same_file", "missing_folder", "try_lock_journal", "unlock_journal"]

_log = logging.getLogger("memlite")

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has this name, and was not removed or replaced."""
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


class Lock:
    """The right to use a backend's files, until it is released or the process ends.

    Its file is never removed, because then two servers could hold locks on files of that name.

    Args:
        path: the file.

    Raises:
        StartError: another process holds the lock, or the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _lock(path)

    def sign(self) -> None:
        """Write this process's id into the file, for other servers to see."""
        _sign(self._descriptor)

    def keep(self) -> None:
        """Lock again if the file was removed or replaced.

        Raises:
            StartError: another server uses the backend's files, or has used them meanwhile.
        """
        if is_same_file(self._descriptor, self.path):
            return
        renewed = _lock(self.path)
        other = _signature(renewed)
        if other:
            os.close(renewed)
            raise StartError(
                f"another server (process {other}) has taken over the files since {self.path} was "
                "removed"
            )
        _sign(renewed)
        self.release()
        self._descriptor = renewed
        _log.warning("%s was removed while the server was running; created it again", self.path)

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def missing_folder(path: Path) -> str:
    """Return the message for a file whose folder does not exist."""
    folder = str(path.parent)
    return (
        f"--backend: directory {folder} does not exist; create it with: mkdir -p "
        f"{shlex.quote(folder)}"
    )


def _lock(path: Path) -> int:
    """Create and lock a file; return its descriptor.

    Raises:
        StartError: see `Lock`.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise StartError(missing_folder(path)) from None
    except OSError as error:
        raise StartError(f"--backend: {path}: {error.strerror}") from None
    try:
        _try_lock(descriptor)
    except (BlockingIOError, PermissionError):
        holder = _signature(descriptor)
        os.close(descriptor)
        raise StartError(
            f"--backend: {path.with_suffix('')} is in use by another server"
            + (f" (process {holder})" if holder else "")
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise StartError(f"--backend: {path} cannot be locked: {error.strerror}") from None
    return descriptor


def _sign(descriptor: int) -> None:
    # A server must be able to start on a full disk and serve reads.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % os.getpid())


def _signature(descriptor: int) -> str:
    """Return the id of the last process to sign a lock file, or an empty string."""
    return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
