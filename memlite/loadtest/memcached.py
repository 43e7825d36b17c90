"""The memcached on this machine, to measure alongside memlite or behind its proxy."""

import functools
import os
import re
import shutil
import subprocess

from memlite.core.errors import ConfigError

__all__ = ["command", "options"]

_OPTION = re.compile(r"^-\w,? +--([a-z][a-z-]+)", re.MULTILINE)


def command() -> list[str]:
    """Return the command that starts memcached.

    Raises:
        ConfigError: memcached is not on the PATH.
    """
    path = shutil.which("memcached")
    if path is None:
        raise ConfigError(
            "bench: --backends memcached: memcached is not on the PATH (apt install memcached)"
        )
    # memcached refuses to run as root without -u root.
    return [path, "-U", "0", *(["-u", "root"] if os.geteuid() == 0 else [])]


def options() -> frozenset[str]:
    """Return the names of memcached's long options, from its help.

    Raises:
        ConfigError: memcached is not on the PATH, or does not run.
    """
    return _options(command()[0])


@functools.cache
def _options(path: str) -> frozenset[str]:
    try:
        done = subprocess.run(  # noqa: S603 - the memcached that will be measured
            [path, "-h"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"bench: --backends memcached: {path} -h: {error}") from None
    return frozenset(_OPTION.findall(done.stdout))
