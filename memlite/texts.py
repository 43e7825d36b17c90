"""What ``--help``, ``--version``, ``--license`` and ``--print-config`` print."""

import contextlib
import json
import textwrap

from memlite import __version__
from memlite.config import OPTIONS, REFUSED, Config, Option, Settings
from memlite.extended import EXTENDED
from memlite.protocol.build import running_build
from memlite.subcommands import SUBCOMMANDS

__all__ = ["answer", "help_text"]

_COLUMN = 27
_WIDTH = 79


def answer(settings: Settings) -> str:
    """Return what is asked for instead of a server, by ``--help`` and the like."""
    if "help" in settings.actions:
        return help_text()
    if "version" in settings.actions:
        return f"memlite {__version__} ({running_build()})\n"
    if "license" in settings.actions:
        return _license()
    return _print_config(settings)


def help_text() -> str:
    """Return what ``--help`` prints."""
    defaults = Config()
    lines = [
        f"memlite {__version__}",
        "Usage: memlite [options]   or: python -m memlite [options]",
        "       memlite <command> --help, for the commands beside the server:",
    ]
    for subcommand in SUBCOMMANDS.values():
        lines += _help_lines(f"   {subcommand.name}", subcommand.help)
    lines.append("")
    for option in OPTIONS:
        lines += _help_lines(_spelling(option), option.help + _default(option, defaults))
    lines += _help_lines("    --config=FILE", "read settings from a TOML file")
    lines += _help_lines(
        "    --print-config", "print the settings and where each came from, and exit"
    )
    lines += _help_lines("-h, --help", "print this help and exit")
    lines += _help_lines("-i, --license", "print the licence and exit")
    lines += _help_lines("-V, --version", "print the version and exit")
    lines += ["", "Extended options (-o):"]
    for key, extended in EXTENDED.items():
        if extended.help:
            lines += _help_lines(f"   - {key}", extended.help)
    lines.append("   Without effect, accepted for scripts written for memcached:")
    without = ", ".join(key for key, extended in EXTENDED.items() if not extended.help)
    lines += textwrap.wrap(without, _WIDTH, initial_indent="   ", subsequent_indent="   ")
    lines += ["", "Known to memcached and not in this version of memlite (refused):"]
    for letter, (name, what) in REFUSED.items():
        lines += _help_lines(f"-{letter}, --{name}", what)
    lines += [
        "",
        "Each option can also be set by an environment variable (--conn-limit:",
        "MEMLITE_CONN_LIMIT) or in the --config file (conn-limit = 2048). Flags go before",
        "environment, environment before file, file before default.",
    ]
    return "\n".join(lines) + "\n"


def _spelling(option: Option) -> str:
    value = f"=<{option.metavar.lower()}>" if option.metavar else ""
    letter = f"-{option.short}," if option.short else "   "
    return f"{letter} --{option.name}{value}"


def _default(option: Option, defaults: Config) -> str:
    value = getattr(defaults, option.field)
    if not option.metavar or value in (None, (), "") or option.name == "extended":
        return "" if option.effect else " (no effect)"
    if option.name == "unix-mask":
        value = f"{value:o}"
    if option.name == "max-item-size":
        value = "1m"
    return f" (default: {value}{'' if option.effect else '; no effect'})"


def _help_lines(left: str, right: str) -> list[str]:
    wrapped = textwrap.wrap(right, _WIDTH - _COLUMN)
    if len(left) >= _COLUMN:
        return [left] + [" " * _COLUMN + line for line in wrapped]
    return [
        (left if index == 0 else "").ljust(_COLUMN) + line for index, line in enumerate(wrapped)
    ]


def _license() -> str:
    from importlib import metadata

    text = ""
    with contextlib.suppress(metadata.PackageNotFoundError, FileNotFoundError):
        for file in metadata.files("memlite") or []:
            if file.name == "LICENSE":
                text = file.read_text()
    return text or "memlite is licensed under the Apache License, Version 2.0.\n"


def _print_config(settings: Settings) -> str:
    """Return the settings as a TOML file that says where each value came from."""
    rows = []
    for option in OPTIONS:
        value = getattr(settings.config, option.field)
        source = settings.sources[option.name]
        if value in (None, (), "") or (option.name == "extended" and not value.given):
            rows.append((f"# {option.name} =", source))
        else:
            rows.append((f"{option.name} = {_toml(option, value)}", source))
    width = min(40, max(len(left) for left, _ in rows))
    return "".join(f"{left.ljust(width)}  # {source}\n" for left, source in rows)


def _toml(option: Option, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if option.name == "unix-mask":
        return f'"{value:o}"'
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(_quoted(part) for part in value) + "]"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """Return a TOML basic string, whose escapes are JSON's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
