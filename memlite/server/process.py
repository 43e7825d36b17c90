"""Setup of the server process: standard streams, limits, user, daemon mode, pid file."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from memlite.core.errors import StartError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "allow_coredumps",
    "daemonize",
    "drop_privileges",
    "lock_memory",
    "open_standard_streams",
    "pid_file",
    "raise_file_limit",
]

_log = logging.getLogger("memlite")

# File descriptors not used for connections: standard streams, listeners, the event loop, a backend,
# and connections that are accepted only to be rejected.
_RESERVED_FILES = 192
_PID_BYTES = 64  # at most, in a pid file
_MCL_CURRENT_AND_FUTURE = 3
_READY = b"."


def open_standard_streams() -> None:
    """Open /dev/null for standard streams that are closed (``<&- >&- 2>&-``).

    Otherwise sockets would get their file descriptors, and messages would be sent to clients.
    """
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(lowest)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def raise_file_limit(connections: int) -> None:
    """Raise the limit on open files to the number needed for `connections`.

    Raises:
        StartError: the process is not permitted to open that many.
    """
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return

    needed = connections + _RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        hard = needed  # permitted only to root; fails below for other users
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (OSError, ValueError):
        raise StartError(
            f"-c: cannot open {needed} files for {connections} connections; start as root, raise "
            "ulimit -n, or lower -c"
        ) from None


def allow_coredumps() -> None:
    """Raise the core file limit as far as possible (``-r``).

    Raises:
        StartError: it is zero and cannot be raised.
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
        return
    if hard == 0:
        raise StartError("-r: failed to ensure core file creation")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def lock_memory() -> None:
    """Lock all pages in memory (``-k``); if that is not permitted, warn as memcached does."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT_AND_FUTURE) != 0:
        _log.warning("-k: mlockall() failed: %s", os.strerror(ctypes.get_errno()))


def drop_privileges(user: str | None, files: "Sequence[Path]") -> None:
    """Drop root privileges and run as `user`; do nothing if the process does not run as root.

    Args:
        user: the name of the user.
        files: files created as root whose ownership passes to `user`.

    Raises:
        StartError: there is no such user, or the switch failed.
    """
    if sys.platform == "win32" or os.geteuid() != 0:
        return
    if user is None:
        _log.info("running as root; use -u <user> to drop root privileges")
        return
    import pwd

    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise StartError(f"-u: can't find the user {user}") from None
    try:
        for file in files:
            os.chown(file, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except OSError as error:
        raise StartError(f"-u: failed to become {user}: {error.strerror}") from None


def daemonize(*, keep_streams: bool) -> Callable[[], None]:
    """Continue as a daemon in its own session, while the parent process waits.

    The parent exits with 0 once the daemon is ready, or with the daemon's exit code if it fails
    before that. Until then the daemon keeps the working directory, for relative paths, and stderr,
    for error messages.

    Args:
        keep_streams: leave stdout and stderr open (with ``-v``).

    Returns:
        A function to call when the daemon is ready; it leaves the directory and the streams.
    """
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        if os.read(reading, len(_READY)):
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    os.close(reading)
    os.setsid()

    def leave() -> None:
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0,) if keep_streams else (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)
        with contextlib.suppress(BrokenPipeError):  # the parent has exited
            os.write(writing, _READY)
        os.close(writing)

    return leave


@contextlib.contextmanager
def pid_file(path: str | None) -> Iterator[None]:
    """Maintain a pid file while the server runs.

    Args:
        path: the file; None for none.

    Raises:
        StartError: it cannot be written.
    """
    if path is None:
        yield
        return
    from pathlib import Path  # imported lazily: servers without a pid file start faster

    file = Path(path).absolute()  # a daemon changes its working directory
    with contextlib.suppress(OSError, ValueError):
        other = _pid_in(file)
        if other != os.getpid() and _alive(other):
            _log.warning("the pid file %s contained the running pid %d", path, other)
    partial = file.with_name(file.name + ".tmp")
    try:
        partial.write_text(f"{os.getpid()}\n", encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise StartError(f"-P: could not write the pid file {path}: {error.strerror}") from None
    try:
        yield
    finally:
        _remove_pid_file(file)


def _remove_pid_file(file: "Path") -> None:
    """Remove the pid file, unless it belongs to another server by now."""
    try:
        if _pid_in(file) == os.getpid():
            file.unlink()
    except (FileNotFoundError, ValueError):
        pass
    except OSError as error:
        _log.warning("-P: could not remove %s: %s", file, error.strerror)


def _pid_in(file: "Path") -> int:
    """Return the pid in a pid file.

    Raises:
        OSError: it cannot be read.
        ValueError: there is none in it.
    """
    from memlite.core.files import read_whole  # lazily, as above

    return int(read_whole(file, _PID_BYTES, patience=0.0).content)


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
