"""Resume measurements in a folder, by one process at a time, and track the systems used."""

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
# Hosts may be renamed, and memory varies slightly between starts of the same virtual machine.
_OF_MACHINE: Final = ("cpu", "cores", "system", "python")

System = Mapping[str, Any]


@contextlib.contextmanager
def locked(folder: Path, named: Path | None = None) -> Iterator[None]:
    """Keep other processes from measuring in the same folder.

    Args:
        folder: folder for the lock; created if missing.
        named: the folder that the user named, if different.

    Raises:
        ConfigError: another process is measuring, or the lock file cannot be written.
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
    """Return how to continue, for a message."""
    return f"run the same command with --out {folder} to resume"


def interrupted(folder: Path, *, left: int) -> str:
    """Return the message for an interrupt of a command that can be repeated to continue.

    Args:
        folder: folder with the measurements.
        left: number of measurements still to make.
    """
    if left:
        return f"interrupted; {goes_on(folder)}"
    return f"{measured_all(folder)}; run the same command with --out {folder} to write the report"


def measured_all(path: Path) -> str:
    """Return the message for an interrupt of the analysis, or of writing the report.

    Args:
        path: path of the measurements.
    """
    return f"interrupted after the last measurement; all of them are saved in {path}"


def differences(found: Sequence[tuple[System, System]]) -> str:
    """Return how the systems of measurements differ; empty if they do not.

    Args:
        found: the machine and the versions of each measurement, as in `Results`.
    """
    parts = [f"{name} {' and '.join(some)}" for name, some in _differing(found).items()]
    return f"measurements were made on different systems: {', '.join(parts)}" if parts else ""


def _differing(found: Sequence[tuple[System, System]]) -> dict[str, list[str]]:
    """Return the properties that differ between systems, each with all its values."""
    values: dict[str, dict[str, None]] = {}
    for of_machine, of_versions in found:
        known = {name: of_machine.get(name) for name in _OF_MACHINE} | dict(of_versions)
        for name, value in known.items():
            values.setdefault(name, {})[str(value)] = None
    return {name: list(some) for name, some in values.items() if len(some) > 1}


def _refuse_other_systems(
    folder: Path, before: Sequence[tuple[System, System]], here: tuple[System, System]
) -> None:
    """Refuse to continue measurements made on another system.

    Args:
        folder: folder with the measurements.
        before: the machine and the versions of each earlier system.
        here: the machine and the versions of this process.

    Raises:
        ConfigError: the systems differ.
    """
    changed = []
    for name, of_all in _differing([*before, here]).items():
        now = str({**here[0], **here[1]}.get(name))
        earlier = [one for one in of_all if one != now]
        changed.append(f"{name} {' and '.join(earlier)}, now {now}")
    if changed:
        raise ConfigError(
            f"bench: --out {folder} contains measurements of another system: {'; '.join(changed)}; "
            "choose another folder, or add --mix-systems"
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
        folder: the folder, which keeps the systems in a file.
        measuring: whether this process is about to measure there.
        servers: versions of further servers, by name.
        fresh: whether nothing has been measured there; if so, the file's content is discarded.
        mixed: whether to allow measuring although the system differs.
        named: the folder that the user named, if different.

    Raises:
        ConfigError: the file cannot be read or written, or the system differs.
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
