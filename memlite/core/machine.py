"""The cores and memory that this process may use, within its container."""

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path

__all__ = ["free_memory", "usable_cores"]

_ROOT = Path("/sys/fs/cgroup")
_KIB = 1024


def usable_cores(root: Path = _ROOT) -> int:
    """Return how many cores' worth of time the process may use, at least one.

    This is the number of cores it may run on (sched_getaffinity(2)), or fewer if a control group
    limits their time (cpu.max), rounded up.

    Args:
        root: where control groups are mounted.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    for group in _groups(root):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            cores = min(cores, ceil(int(quota) / int(period)))
    return max(1, cores)


def free_memory(root: Path = _ROOT, meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return the bytes that can be allocated now without swapping; None if unknown.

    Args:
        root: where control groups are mounted.
        meminfo: the kernel's memory statistics, proc(5).
    """
    lines = dict(line.partition(":")[::2] for line in _read(meminfo).splitlines())
    available = lines.get("MemAvailable", "").split()
    found = [int(available[0]) * _KIB] if available else []
    for group in _groups(root):
        limit, used = _read(group / "memory.max").strip(), _read(group / "memory.current").strip()
        if limit.isdecimal() and used.isdecimal():
            # Cached files can be dropped.
            stats = dict(line.split(" ", 1) for line in _read(group / "memory.stat").splitlines())
            found.append(int(limit) - int(used) + int(stats.get("inactive_file", 0)))
    return max(0, min(found)) if found else None


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folder of the process's control group (version 2), and its parents."""
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            group = root / path.lstrip("/")
            yield group
            yield from (one for one in group.parents if one.is_relative_to(root))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
