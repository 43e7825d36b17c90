"""Workloads as files: the presets and a person's own, read, checked and written."""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any

from memlite.errors import ConfigError
from memlite.loadtest.workload import LARGEST_VALUE, OPERATIONS, Keys, Load, Values, Workload

__all__ = [
    "as_dict",
    "from_dict",
    "load_workload",
    "preset_names",
    "preset_text",
    "to_toml",
    "validate",
]

_SUFFIX = ".toml"
_KEY_LENGTH = 250  # memcached's
# What follows a prefix at most: a mark and a number of 64 bits.
_AFTER_PREFIX = 20
# memcached takes a larger exptime for a point in time.
_TTL_MOST = 30 * 24 * 3600
_KEYS_MOST = 1_000_000_000
# Their distribution is kept in memory, with 8 bytes for each key.
_ZIPFIAN_KEYS_MOST = 10_000_000
_SECONDS_MOST = 365 * 24 * 3600.0


# Checks of one setting: each raises ValueError with what finishes "[table] setting …".

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
        # Written so that NaN fails too.
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
        raise ValueError(f"must be a text, not {value!r}")


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
        raise ValueError(f"must not hold spaces or control characters: {value!r}")
    length = len(value.encode())
    if length > _KEY_LENGTH - _AFTER_PREFIX:
        raise ValueError(f"must be at most {_KEY_LENGTH - _AFTER_PREFIX} bytes, not {length}")


