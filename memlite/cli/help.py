"""The output of ``--help``, ``--version``, ``--license`` and ``--print-config``."""

import contextlib
import json
import textwrap

from memlite.cli.subcommands import SUBCOMMANDS
from memlite.config import EXTENDED, OPTIONS, REFUSED, Config, Option, Settings
from memlite.core.build import describe_build
from memlite.core.package_name import DISTRIBUTION
from memlite.core.version import __version__

__all__ = ["answer", "help_text"]

_COLUMN = 27
_WIDTH = 79


def answer(settings: Settings) -> str:
    """Return the output of ``--help`` and the other actions that replace serving."""
    if "help" in settings.actions:
        return help_text()
    if "version" in settings.actions:
        return f"memlite {__version__} ({describe_build()})\n"
    if "license" in settings.actions:
        return _license()
    return _print_config(settings)


def help_text() -> str:
    """Return the output of ``--help``."""
    defaults = Config()
    lines = [
        f"memlite {__version__}",
        "Usage: memlite [options]   or: python -m memlite [options]",
        "       memlite <command> --help, for the other commands:",
    ]
    for subcommand in SUBCOMMANDS.values():
        lines += _help_lines(f"   {subcommand.name}", subcommand.help)
    lines.append("")
    for option in OPTIONS:
        lines += _help_lines(_spelling(option), option.help + _default(option, defaults))
    lines += _help_lines("    --config=FILE", "read settings from this TOML file")
    lines += _help_lines(
        "    --print-config", "print the settings and the source of each, and exit"
    )
    lines += _help_lines("-h, --help", "print this help and exit")
    lines += _help_lines("-i, --license", "print the licence and exit")
    lines += _help_lines("-V, --version", "print the version and exit")
    lines += ["", "Extended options (-o):"]
    for key, extended in EXTENDED.items():
        if extended.help:
            lines += _help_lines(f"   - {key}", extended.help)
    lines.append("   Accepted for compatibility with memcached, without effect:")
    without = ", ".join(key for key, extended in EXTENDED.items() if not extended.help)
    lines += textwrap.wrap(without, _WIDTH, initial_indent="   ", subsequent_indent="   ")
    lines += ["", "Options of memcached that this version of memlite does not support:"]
    for letter, (name, what) in REFUSED.items():
        lines += _help_lines(f"-{letter}, --{name}", what)
    lines += [
        "",
        "Each option can also be set by an environment variable (--conn-limit:",
        "MEMLITE_CONN_LIMIT) or in the --config file (conn-limit = 2048). Flags override",
        "the environment, the environment the file, the file the defaults.",
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
        for file in metadata.files(DISTRIBUTION) or []:
            if file.name == "LICENSE":
                text = file.read_text()
    return text or "memlite is licensed under the Apache License, Version 2.0.\n"


def _print_config(settings: Settings) -> str:
    """Return the settings as a TOML file, with the source of each value in a comment."""
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
    """Return `text` as a TOML basic string, with the same escapes as in JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
