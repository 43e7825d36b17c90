"""Resource usage of processes and of the machine, read from Linux without further packages."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["machine_times", "mounts", "process_counters"]

_PROC = Path("/proc")


def machine_times() -> tuple[float, float, float]:
    """Return the processor time of this machine so far, in seconds over all cores.

    Returns:
        The total time, the time used by programs, and the time stolen by the hypervisor.

    Raises:
        OSError: the system does not provide it.
    """
    line, *_ = (_PROC / "stat").read_text(encoding="ascii").splitlines()
    user, nice, system, *others = _seconds(line.split()[1:])
    # Linux also counts the time of guests, the ninth and tenth field, in user and nice.
    return user + nice + system + sum(others[:5]), user + nice + system, others[4]


def process_counters(pid: int) -> tuple[float, int, dict[int, float]] | None:
    """Return the resources used by a process so far; None if it has ended.

    Returns:
        Its processor time in seconds, its memory in bytes, and the processor time of each thread.
    """
    folder = _PROC / str(pid)
    try:
        if _fields(folder)[0] == "Z":  # it has ended, and no process has waited for it
            return None
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
        threads = {
            int(one.name): _time(one) for one in (folder / "task").iterdir() if one.name.isdigit()
        }
        return _time(folder), pages * os.sysconf("SC_PAGE_SIZE"), threads
    except (OSError, IndexError):
        return None


def mounts() -> list[tuple[str, str]]:
    """Return the mount points and types of file systems; empty if Linux does not provide them."""
    try:
        lines = (_PROC / "self" / "mounts").read_bytes().splitlines()
    except OSError:
        return []
    return [(_unescaped(point), kind.decode()) for _, point, kind, *_ in map(bytes.split, lines)]


def _unescaped(point: bytes) -> str:
    """Decode a path in which Linux writes octal numbers in place of spaces."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), point))


def _time(folder: Path) -> float:
    """Return the processor time of a process or a thread."""
    return sum(_seconds(_fields(folder)[11:13]))


def _fields(folder: Path) -> list[str]:
    """Return the fields of ``stat`` from the third one on."""
    # The second field is the program's name in parentheses, which may have spaces.
    text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()


def _seconds(ticks: Sequence[str]) -> list[float]:
    return [int(one) / os.sysconf("SC_CLK_TCK") for one in ticks]
