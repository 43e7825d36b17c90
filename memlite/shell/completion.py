"""What TAB offers."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from memlite.shell.commands import ARGUMENTS, COMMANDS, Command
from memlite.shell.flags import META_FLAGS

_QUOTED = re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")

__all__ = ["Candidate", "candidates", "hint"]


class Candidate(NamedTuple):
    """A word that may stand where the cursor is.

    Attributes:
        word: the word.
        meaning: what it means, in a few words.
        shown: how it is listed.
    """

    word: str
    meaning: str
    shown: str


def candidates(before: str, commands: Mapping[str, Command] = COMMANDS) -> list[Candidate]:
    """Return what may complete the word behind which the cursor stands.

    Args:
        before: the line up to the cursor.
        commands: those there are.
    """
    text = _QUOTED.sub("_", before)
    if '"' in text or "'" in text:
        return []  # within a value
    *done, word = text.split(" ")
    done = [one for one in done if one]
    if not done or done == ["help"]:
        found = {name: command.summary for name, command in commands.items()}
    elif done[0] not in commands:
        return []
    elif done[0] in META_FLAGS:
        return _flags(done, word)
    elif done[0] == "watch":
        found = {kind: meaning for kind, meaning in ARGUMENTS["watch"].items() if kind not in done}
    else:
        found = ARGUMENTS.get(" ".join(done), {})
    return [Candidate(one, meaning, one) for one, meaning in found.items() if one.startswith(word)]


def _flags(done: list[str], word: str) -> list[Candidate]:
    """Return the meta flags that are not there yet, once the key (and the value) are."""
    if len(done) < (3 if done[0] == "ms" else 2):
        return []
    given = {one[0] for one in done[2:]}
    return [
        Candidate(flag[0], meaning, flag)
        for flag, meaning in META_FLAGS[done[0]].items()
        if flag.startswith(word) and flag[0] not in given
    ]


def hint(line: str, commands: Mapping[str, Command] = COMMANDS) -> str:
    """Return the syntax of the command a line begins with; empty if there is none."""
    command = commands.get(line.split(" ", 1)[0])
    return command.usage if command else ""
