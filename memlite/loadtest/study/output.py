"""The file of a study, ``results.json``: its design, and all results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from memlite.core.errors import ConfigError
from memlite.loadtest.files import JSON_NAME, load, write
from memlite.loadtest.models.output import as_document
from memlite.loadtest.options.hosts import without_access
from memlite.loadtest.results import Results
from memlite.loadtest.study.design import Study
from memlite.loadtest.study.machines import placements
from memlite.loadtest.study.measured import Measured, answer, doubts

__all__ = ["FORMAT", "SWEEPS", "check", "keep", "runs_of", "save"]

FORMAT: Final = "memlite-study"
_VERSION: Final = 1
SWEEPS: Final = "sweeps"
"""The folder of the sweeps; each has its own folder in it."""


def runs_of(path: Path, workload: str) -> list[Results]:
    """Return the runs of a file: those of a study with a given workload, or the file's own.

    Args:
        path: ``results.json`` of a study or of another run, or the directory that contains it.
        workload: for a study, the name of the workload.

    Raises:
        ConfigError: a file cannot be read, or the study has no such workload.
    """
    folder = path if path.is_dir() else path.parent
    file = path / JSON_NAME if path.is_dir() else path
    try:
        document = json.loads(file.read_bytes())
        names = document["sweeps"] if document["format"] == FORMAT else None
    except (OSError, ValueError, TypeError, KeyError):
        names = None  # the loader reports the error
    if names is None:
        return [load(path)]
    folders = [folder / SWEEPS / str(name) for name in names]
    runs = [load(one) for one in folders if (one / JSON_NAME).exists()]
    found = [run for run in runs if run.workload.get("name") == workload]
    if not found:
        known = ", ".join(dict.fromkeys(str(run.workload.get("name")) for run in runs)) or "none"
        raise ConfigError(
            f"bench: --workload: the study has no results for {workload!r} yet; available: {known}"
        )
    return found


def keep(folder: Path, study: Study) -> None:
    """Save the study's design, unless it is saved already.

    Raises:
        ConfigError: the folder has other contents; or the file cannot be read or written.
    """
    if not check(folder, study):
        _write(folder / JSON_NAME, _design(study))


def check(folder: Path, study: Study) -> bool:
    """Return whether a folder contains this study, or a part of it.

    Raises:
        ConfigError: the folder has another study or other results; or they cannot be read.
    """
    path = folder / JSON_NAME
    try:
        before = json.loads(path.read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise ConfigError(f"bench: {path}: {error}") from None
    design = json.loads(orjson.dumps(_design(study)))  # in the form in which it is read back
    if not isinstance(before, dict) or {**before, **design} != before:
        raise ConfigError(
            f"bench: --out {folder} contains data that is not from this study; "
            "choose another folder"
        )
    return True


def save(folder: Path, measured: Measured) -> None:
    """Write the file of a complete study.

    Raises:
        ConfigError: it cannot be written.
    """
    # Imported here: the plotting libraries take a second to import.
    from memlite.loadtest.study.report import sections

    tables = [table for section in sections(measured) for table in section.tables]
    found = {
        "doubts": list(doubts(measured)),
        "answer": list(answer(measured)),
        "tables": {
            table.name: {
                "title": table.title,
                "columns": table.values[0],
                "rows": table.values[1:],
            }
            for table in tables
        },
        "placed": placements(measured.sweeps),
        "models": {title: as_document(one) for title, one in measured.models.items()},
    }
    _write(folder / JSON_NAME, {**_design(measured.study), **found})


def _design(study: Study) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": _VERSION,
        "sweeps": {sweep.name: without_access(study.arguments(sweep)) for sweep in study.sweeps},
        "experiment": {
            "factors": list(study.factors),
            "options": without_access(study.of_experiment),
        },
        "multigets": study.multigets,
        "repetitions": study.scale.repetitions,
        "seed": study.seed,
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write(path, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
