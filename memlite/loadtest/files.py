"""Results on disk: ``results.json``, which can be loaded, and ``results.csv`` for spreadsheets."""

import csv
import dataclasses
import functools
import io
import os
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from memlite.core.errors import ConfigError
from memlite.loadtest.results import FORMAT, VERSION, Latency, Point, Repetition, Results

__all__ = ["COLUMNS", "CSV_NAME", "JSON_NAME", "load", "load_repetition", "save", "write"]

JSON_NAME = "results.json"
CSV_NAME = "results.csv"

COLUMNS = (
    "kind",
    "target",
    "clients",
    "rate",
    "value_size",
    "repetition",
    "seconds",
    "operations",
    "throughput",
    "hits",
    "misses",
    "errors",
    "p50_us",
    "p90_us",
    "p99_us",
    "p99.9_us",
    "max_us",
    "bytes_sent",
    "bytes_received",
    "server_cpu_seconds",
    "server_cpu_share",
    "server_memory_bytes",
    "generator_share",
    "generator_cpu_us",
    "lateness_us",
)
"""The columns of ``results.csv``. Each row is a repetition; unknown values are empty.

``kind`` is the workload's kind, or ``concurrent`` for the bursts measured beside a steady workload.
"""


def save(results: Results, folder: Path) -> list[Path]:
    """Write both files, each atomically.

    Args:
        results: the results to save.
        folder: the destination directory; created if missing.

    Returns:
        The paths of the files.

    Raises:
        ConfigError: a file cannot be written.
    """
    content = orjson.dumps(results, default=str, option=orjson.OPT_INDENT_2)
    files = {folder / JSON_NAME: content + b"\n", folder / CSV_NAME: _csv(results).encode()}
    for path, data in files.items():
        write(path, data)
    return list(files)


def write(path: Path, content: bytes) -> None:
    """Write a file atomically.

    Args:
        path: the file's path; its directory is created if missing.
        content: the complete content.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            # Temporary files are private to their owner; give this file the usual permissions.
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def load(path: Path) -> Results:
    """Load saved results.

    Unknown fields are ignored, because later versions only add fields.

    Args:
        path: path of ``results.json``, or of the directory that contains it.

    Returns:
        The results; sequences are tuples.

    Raises:
        ConfigError: the file cannot be read, or is not a valid results file.
    """
    file = path / JSON_NAME if path.is_dir() else path
    try:
        document = orjson.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"{file} is not a results file: its format is not {FORMAT!r}")
    version = document.get("version")
    if not isinstance(version, int) or version < 1:
        raise ConfigError(f"{file} is not a results file: its version is not a number")
    if version > VERSION:
        raise ConfigError(
            f"{file} was written by a newer memlite: it uses version {version} of the format, "
            f"and this memlite supports up to {VERSION}"
        )
    try:
        results: Results = _build(Results, document, "")
    except _InvalidFieldError as error:
        raise ConfigError(f"{file} is not a results file: {error}") from None
    return results


def load_repetition(path: Path) -> Repetition:
    """Load a repetition from a file of its own.

    Raises:
        ConfigError: the file cannot be read, or is not a repetition.
    """
    try:
        found: Repetition = _build(Repetition, orjson.loads(path.read_bytes()), "")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (orjson.JSONDecodeError, _InvalidFieldError) as error:
        raise ConfigError(f"{path} is not a repetition: {error}") from None
    return found


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Dataclasses from JSON


class _InvalidFieldError(Exception):
    """A field is missing or has the wrong type; the message names it."""


def _build(kind: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to `kind`, one of the types used in the dataclasses."""
    if kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        if value is None:
            return None
        (kind,) = (one for one in arguments if one is not types.NoneType)
        return _build(kind, value, where)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, where)
    if origin is Sequence:
        return tuple(
            _build(arguments[0], one, f"{where}[{index}]")
            for index, one in enumerate(_checked(value, list, where))
        )
    if origin is Mapping:
        members = _checked(value, dict, where)
        return {name: _build(arguments[1], one, f"{where}.{name}") for name, one in members.items()}
    if kind is float:
        return float(_checked(value, (int, float), where))
    return _checked(value, kind, where)


def _build_dataclass(kind: Any, value: Any, where: str) -> Any:
    members = _checked(value, dict, where)
    found = {}
    for field, hint in _fields(kind):
        name = f"{where}.{field.name}".lstrip(".")
        if field.name in members:
            found[field.name] = _build(hint, members[field.name], name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _InvalidFieldError(f"{name} is missing")
    return kind(**found)


@functools.cache
def _fields(kind: Any) -> list[tuple["dataclasses.Field[Any]", Any]]:
    """Return the fields of a dataclass with their resolved types."""
    hints = typing.get_type_hints(kind)
    return [(field, hints[field.name]) for field in dataclasses.fields(kind)]


def _checked(value: Any, kind: Any, where: str) -> Any:
    # In Python, unlike in JSON, a boolean is a number.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _InvalidFieldError(f"{where or 'the document'} has the wrong type")
    return value


# Rows


def _csv(results: Results) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    kind = str(results.workload.get("kind", "steady"))
    for name, points in ((kind, results.points), ("concurrent", results.bursts)):
        for point in points:
            writer.writerows(_rows(name, point))
    return text.getvalue()


def _rows(kind: str, point: Point) -> Iterator[list[object]]:
    for one in point.repetitions:
        yield [
            kind,
            point.target,
            point.clients,
            point.rate,
            point.value_size,
            one.number,
            one.seconds,
            one.operations,
            one.throughput,
            one.hits,
            one.misses,
            one.failed,
            *_times(one.response.get("all")),
            one.bytes_sent,
            one.bytes_received,
            *_server(one),
            one.generator_share,
            one.generator_cpu,
            one.lateness,
        ]


def _times(latency: Latency | None) -> list[float | str]:
    if latency is None or not latency.count:
        return [""] * 5
    return [latency.p50, latency.p90, latency.p99, latency.p999, latency.most]


def _server(repetition: Repetition) -> list[float | str]:
    use = repetition.server
    if use is None:
        return [""] * 3
    return [use.cpu_seconds, use.cpu_share, use.memory_bytes]
