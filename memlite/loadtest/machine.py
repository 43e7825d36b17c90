"""The machine and package versions that a measurement ran on."""

import functools
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from memlite.core.build import describe_build
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
    """Return the versions of memlite, its build, and the relevant packages that are installed.

    ``memcached`` is the version of the program on the PATH.
    """
    found = {"memlite": __version__, "build": describe_build()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    memcached = shutil.which("memcached")
    if memcached is not None and (version := _version_of(memcached)):
        found["memcached"] = version
    return found


@functools.cache
def _version_of(path: str) -> str:
    """Return the version of a memcached; empty if it cannot be determined."""
    try:
        done = subprocess.run(  # noqa: S603 - the memcached that may be measured
            [path, "-V"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"\d\S*", done.stdout)
    return found[0] if found else ""


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
