"""Tab completion and the syntax hint."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from memlite.shell.commands import ARGUMENTS, COMMANDS, Command
from memlite.shell.flags import META_FLAGS

_QUOTED = re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")

__all__ = ["Candidate", "candidates", "hint"]


class Candidate(NamedTuple):
    """A completion of the word at the cursor.

    Attributes:
        word: the completed word.
        meaning: its meaning, in a few words.
        shown: how it is displayed in the list.
    """

    word: str
    meaning: str
    shown: str


def candidates(before: str, commands: Mapping[str, Command] = COMMANDS) -> list[Candidate]:
    """Return the possible completions of the word before the cursor.

    Args:
        before: the line up to the cursor.
        commands: the available commands.
    """
    text = _QUOTED.sub("_", before)
    if '"' in text or "'" in text:
        return []  # within a value
    *previous, word = text.split(" ")
    previous = [one for one in previous if one]
    if not previous or previous == ["help"]:
        options = {name: command.summary for name, command in commands.items()}
    elif previous[0] not in commands:
        return []
    elif previous[0] in META_FLAGS:
        return _flags(previous, word)
    elif previous[0] == "watch":
        events = ARGUMENTS["watch"].items()
        options = {event: meaning for event, meaning in events if event not in previous}
    else:
        options = ARGUMENTS.get(" ".join(previous), {})
    return [
        Candidate(one, meaning, one) for one, meaning in options.items() if one.startswith(word)
    ]


def _flags(previous: list[str], word: str) -> list[Candidate]:
    """Return the meta flags not yet given, once the key (and for ms the value) is present."""
    if len(previous) < (3 if previous[0] == "ms" else 2):
        return []
    given = {one[0] for one in previous[2:]}
    return [
        Candidate(flag[0], meaning, flag)
        for flag, meaning in META_FLAGS[previous[0]].items()
        if flag.startswith(word) and flag[0] not in given
    ]


def hint(line: str, commands: Mapping[str, Command] = COMMANDS) -> str:
    """Return the syntax of the command at the start of a line; empty if there is none."""
    command = commands.get(line.split(" ", 1)[0])
    return command.usage if command else ""
