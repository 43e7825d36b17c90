"""Measurements that go on in a folder: one process at a time, and on what system each was made."""

import contextlib
import fcntl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from memlite.core.errors import ConfigError
from memlite.loadtest import files
from memlite.loadtest.machine import machine, versions

__all__ = ["differences", "locked", "systems"]

_NAME: Final = "systems.json"
# A host may be renamed, and memory varies by little between starts of the same virtual machine.
_OF_MACHINE: Final = ("cpu", "cores", "system", "python")

System = Mapping[str, Any]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from measuring for the same folder.

    Raises:
        ConfigError: one does.
    """
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"bench: --out {folder}: another process measures there") from None
        yield


def differences(found: Sequence[tuple[System, System]]) -> str:
    """Return how the systems of measurements differ; empty if they do not.

    Args:
        found: the machine and the versions of each measurement, as in `Results`.
    """
    values: dict[str, dict[str, None]] = {}
    for of_machine, of_versions in found:
        known = {name: of_machine.get(name) for name in _OF_MACHINE} | dict(of_versions)
        for name, value in known.items():
            values.setdefault(name, {})[str(value)] = None
    parts = [f"{name} {' and '.join(some)}" for name, some in values.items() if len(some) > 1]
    return f"measurements are of different systems: {', '.join(parts)}" if parts else ""


def systems(folder: Path, *, measuring: bool) -> list[tuple[System, System]]:
    """Return the machine and versions of all measurements in a folder.

    Args:
        folder: it keeps them in a file.
        measuring: whether this process is about to measure there.

    Raises:
        ConfigError: the file cannot be read or written.
    """
    path = folder / _NAME
    try:
        saved = orjson.loads(path.read_bytes()) if path.exists() else []
        found = [(one["machine"], one["versions"]) for one in saved]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a list of systems: {error}") from None
    here = machine(), versions()
    if measuring and here not in found:
        found.append(here)
        document = [{"machine": one, "versions": other} for one, other in found]
        files.write(path, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    return found
