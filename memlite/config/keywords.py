"""Settings as keyword arguments: the fields of `Config`, with the values of a settings file."""

import os
from collections.abc import Mapping
from dataclasses import fields

from memlite.config.extended import ExtendedOptions
from memlite.config.options import OPTIONS, Option
from memlite.config.settings import Config
from memlite.config.sources import load
from memlite.core.errors import ConfigError

__all__ = ["configure", "flags"]

_BY_FIELD = {option.field: option for option in OPTIONS}
_DEFAULTS = Config()


def configure(settings: Mapping[str, object], base: Config | None = None) -> Config:
    """Return a checked configuration.

    Args:
        settings: values by their names in `Config`, as `flags` takes them.
        base: the values of all other settings; by default, the defaults.

    Raises:
        ConfigError: a name is unknown, a value is not allowed, or two contradict each other.
    """
    values = {**_differences(base or _DEFAULTS), **settings}
    return load(flags(values), {}).config


def flags(settings: Mapping[str, object]) -> list[str]:
    """Return settings as arguments of the command line.

    Args:
        settings: values by their names in `Config`. None and False omit an option. A size may be a
            string such as ``64m``, ``unix_mask`` a number, ``listen`` a string or a sequence, and
            ``extended`` a mapping of keys, in which True stands for a key without a value.

    Raises:
        ConfigError: a name is unknown, or a value has an unsupported type.
    """
    found: list[str] = []
    for name, value in settings.items():
        option = _BY_FIELD.get(name)
        if option is None:
            raise ConfigError(_unknown(name))
        if value is None or value is False:
            continue
        if option.metavar is None:
            found += [f"--{option.name}"] * _times(option, value)
        else:
            found.append(f"--{option.name}={_text(option, value)}")
    return found


def _differences(config: Config) -> dict[str, object]:
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {name: value for name, value in values.items() if value != getattr(_DEFAULTS, name)}


def _times(option: Option, value: object) -> int:
    if value is True:
        return 1
    if option.repeated == "count" and isinstance(value, int):
        return value
    raise ConfigError(f"{option.field}: must be True or False, not {value!r}")


def _text(option: Option, value: object) -> str:
    if value is True:
        raise ConfigError(f"{option.field}: needs a value, not True")
    if option.field == "unix_mask" and isinstance(value, int):
        return f"{value:o}"
    if isinstance(value, str | int | float | ExtendedOptions):
        return str(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, Mapping):
        given = {key: part for key, part in value.items() if part is not None and part is not False}
        return ",".join(key if part is True else f"{key}={part}" for key, part in given.items())
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    raise ConfigError(f"{option.field}: cannot be of type {type(value).__name__}")


def _unknown(name: str) -> str:
    import difflib  # only on the way to an error message

    close = difflib.get_close_matches(name, _BY_FIELD, 1)
    return f"unknown setting {name!r}" + (f", did you mean {close[0]!r}?" if close else "")
