"""Measurements that go on in a folder: one process at a time, and on what system each was made."""

import contextlib
import fcntl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import orjson

from memlite.core.errors import ConfigError
from memlite.loadtest import files
from memlite.loadtest.machine import machine, versions

__all__ = [
    "differences",
    "goes_on",
    "interrupted",
    "locked",
    "measured_all",
    "systems",
]

_NAME: Final = "systems.json"
# A host may be renamed, and memory varies by little between starts of the same virtual machine.
_OF_MACHINE: Final = ("cpu", "cores", "system", "python")

System = Mapping[str, Any]


@contextlib.contextmanager
def locked(folder: Path, named: Path | None = None) -> Iterator[None]:
    """Keep other processes from measuring for the same folder.

    Args:
        folder: has the lock; created if missing.
        named: the folder that the user knows, if that is another.

    Raises:
        ConfigError: one does, or the lock's file cannot be written.
    """
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise ConfigError(f"bench: {path} cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"bench: --out {named or folder}: another process is measuring in this folder"
            ) from None
        yield


def goes_on(folder: Path) -> str:
    """Return how to go on, for a message."""
    return f"run the same command with --out {folder} to continue"


def interrupted(folder: Path, *, left: int) -> str:
    """Return what to say if the user interrupts what the same command completes.

    Args:
        folder: has what was measured.
        left: how many measurements have not been made.
    """
    if left:
        return f"interrupted; {goes_on(folder)}"
    return f"{measured_all(folder)}; the same command with --out {folder} writes the report"


def measured_all(path: Path) -> str:
    """Return what to say if the user interrupts the analysis, or the drawing of the report.

    Args:
        path: of what was measured.
    """
    return f"interrupted after everything was measured, which is in {path}"


def differences(found: Sequence[tuple[System, System]]) -> str:
    """Return how the systems of measurements differ; empty if they do not.

    Args:
        found: the machine and the versions of each measurement, as in `Results`.
    """
    parts = [f"{name} {' and '.join(some)}" for name, some in _differing(found).items()]
    return f"measurements are of different systems: {', '.join(parts)}" if parts else ""


def _differing(found: Sequence[tuple[System, System]]) -> dict[str, list[str]]:
    """Return what is not the same in all systems that have it, with all its values."""
    values: dict[str, dict[str, None]] = {}
    for of_machine, of_versions in found:
        known = {name: of_machine.get(name) for name in _OF_MACHINE} | dict(of_versions)
        for name, value in known.items():
            values.setdefault(name, {})[str(value)] = None
    return {name: list(some) for name, some in values.items() if len(some) > 1}


def _refuse_other_systems(
    folder: Path, before: Sequence[tuple[System, System]], here: tuple[System, System]
) -> None:
    """Refuse to go on with measurements of another system.

    Args:
        folder: has them.
        before: the machine and the versions of each.
        here: those of this process.

    Raises:
        ConfigError: they differ.
    """
    changed = []
    for name, of_all in _differing([*before, here]).items():
        now = str({**here[0], **here[1]}.get(name))
        earlier = [one for one in of_all if one != now]
        changed.append(f"{name} {' and '.join(earlier)}, now {now}")
    if changed:
        raise ConfigError(
            f"bench: --out {folder} has measurements of another system: {'; '.join(changed)}; "
            "choose another folder, or mix them with --mix-systems"
        )


def systems(
    folder: Path,
    *,
    measuring: bool,
    servers: Mapping[str, str] = MappingProxyType({}),
    fresh: bool = False,
    mixed: bool = False,
    named: Path | None = None,
) -> list[tuple[System, System]]:
    """Return the machine and versions of all measurements in a folder.

    Args:
        folder: it keeps them in a file.
        measuring: whether this process is about to measure there.
        servers: the versions of further servers, by name.
        fresh: whether nothing has been measured there: then what the file says is forgotten.
        mixed: whether it may, although the system is another one.
        named: the folder that the user knows, if that is another.

    Raises:
        ConfigError: the file cannot be read or written, or the system is another one.
    """
    path = folder / _NAME
    try:
        saved = orjson.loads(path.read_bytes()) if path.exists() and not fresh else []
        found = [(one["machine"], one["versions"]) for one in saved]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a list of systems: {error}") from None
    here = machine(), {**versions(), **servers}
    if measuring and here not in found:
        if not mixed:
            _refuse_other_systems(named or folder, found, here)
        found.append(here)
        document = [{"machine": one, "versions": other} for one, other in found]
        files.write(path, orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    return found
