"""Results as files: ``results.json`` to draw from again, ``results.csv`` for spreadsheets."""

import csv
import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import orjson

from memlite.errors import ConfigError, StartError
from memlite.loadtest.results import FORMAT, VERSION, Latency, Point, Repetition, Results

__all__ = ["CSV_NAME", "JSON_NAME", "load", "save"]

JSON_NAME = "results.json"
CSV_NAME = "results.csv"

_COLUMNS = (
    "part", "target", "clients", "rate", "value_size", "repetition", "seconds", "operations",
    "throughput", "hits", "misses", "errors", "p50_us", "p90_us", "p99_us", "p999_us", "max_us",
    "bytes_sent", "bytes_received", "server_cpu_seconds", "server_memory_bytes",
    "generator_share", "generator_cpu_us",
)  # fmt: skip


def save(results: Results, folder: Path) -> None:
    """Write both files; one that is there is replaced when the new one is whole.

    Raises:
        StartError: they cannot be written.
    """
    text = orjson.dumps(results, option=orjson.OPT_INDENT_2)
    try:
        _replace(folder / JSON_NAME, text)
        _replace(folder / CSV_NAME, _table(results).encode())
    except OSError as error:
        raise StartError(f"bench: {error.filename or folder}: {error.strerror}") from None


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    partial.replace(path)


def _table(results: Results) -> str:
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(_COLUMNS)
    for part, points in (("load", results.points), ("burst", results.bursts)):
        for point in points:
            rows.writerows(_row(part, point, one) for one in point.repetitions)
    return text.getvalue()


def _row(part: str, point: Point, one: Repetition) -> list[object]:
    every = one.response.get("all", Latency())
    return [
        part, point.target, point.clients, point.rate, point.value_size, one.number, one.seconds,
        one.operations, round(one.throughput, 1), one.hits, one.misses, one.failed, every.p50,
        every.p90, every.p99, every.p999, every.most, one.bytes_sent, one.bytes_received,
        one.server.cpu_seconds if one.server else "",
        one.server.memory_bytes if one.server else "",
        one.generator_share, one.generator_cpu,
    ]  # fmt: skip


def load(path: Path) -> Results:
    """Return saved results.

    Args:
        path: the file, or the directory it is in.

    Raises:
        ConfigError: it cannot be read, or is none; the text is one line.
    """
    file = path / JSON_NAME if path.is_dir() else path
    try:
        value = orjson.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"bench: {file}: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"bench: {file}: not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ConfigError(f"bench: {file}: not results of memlite bench")
    if value.get("version") != VERSION:
        raise ConfigError(
            f"bench: {file}: version {value.get('version')} of the format; this memlite reads "
            f"version {VERSION}"
        )
    try:
        results: Results = _built(Results, value)
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"bench: {file}: damaged: {error}") from None
    return results


def _built(kind: Any, value: Any) -> Any:
    """Return a JSON value as what `kind` says; fields that are not known are left out."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        known = {field.name for field in fields(kind)}
        return kind(**{key: _built(hints[key], one) for key, one in value.items() if key in known})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (inner,) = (one for one in arguments if one is not type(None))
        return None if value is None else _built(inner, value)
    if not arguments or arguments[-1] is Any:
        return value
    if origin is not None and issubclass(origin, Mapping):
        return {key: _built(arguments[1], one) for key, one in value.items()}
    return [_built(arguments[0], one) for one in value]
