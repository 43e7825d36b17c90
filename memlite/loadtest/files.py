"""Results on disk: ``results.json``, which can be read again, and ``results.csv`` for sheets."""

import csv
import dataclasses
import io
import os
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from memlite.errors import ConfigError
from memlite.loadtest.results import FORMAT, VERSION, Latency, Point, Repetition, Results

__all__ = ["COLUMNS", "CSV_NAME", "JSON_NAME", "load", "save", "write"]

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
"""The columns of ``results.csv``; a row is a repetition, empty fields are unknown.

The kind is the workload's; of clients that come at once beside a steady one, ``concurrent``.
"""


def save(results: Results, folder: Path) -> list[Path]:
    """Write both files; each is there in full or not at all.

    Args:
        results: what to write.
        folder: where to; made if it is not there.

    Returns:
        The files.

    Raises:
        ConfigError: they cannot be written.
    """
    content = orjson.dumps(results, default=str, option=orjson.OPT_INDENT_2)
    files = {folder / JSON_NAME: content + b"\n", folder / CSV_NAME: _csv(results).encode()}
    for path, data in files.items():
        write(path, data)
    return list(files)


def write(path: Path, content: bytes) -> None:
    """Write a file so that it is there in full or not at all.

    Args:
        path: of the file; its folder is made if it is not there.
        content: all of it.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            # A temporary file is its owner's alone; a result is as any other file.
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def load(path: Path) -> Results:
    """Read results again.

    Fields this version does not know are left out: later ones only add to the format.

    Args:
        path: of ``results.json``, or of the folder it is in.

    Returns:
        What was saved; sequences are tuples.

    Raises:
        ConfigError: there is no such file, or it is not what `save` writes.
    """
    file = path / JSON_NAME if path.is_dir() else path
    try:
        document = orjson.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"{file} is not a file of results: its format is not {FORMAT!r}")
    version = document.get("version")
    if not isinstance(version, int) or version < 1:
        raise ConfigError(f"{file} is not a file of results: its version is not a number")
    if version > VERSION:
        raise ConfigError(
            f"{file} was written by a newer memlite: it has version {version} of the format, "
            f"and this memlite reads up to {VERSION}"
        )
    try:
        results: Results = _build(Results, document, "")
    except _WrongError as error:
        raise ConfigError(f"{file} is not a file of results: {error}") from None
    return results


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Dataclasses from JSON


class _WrongError(Exception):
    """A field is not what it has to be; the text says which."""


def _build(kind: Any, value: Any, where: str) -> Any:
    """Return what `kind`, a type as the contract's dataclasses spell it, makes of JSON."""
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
    hints = typing.get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        name = f"{where}.{field.name}".lstrip(".")
        if field.name in members:
            found[field.name] = _build(hints[field.name], members[field.name], name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _WrongError(f"{name} is missing")
    return kind(**found)


def _checked(value: Any, kind: Any, where: str) -> Any:
    # In Python, though not in JSON, true is a number.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _WrongError(f"{where or 'it'} is of the wrong type")
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
