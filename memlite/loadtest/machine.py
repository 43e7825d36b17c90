"""What the measurements were made on, for whoever reads them elsewhere."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import psutil

from memlite import __version__

__all__ = ["cores", "machine", "versions"]

_PACKAGES = ("uvloop", "orjson", "hdrhistogram", "pymemcache", "google-cloud-storage", "aiohttp")


def machine() -> dict[str, Any]:
    """Return what this machine is."""
    return {
        "hostname": platform.node(),
        "cpu": _processor(),
        "cores": cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Return the versions of memlite and of the packages that matter, as far as installed."""
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
