"""Workload files: load, validate and write presets and user-defined workloads."""

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any

from memlite.core.errors import ConfigError
from memlite.loadtest.workload import (
    MAX_KEY_LENGTH,
    MAX_VALUE_SIZE,
    OPERATIONS,
    Keys,
    Load,
    Values,
    Workload,
)

__all__ = [
    "as_dict",
    "digests",
    "from_dict",
    "load_workload",
    "preset_names",
    "preset_text",
    "to_toml",
    "validate",
]

_SUFFIX = ".toml"
# The longest text that can follow a prefix: a mark and a 64-bit number.
_MAX_KEY_SUFFIX = 20
# memcached interprets a larger exptime as a unix timestamp.
_MAX_TTL = 30 * 24 * 3600
_MAX_KEYS = 1_000_000_000
# The table of a zipfian distribution takes 8 bytes of memory per key.
_MAX_ZIPFIAN_KEYS = 10_000_000
_MAX_SECONDS = 365 * 24 * 3600.0


# Checks of single settings. Each raises ValueError with the text that follows "[table] setting".

_Check = Callable[[Any], None]


def _whole(least: int, most: int) -> _Check:
    def check(value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"must be a whole number, not {value!r}")
        if not least <= value <= most:
            raise ValueError(f"must be from {least} to {most}, not {value}")

    return check


def _number(least: float, most: float, *, above: bool = False) -> _Check:
    def check(value: Any) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"must be a number, not {value!r}")
        # Phrased so that NaN fails as well.
        if not least <= value <= most or (above and value == least):
            start = f"more than {least:g} and at most" if above else f"from {least:g} to"
            raise ValueError(f"must be {start} {most:g}, not {value}")

    return check


def _choice(*choices: str) -> _Check:
    def check(value: Any) -> None:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")

    return check


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {value!r}")


def _line(value: Any) -> None:
    _text(value)
    if not value.isprintable():
        raise ValueError(f"must be one line of printable characters, not {value!r}")


def _flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")


def _prefix(value: Any) -> None:
    _text(value)
    if not value.isprintable() or " " in value:
        raise ValueError(f"must not contain spaces or control characters: {value!r}")
    length = len(value.encode())
    if length > MAX_KEY_LENGTH - _MAX_KEY_SUFFIX:
        raise ValueError(f"must be at most {MAX_KEY_LENGTH - _MAX_KEY_SUFFIX} bytes, not {length}")


