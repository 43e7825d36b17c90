"""The machine and package versions that a measurement ran on."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from memlite.core.version import __version__

__all__ = ["cores", "machine", "versions"]

_PACKAGES = ("uvloop", "orjson", "hdrhistogram", "pymemcache", "google-cloud-storage", "aiohttp")


def machine() -> dict[str, Any]:
    """Describe this machine: processor, cores, memory, system and Python."""
    return {
        "hostname": platform.node(),
        "cpu": _processor(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Return the versions of memlite and of those relevant packages that are installed."""
    found = {"memlite": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
