"""Reads the settings: flags override the environment, which overrides the file and the defaults."""

import getopt
from collections.abc import Mapping, Sequence
from typing import Any

from memlite.config.extended import ExtendedOptions
from memlite.config.options import (
    ENVIRONMENT_PREFIX,
    OPTIONS,
    OPTIONS_BY_NAME,
    REFUSED,
    Option,
)
from memlite.config.rules import check, with_implied
from memlite.config.service_links import is_service_link
from memlite.config.settings import Config, Settings
from memlite.core.errors import ConfigError

__all__ = ["load"]

_CONFIG_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG"
# Variables of the build, the tests, the other commands and the store of a cluster.
_FOREIGN_VARIABLES = (
    "MEMLITE_COMPILED",
    "MEMLITE_NO_EXTENSIONS",
    "MEMLITE_TEST_",
    "MEMLITE_BENCH_",
    "MEMLITE_SHELL_",
    "MEMLITE_STORE_",
    "MEMLITE_TOP_",
    "MEMLITE_VALKEY_",
)
_OPTIONS_BY_LETTER = {option.short: option for option in OPTIONS if option.short}
_ACTIONS = {"h": "help", "V": "version", "i": "license", None: "print-config"}

# The value and the source of each option that is set, by the option's name.
_Layer = dict[str, tuple[Any, str]]


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read the settings from the command line, the environment and the settings file.

    Args:
        arguments: the command line without the program's name.
        environment: environment variables by name.

    Raises:
        ConfigError: a setting is invalid; the text names it, in one line.
    """
    flags, path, actions = _read_flags(arguments)
    if actions & {"help", "version", "license"}:
        return Settings(Config(), {}, actions)
    from_environment = _read_environment(environment)
    path = path or environment.get(_CONFIG_VARIABLE) or None
    values: dict[str, Any] = {}
    sources = {option.name: "default" for option in OPTIONS}
    for layer in (_read_file(path) if path else {}, from_environment, flags):
        for name, (value, source) in layer.items():
            field_name = OPTIONS_BY_NAME[name].field
            if isinstance(value, ExtendedOptions) and field_name in values:
                # Merge key by key: a layer overrides only the keys that it sets.
                value = values[field_name] + value
                source = f"{sources[name]}, {source}"
            values[field_name] = value
            sources[name] = source
    return Settings(check(Config(**with_implied(values))), sources, actions)


def _read_flags(arguments: Sequence[str]) -> tuple[_Layer, str | None, frozenset[str]]:
    """Return the options, the path of the settings file and the actions in `arguments`."""
    shorts = "".join(
        option.short + (":" if option.metavar else "") for option in OPTIONS if option.short
    )
    shorts += "hViN:"
    longs = [option.name + ("=" if option.metavar else "") for option in OPTIONS]
    longs += ["help", "version", "license", "print-config", "config="]
    longs += ["napi-ids="]
    try:
        pairs, rest = getopt.getopt(list(arguments), shorts, longs)
    except getopt.GetoptError as error:
        hint = _similar_flag(error.opt, longs) if "not recognized" in error.msg else ""
        raise ConfigError(f"{error.msg}{hint} (memlite -h lists the options)") from None
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r} (memlite -h lists the options)")
    layer: _Layer = {}
    path = None
    actions = set()
    for flag, text in pairs:
        letter = flag[1:] if len(flag) == 2 else None
        name = flag[2:] if letter is None else None
        refused = [entry for key, entry in REFUSED.items() if letter == key or name == entry[0]]
        if refused:
            raise ConfigError(f"{flag}: this version of memlite does not support {refused[0][1]}")
        if letter in ("h", "V", "i") or name in ("help", "version", "license", "print-config"):
            actions.add(name or _ACTIONS[letter])
        elif name == "config":
            path = text
        else:
            option = _OPTIONS_BY_LETTER[letter] if letter else OPTIONS_BY_NAME[name or ""]
            text = "1" if option.metavar is None else text.strip()
            _add(layer, option, text, source=f"flag {flag}", label=flag)
    return layer, path, frozenset(actions)


def _similar_flag(unknown: str, longs: Sequence[str]) -> str:
    import difflib  # only needed for this error message

    names = [name.rstrip("=") for name in longs]
    close = difflib.get_close_matches(unknown, names, 1) if len(unknown) > 1 else []
    return f", did you mean --{close[0]}?" if close else ""


def _read_environment(environment: Mapping[str, str]) -> _Layer:
    by_variable = {option.variable: option for option in OPTIONS}
    layer: _Layer = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable == _CONFIG_VARIABLE or variable.startswith(_FOREIGN_VARIABLES):
            continue
        if is_service_link(variable, text):
            continue
        option = by_variable.get(variable)
        if option is None:
            raise ConfigError(f"unknown environment variable {variable}")
        _add(layer, option, text, source=f"environment {variable}", label=variable)
    return layer


def _read_file(path: str) -> _Layer:
    from memlite.config.file import read_file  # most servers have none

    layer: _Layer = {}
    for option, text in read_file(path):
        _add(layer, option, text, source=f"file {path}", label=f"{path}: {option.name}")
    return layer


def _add(layer: _Layer, option: Option, text: str, *, source: str, label: str) -> None:
    """Add an option to a layer.

    Args:
        layer: the layer, modified in place.
        option: the option.
        text: its value.
        source: as in `Settings.sources`.
        label: names the option in error messages.

    Raises:
        ConfigError: `text` is not a value of this option.
    """
    try:
        if "\0" in text:
            raise ValueError("must not contain a NUL")
        value = option.parse(text)
    except ValueError as error:
        raise ConfigError(f"{label}: {error}") from None
    if option.name in layer and option.repeated:
        value = layer[option.name][0] + value
    layer[option.name] = (value, source)