def _mix(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError("must be a table of operations and their shares")


_TOP: Mapping[str, _Check] = {
    "name": _line,
    "description": _line,
    "kind": _choice("steady", "concurrent"),
    "ttl": _whole(0, _TTL_MOST),
    "preload": _flag,
    "trace": _line,
}
_TABLES: Mapping[str, Mapping[str, _Check]] = {
    "keys": {
        "count": _whole(1, _KEYS_MOST),
        "distribution": _choice("uniform", "zipfian", "latest", "hotspot", "sequential"),
        "theta": _number(0, 2),
        "hot_fraction": _number(0, 1, above=True),
        "hot_share": _number(0, 1, above=True),
        "prefix": _prefix,
    },
    "values": {
        "distribution": _choice("fixed", "uniform", "lognormal", "file"),
        "size": _whole(0, LARGEST_VALUE),
        "least": _whole(0, LARGEST_VALUE),
        "most": _whole(0, LARGEST_VALUE),
        "sigma": _number(0, 10),
        "file": _line,
    },
    "load": {
        "pipeline": _whole(1, 10_000),
        "multiget": _whole(1, 100),
        "noreply": _flag,
        "rate": _number(0, 1e9),
        "arrivals": _choice("constant", "poisson"),
        "think_time": _number(0, _SECONDS_MOST),
        "operations": _whole(0, 10**15),
        "duration": _number(0, _SECONDS_MOST, above=True),
        "warm_up": _number(0, _SECONDS_MOST),
        "repetitions": _whole(1, 1_000),
    },
}
_CLASSES = {"keys": Keys, "values": Values, "load": Load}
_SHARE = _number(0, 1e12)


def preset_names() -> list[str]:
    """Return the names of the workloads that come with memlite, in order."""
    files = resources.files("memlite.loadtest") / "presets"
    names = (file.name for file in files.iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def load_workload(name_or_path: str) -> Workload:
    """Return a preset, or the workload in a file.

    Args:
        name_or_path: a preset's name; or the path of a TOML file, which may leave out what is to
            be as in `Workload`, and whose paths are those seen from its directory.

    Raises:
        ConfigError: there is none, or something is wrong with it; the text is one line.
    """
    names = preset_names()
    if name_or_path in names:
        table = {"name": name_or_path, **tomllib.loads(preset_text(name_or_path))}
        return from_dict(table, name_or_path)
    path = Path(name_or_path)
    if path.suffix != _SUFFIX and "/" not in name_or_path and not path.is_file():
        raise ConfigError(
            f"unknown workload {name_or_path!r}{_suggestion(name_or_path, names)} "
            f"(there are {', '.join(names)}; or give the path of a TOML file)"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{name_or_path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise ConfigError(f"{name_or_path}: {error}") from None
    return from_dict({"name": path.stem, **table}, name_or_path, path.parent)


def preset_text(name: str) -> str:
    """Return a preset as the text of a workload file, comments and all.

    Raises:
        ConfigError: there is none of that name.
    """
    names = preset_names()
    if name not in names:
        raise ConfigError(
            f"unknown workload {name!r}{_suggestion(name, names)} (there are {', '.join(names)})"
        )
    preset = resources.files("memlite.loadtest") / "presets" / (name + _SUFFIX)
    return preset.read_text(encoding="utf-8")


def from_dict(
    table: Mapping[str, Any], source: str = "workload", directory: Path | None = None
) -> Workload:
    """Return the workload that `as_dict` or a file gave.

    Args:
        table: settings, and tables of them.
        source: what an error names.
        directory: from where relative paths are seen; None for the current one.

    Raises:
        ConfigError: something is wrong with it; the text is one line.
    """
    _no_others(table, [*_TOP, "mix", *_TABLES], source, "")
    settings = {name: value for name, value in table.items() if name in _TOP}
    if "mix" in table:
        settings["mix"] = table["mix"]
    for name, made in _CLASSES.items():
        part = table.get(name, {})
        if not isinstance(part, Mapping):
            raise ConfigError(f"{source}: [{name}] must be a table, not {part!r}")
        _no_others(part, _TABLES[name], source, f"[{name}] ")
        settings[name] = made(**part)
    workload = Workload(**settings)
    if directory is not None:
        workload = _seen_from(directory, workload)
    return validate(workload, source)


def validate(workload: Workload, source: str | None = None) -> Workload:
    """Return `workload` if all of it is as it should be; files it names are looked at too.

    Args:
        workload: as read, or put together in the program.
        source: what an error names; the workload's name if None.

    Raises:
        ConfigError: something is wrong with it; the text is one line.
    """
    source = source or str(workload.name)
    for name, check in {**_TOP, "mix": _mix}.items():
        _apply(check, getattr(workload, name), f"{source}: {name}")
    for table, checks in _TABLES.items():
        for name, check in checks.items():
            value = getattr(getattr(workload, table), name)
            _apply(check, value, f"{source}: [{table}] {name}")
    _check_mix(workload, source)
    _check_together(workload, source)
    _check_files(workload, source)
    return workload


def as_dict(workload: Workload) -> dict[str, Any]:
    """Return all of a workload as plain values, in the layout of a workload file."""
    tables = asdict(workload)
    return {name: tables[name] for name in (*_TOP, "mix", *_TABLES)}


def to_toml(workload: Workload) -> str:
    """Return all of a workload as the text of a workload file."""
    tables = as_dict(workload)
    lines = [f"{name} = {_toml(tables.pop(name))}" for name in _TOP]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{setting} = {_toml(value)}" for setting, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml(value: str | float) -> str:
    # JSON's numbers, true and false are TOML's, and so are its texts of printable characters.
    return json.dumps(value, ensure_ascii=False)


def _apply(check: _Check, value: Any, label: str) -> None:
    try:
        check(value)
    except ValueError as error:
        raise ConfigError(f"{label} {error}") from None


def _check_mix(workload: Workload, source: str) -> None:
    _no_others(workload.mix, OPERATIONS, source, "[mix] ")
    for name, share in workload.mix.items():
        _apply(_SHARE, share, f"{source}: [mix] {name}")
    if workload.kind == "steady" and not workload.trace and not any(workload.mix.values()):
        raise ConfigError(f"{source}: [mix] must have an operation with a share above 0")


def _check_together(workload: Workload, source: str) -> None:
    """Check settings that depend on each other."""
    keys, values = workload.keys, workload.values
    if keys.distribution in ("zipfian", "latest") and keys.count > _ZIPFIAN_KEYS_MOST:
        raise ConfigError(
            f"{source}: [keys] count must be at most {_ZIPFIAN_KEYS_MOST} with distribution "
            f"{keys.distribution}, not {keys.count}"
        )
    if values.least > values.most:
        raise ConfigError(
            f"{source}: [values] least must be at most as large as most ({values.most}), "
            f"not {values.least}"
        )
    if values.distribution == "lognormal" and values.size == 0:
        raise ConfigError(f"{source}: [values] size must be at least 1 with distribution lognormal")
    if values.distribution == "file" and not values.file:
        raise ConfigError(f"{source}: [values] file must be given with distribution file")
    if workload.trace and workload.kind == "concurrent":
        raise ConfigError(f"{source}: trace needs kind steady, not concurrent")


def _check_files(workload: Workload, source: str) -> None:
    # Imported where they are needed: they import numpy, which takes a while.
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


def _no_others(given: Iterable[Any], known: Iterable[str], source: str, table: str) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            what = "operation" if table == "[mix] " else "setting"
            raise ConfigError(
                f"{source}: {table}unknown {what} {name!r}{_suggestion(str(name), known)}"
            )


def _suggestion(unknown: str, known: Iterable[str]) -> str:
    import difflib  # only on the way to an error message

    close = difflib.get_close_matches(unknown, list(known), 1)
    return f", did you mean {close[0]!r}?" if close else ""


def _seen_from(directory: Path, workload: Workload) -> Workload:
    """Return `workload` with absolute paths, so that it means the same wherever it is saved."""

    def absolute(path: Any) -> Any:
        # What is no text is left to the check.
        return str((directory / path).absolute()) if path and isinstance(path, str) else path

    values = replace(workload.values, file=absolute(workload.values.file))
    return replace(workload, trace=absolute(workload.trace), values=values)
