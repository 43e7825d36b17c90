"""The format of the log, before the settings are known to be valid."""

import contextlib
from collections.abc import Mapping, Sequence

from memlite.config.options import OPTIONS_BY_NAME
from memlite.core.errors import ConfigError

__all__ = ["asks_for_json"]

_OPTION = OPTIONS_BY_NAME["log-format"]


def asks_for_json(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether settings that may be invalid ask for JSON.

    Args:
        arguments: the command line without the program's name.
        environment: environment variables by name.
    """
    found = _last(arguments, f"--{_OPTION.name}") or environment.get(_OPTION.variable)
    if not found:
        path = _last(arguments, "--config") or environment.get("MEMLITE_CONFIG")
        found = _in_file(path) if path else ""
    return found == "json"


def _last(arguments: Sequence[str], flag: str) -> str:
    found = ""
    for index, argument in enumerate(arguments):
        if argument == flag:
            found = "".join(arguments[index + 1 : index + 2])
        elif argument.startswith(f"{flag}="):
            found = argument.partition("=")[2]
    return found


def _in_file(path: str) -> str:
    from memlite.config.file import read_file

    found = ""
    with contextlib.suppress(ConfigError):
        for option, text in read_file(path):
            if option is _OPTION:
                found = text
    return found
