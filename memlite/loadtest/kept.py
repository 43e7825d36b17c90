"""Finished repetitions of a run, each kept in its own file until the whole run is saved."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from memlite.core.errors import ConfigError
from memlite.loadtest import files
from memlite.loadtest.levels import Level
from memlite.loadtest.results import Repetition
from memlite.loadtest.resuming import differences, locked, systems

__all__ = ["Kept", "Slot"]

_FOLDER: Final = "repetitions"
_SETTINGS: Final = "run.json"


@dataclass(frozen=True, slots=True)
class Slot:
    """A repetition in the plan of a run.

    Attributes:
        target: index of the target in the plan, from 0.
        level: the load level.
        number: number of the repetition, from 1.
        burst: whether it is a burst of new clients.
    """

    target: int
    level: Level
    number: int
    burst: bool = False

    @property
    def name(self) -> str:
        """The name of the repetition's file."""
        kind, level = "burst" if self.burst else "steady", self.level
        load = f"{level.clients}-{float(level.rate)!r}-{level.value_size}"
        return f"{kind}-{self.target}-{load}-{self.number}.json"


class Kept:
    """The finished repetitions of a run, saved so that an interruption loses none of them.

    Args:
        out: the folder of the run; the repetitions are kept in a subfolder.
        settings: the settings common to all repetitions, as JSON values.
        mixed: whether to accept repetitions measured on another system.
    """

    def __init__(self, out: Path, settings: Mapping[str, Any], *, mixed: bool = False) -> None:
        self._out = out
        self._folder = out / _FOLDER
        self._settings = json.loads(orjson.dumps(settings))  # as read back from the file
        self._mixed = mixed

    def count(self) -> int:
        """Return the number of kept repetitions.

        Raises:
            ConfigError: they belong to a run with other options, or the settings cannot be read.
        """
        path = self._folder / _SETTINGS
        try:
            before = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise ConfigError(f"bench: {path}: {error}") from None
        found = sum(1 for _ in self._files())
        if found and before != self._settings:
            raise ConfigError(
                f"bench: --out {self._out} contains an unfinished run with other options; use the "
                "same options to resume it, or choose another folder"
            )
        return found

    def _files(self) -> Iterator[Path]:
        for kind in ("steady", "burst"):
            yield from self._folder.glob(f"{kind}-*.json")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from measuring for the same folder.

        Raises:
            ConfigError: another process is measuring, or a file cannot be written.
        """
        with locked(self._folder, self._out):
            yield

    def begin(self, servers: Mapping[str, str]) -> str:
        """Prepare to keep repetitions.

        Args:
            servers: versions of the already running servers that are measured, by name.

        Returns:
            How the systems on which the run is measured differ; empty if there is only one.

        Raises:
            ConfigError: there are repetitions of another system or version, or a file cannot be
                written.
        """
        fresh = not self.count()
        if fresh:
            # Leftover files have lost their settings, and may belong to a run with other options.
            self._remove_repetitions()
        found = systems(
            self._folder,
            measuring=True,
            servers=servers,
            fresh=fresh,
            mixed=self._mixed,
            named=self._out,
        )
        files.write(self._folder / _SETTINGS, orjson.dumps(self._settings))
        return differences(found)

    def find(self, slot: Slot) -> Repetition | None:
        """Return a kept repetition; None if it has not been measured.

        Raises:
            ConfigError: its file cannot be read.
        """
        path = self._folder / slot.name
        return files.load_repetition(path) if path.exists() else None

    def keep(self, slot: Slot, repetition: Repetition) -> None:
        """Save a repetition.

        Raises:
            ConfigError: its file cannot be written.
        """
        files.write(self._folder / slot.name, orjson.dumps(repetition))

    def remove(self) -> None:
        """Remove all kept repetitions: the results of the run contain them."""
        with contextlib.suppress(ConfigError):
            self._remove_repetitions()  # before their settings, in case of an interrupt
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove_repetitions(self) -> None:
        for path in self._files():
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise ConfigError(f"bench: {path} cannot be removed: {error.strerror}") from None
