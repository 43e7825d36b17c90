"""The text of ``help``."""

import textwrap
from collections.abc import Mapping

from memlite.shell.commands import ARGUMENTS, COMMANDS, Command
from memlite.shell.display import Style
from memlite.shell.flags import META_FLAGS

__all__ = ["overview", "topic"]

_GROUPS = {
    "read": "Read",
    "store": "Store",
    "change": "Change",
    "meta": "Meta commands",
    "server": "Server",
    "shell": "Shell",
}
_MAX_WIDTH = 100


def overview(style: Style, commands: Mapping[str, Command] = COMMANDS) -> str:
    """Return the list of commands."""
    column = max(len(command.usage) for command in commands.values()) + 4
    lines = []
    for group, title in _GROUPS.items():
        listed = [
            f"  {command.usage.ljust(column - 2)}{style.dim(command.summary)}"
            for command in commands.values()
            if command.group == group
        ]
        if listed:
            lines += [style.bold(title), *listed]
    lines += ["", "Unlisted commands are sent as typed. 'help set' describes set in detail."]
    return "\n".join(lines) + "\n"


def topic(name: str, style: Style, commands: Mapping[str, Command] = COMMANDS) -> str:
    """Return the description of a command, or a note that there is no such command."""
    command = commands.get("quit" if name == "exit" else name)
    if command is None:
        return "no such command; 'help' lists them\n"
    lines = [
        f"{style.bold(command.name)} {command.syntax}".rstrip(),
        f"  {command.summary}",
        "",
        *(["  " + style.dim("example: ") + command.example, ""] if command.example != name else []),
    ]
    for paragraph in filter(None, command.more.split("\n")):
        lines += [*_wrapped(paragraph, style, "  "), ""]
    lines += _arguments(command, style)
    while not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n"


def _arguments(command: Command, style: Style) -> list[str]:
    flags = META_FLAGS.get(command.name)
    rows = flags or ARGUMENTS.get(command.name)
    if not rows:
        return []
    column = max(map(len, rows)) + 4
    lines = ["  " + style.bold("flags" if flags else "arguments")]
    for word, meaning in rows.items():
        first, *others = _wrapped(meaning, style, " " * (column + 2))
        lines += [f"    {word.ljust(column - 2)}{first.strip()}", *others]
    return lines


def _wrapped(text: str, style: Style, margin: str) -> list[str]:
    width = min(style.width, _MAX_WIDTH)
    return textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=margin)