def _mix(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError("must be a table of operations and their weights")


_TOP: Mapping[str, _Check] = {
    "name": _line,
    "description": _line,
    "kind": _choice("steady", "concurrent"),
    "ttl": _whole(0, _MAX_TTL),
    "preload": _flag,
    "trace": _line,
}
_TABLES: Mapping[str, Mapping[str, _Check]] = {
    "keys": {
        "count": _whole(1, _MAX_KEYS),
        "distribution": _choice("uniform", "zipfian", "latest", "hotspot", "sequential"),
        "theta": _number(0, 2),
        "hot_fraction": _number(0, 1, above=True),
        "hot_share": _number(0, 1, above=True),
        "prefix": _prefix,
    },
    "values": {
        "distribution": _choice("fixed", "uniform", "lognormal", "file"),
        "size": _whole(0, MAX_VALUE_SIZE),
        "least": _whole(0, MAX_VALUE_SIZE),
        "most": _whole(0, MAX_VALUE_SIZE),
        "sigma": _number(0, 10),
        "file": _line,
    },
    "load": {
        "pipeline": _whole(1, 10_000),
        "multiget": _whole(1, 100),
        "noreply": _flag,
        "rate": _number(0, 1e9),
        "arrivals": _choice("constant", "poisson"),
        "think_time": _number(0, _MAX_SECONDS),
        "operations": _whole(0, 10**15),
        "duration": _number(0, _MAX_SECONDS, above=True),
        "warm_up": _number(0, _MAX_SECONDS),
        "repetitions": _whole(1, 1_000),
    },
}
_CLASSES = {"keys": Keys, "values": Values, "load": Load}
_WEIGHT = _number(0, 1e12)


def preset_names() -> list[str]:
    """Return the sorted names of the workloads that ship with memlite."""
    files = resources.files("memlite.loadtest") / "presets"
    names = (file.name for file in files.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def load_workload(name_or_path: str) -> Workload:
    """Load a preset or a workload file.

    Args:
        name_or_path: a preset's name, or the path of a TOML file. Settings missing from the file
            have the defaults of `Workload`. Relative paths are relative to the file's directory.

    Raises:
        ConfigError: there is no such workload, or it is invalid; the message is one line.
    """
    names = preset_names()
    if name_or_path in names:
        table = {"name": name_or_path, **tomllib.loads(preset_text(name_or_path))}
        return from_dict(table, name_or_path)
    path = Path(name_or_path)
    if path.suffix != _SUFFIX and "/" not in name_or_path and not path.is_file():
        raise ConfigError(
            f"unknown workload {name_or_path!r}{_suggestion(name_or_path, names)} "
            f"(the presets are {', '.join(names)}; or give the path of a TOML file)"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{name_or_path}: {error.strerror}") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number with thousands of digits
        raise ConfigError(f"{name_or_path}: {error}") from None
    return from_dict({"name": path.stem, **table}, name_or_path, path.parent)


def preset_text(name: str) -> str:
    """Return a preset as the text of a workload file, including its comments.

    Raises:
        ConfigError: there is no such preset.
    """
    names = preset_names()
    if name not in names:
        raise ConfigError(
            f"unknown workload {name!r}{_suggestion(name, names)} "
            f"(the presets are {', '.join(names)})"
        )
    preset = resources.files("memlite.loadtest") / "presets" / (name + _SUFFIX)
    return preset.read_text(encoding="utf-8")


def from_dict(
    table: Mapping[str, Any], source: str = "workload", directory: Path | None = None
) -> Workload:
    """Build a workload from the tables of a workload file, or the output of `as_dict`.

    Args:
        table: settings and tables of settings.
        source: the name of the workload in error messages.
        directory: the directory that relative paths refer to; None for the current directory.

    Raises:
        ConfigError: a setting is invalid; the message is one line.
    """
    _reject_unknown(table, [*_TOP, "mix", *_TABLES], source, "")
    settings = {name: value for name, value in table.items() if name in _TOP}
    if "mix" in table:
        settings["mix"] = table["mix"]
    for name, kind in _CLASSES.items():
        part = table.get(name, {})
        if not isinstance(part, Mapping):
            raise ConfigError(f"{source}: [{name}] must be a table, not {part!r}")
        _reject_unknown(part, _TABLES[name], source, f"[{name}] ")
        settings[name] = kind(**part)
    workload = Workload(**settings)
    if directory is not None:
        workload = _with_absolute_paths(directory, workload)
    return validate(workload, source)


def validate(workload: Workload, source: str | None = None) -> Workload:
    """Return `workload` if it is valid; the files it names are checked too.

    Args:
        workload: a workload that was loaded or built by the program.
        source: the name of the workload in error messages; None for the workload's own name.

    Raises:
        ConfigError: a setting is invalid; the message is one line.
    """
    source = source or str(workload.name)
    for name, check in {**_TOP, "mix": _mix}.items():
        _apply(check, getattr(workload, name), f"{source}: {name}")
    for table, checks in _TABLES.items():
        for name, check in checks.items():
            value = getattr(getattr(workload, table), name)
            _apply(check, value, f"{source}: [{table}] {name}")
    _check_mix(workload, source)
    _check_combinations(workload, source)
    _check_files(workload, source)
    return workload


def as_dict(workload: Workload) -> dict[str, Any]:
    """Return a complete workload as plain values, laid out like a workload file."""
    tables = asdict(workload)
    return {name: tables[name] for name in (*_TOP, "mix", *_TABLES)}


def to_toml(workload: Workload) -> str:
    """Return a complete workload as the text of a workload file."""
    tables = as_dict(workload)
    lines = [f"{name} = {_toml(tables.pop(name))}" for name in _TOP]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{setting} = {_toml(value)}" for setting, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml(value: str | float) -> str:
    # JSON numbers, booleans and strings of printable characters are valid TOML.
    return json.dumps(value, ensure_ascii=False)


def _apply(check: _Check, value: Any, label: str) -> None:
    try:
        check(value)
    except ValueError as error:
        raise ConfigError(f"{label} {error}") from None


def _check_mix(workload: Workload, source: str) -> None:
    _reject_unknown(workload.mix, OPERATIONS, source, "[mix] ")
    for name, share in workload.mix.items():
        _apply(_WEIGHT, share, f"{source}: [mix] {name}")
    if workload.kind == "steady" and not workload.trace and not any(workload.mix.values()):
        raise ConfigError(f"{source}: [mix] must have an operation with a weight above 0")


def _check_combinations(workload: Workload, source: str) -> None:
    """Check settings that depend on each other."""
    keys, values = workload.keys, workload.values
    if keys.distribution in ("zipfian", "latest") and keys.count > _MAX_ZIPFIAN_KEYS:
        raise ConfigError(
            f"{source}: [keys] count must be at most {_MAX_ZIPFIAN_KEYS} with distribution "
            f"{keys.distribution}, not {keys.count}"
        )
    if values.least > values.most:
        raise ConfigError(
            f"{source}: [values] least must not be greater than most ({values.most}), "
            f"not {values.least}"
        )
    if values.distribution == "lognormal" and values.size == 0:
        raise ConfigError(f"{source}: [values] size must be at least 1 with distribution lognormal")
    if values.distribution == "file" and not values.file:
        raise ConfigError(f"{source}: [values] file must be given with distribution file")
    if workload.trace and workload.kind == "concurrent":
        raise ConfigError(f"{source}: trace requires kind steady, not concurrent")


def _check_files(workload: Workload, source: str) -> None:
    # Imported only when needed: these modules import numpy, which is slow.
    try:
        if workload.values.distribution == "file":
            from memlite.loadtest.values import read_sizes

            label = "[values] file "
            read_sizes(workload.values.file)
        if workload.trace:
            from memlite.loadtest.trace import Trace

            label = "trace "
            Trace(workload)
    except ConfigError as error:
        raise ConfigError(f"{source}: {label}{error}") from None


def _reject_unknown(given: Iterable[Any], known: Iterable[str], source: str, table: str) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            what = "operation" if table == "[mix] " else "setting"
            raise ConfigError(
                f"{source}: {table}unknown {what} {name!r}{_suggestion(str(name), known)}"
            )


def digests(workload: Workload) -> dict[str, str]:
    """Return the SHA-256 of each file that a workload reads, by its path.

    Raises:
        ConfigError: a file cannot be read.
    """
    found = {}
    for path in filter(None, (workload.trace, workload.values.file)):
        try:
            with Path(path).open("rb") as file:
                found[path] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
    return found


def _suggestion(unknown: str, known: Iterable[str]) -> str:
    import difflib  # needed only for error messages

    close = difflib.get_close_matches(unknown, list(known), 1)
    return f", did you mean {close[0]!r}?" if close else ""


def _with_absolute_paths(directory: Path, workload: Workload) -> Workload:
    """Return `workload` with absolute paths, so that it can be saved anywhere."""

    def absolute(path: Any) -> Any:
        # Values of the wrong type are left for validation to reject.
        return str((directory / path).absolute()) if path and isinstance(path, str) else path

    values = replace(workload.values, file=absolute(workload.values.file))
    return replace(workload, trace=absolute(workload.trace), values=values)
