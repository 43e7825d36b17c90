"""The file of a study, ``results.json``: what it measures, and all that was found."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from memlite.core.errors import ConfigError
from memlite.loadtest.files import JSON_NAME, write
from memlite.loadtest.models.output import as_document
from memlite.loadtest.study.design import Study
from memlite.loadtest.study.measured import Measured, answer, doubts
from memlite.loadtest.study.report import sections

__all__ = ["FORMAT", "keep", "save"]

FORMAT: Final = "memlite-study"
_VERSION: Final = 1


def keep(folder: Path, study: Study) -> None:
    """Save what is measured, or check that what is there is the same.

    Raises:
        ConfigError: it is another study, or no study; or the file cannot be read or written.
    """
    path = folder / JSON_NAME
    try:
        before = json.loads(path.read_bytes())
    except FileNotFoundError:
        _write(path, _design(study))
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"bench: {path}: {error}") from None
    if not isinstance(before, dict) or {**before, **_design(study)} != before:
        raise ConfigError(
            f"bench: --out {folder} has something else than this study; choose another folder"
        )


def save(folder: Path, measured: Measured) -> None:
    """Write the file of a complete study.

    Raises:
        ConfigError: it cannot be written.
    """
    tables = [table for section in sections(measured) for table in section.tables]
    found = {
        "doubts": list(doubts(measured)),
        "answer": list(answer(measured)),
        "tables": {
            table.name: {
                "title": table.title,
                "columns": [column.heading for column in table.columns],
                "rows": [list(row) for row in table.rows],
            }
            for table in tables
        },
        "models": {title: as_document(one) for title, one in measured.models.items()},
    }
    _write(folder / JSON_NAME, {**_design(measured.study), **found})


def _design(study: Study) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": _VERSION,
        "sweeps": {sweep.name: study.arguments(sweep) for sweep in study.sweeps},
        "experiment": {"factors": list(study.factors), "options": study.of_experiment},
        "repetitions": study.scale.repetitions,
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write(path, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
