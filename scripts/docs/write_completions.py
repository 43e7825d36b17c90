"""Write the completions in share/ for bash, zsh and fish; ``--check`` only compares them.

Run it after changing an option: ``.venv/bin/python scripts/docs/write_completions.py``.
"""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from command_lines import Command, Flag, commands

SHARE = Path(__file__).parents[2] / "share"

HEAD = "# Completion for memlite. Written by scripts/docs/write_completions.py.\n"

BASH_HEAD = """\
_memlite() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    # "--port=1" arrives as three words.
    if [[ $cur == "=" ]]; then
        cur=""
    elif [[ $prev == "=" ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    local at="" flags="" words="" values="" paths="" other=""
    case "${COMP_WORDS[*]:1:COMP_CWORD-1} " in
"""

BASH_TAIL = """\
    COMPREPLY=()
    if [[ -n $other ]]; then
        return
    elif [[ -n $values || -n $paths ]]; then
        words=$values
    elif [[ $cur == -* ]]; then
        words=$flags
    fi
    local word
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <(compgen -W "$words" -- "$cur"; [[ -z $paths ]] || compgen -f -- "$cur")
    [[ -z $paths ]] || compopt -o filenames 2>/dev/null
}
complete -F _memlite memlite
"""

FISH_HEAD = """\
# Whether the command line is for the given command; "" is the server.
function __memlite_at
    set -l words (commandline -opc)
    set -l at
"""


def bash() -> str:
    """Return the completion for bash."""
    all_commands = commands()
    lines = [HEAD + BASH_HEAD]
    lines += [
        f"        {_quoted(command, ' ')}*) at={_quoted(command)} ;;\n"
        for command in reversed(all_commands)  # the longer names first
        if command.words
    ]
    lines.append("    esac\n")
    lines.append("    case $at in\n")
    for command in all_commands:
        lines += _bash_command(command)
    lines.append("    esac\n")
    return "".join([*lines, BASH_TAIL])


def _bash_command(command: Command) -> Iterator[str]:
    yield f"        {_quoted(command)})\n"
    flags = [spelling for flag in command.flags for spelling in flag.spellings]
    yield f"            flags={shlex.quote(' '.join(flags))}\n"
    if command.choices:
        words = shlex.quote(" ".join(name for name, _ in command.choices))
        if command.words == ("shell",):
            yield f"            words={words}\n"
        else:
            yield f"            ((COMP_CWORD == {_first(command)})) && words={words}\n"
    yield "            case $prev in\n"
    for flag in command.flags:
        if not flag.metavar:
            continue
        found = f"values={shlex.quote(' '.join(flag.choices))}" if flag.choices else ""
        found = f"{found} paths=1".strip() if flag.paths else found or "other=1"
        yield f"                {' | '.join(flag.spellings)}) {found} ;;\n"
    if command.paths:
        yield "                *) [[ $cur == -* ]] || paths=1 ;;\n"
    yield "            esac\n"
    yield "            ;;\n"


def zsh() -> str:
    """Return the completion for zsh."""
    all_commands = commands()
    lines = [f"#compdef memlite\n{HEAD}"]
    for command in all_commands:
        lines += _zsh_command(command, all_commands)
    return "".join([*lines, '\n_memlite "$@"\n'])


def _zsh_command(command: Command, all_commands: list[Command]) -> Iterator[str]:
    name = _function(command)
    if command.choices:
        yield f"\n{name}_words() {{\n"
        if command.words != ("shell",):
            yield "    (( CURRENT == 2 )) || return 1\n"
        yield "    local -a words_of_command=(\n"
        for word, text in command.choices:
            yield f"        {shlex.quote(f'{word}:{text}' if text else word)}\n"
        yield "    )\n    _describe -t commands word words_of_command\n}\n"
    yield f"\n{name}() {{\n"
    inner = [
        one
        for one in all_commands
        if len(one.words) == len(command.words) + 1 and one.words[:-1] == command.words
    ]
    if inner:
        yield "    if (( CURRENT > 2 )); then\n        case $words[2] in\n"
        for one in inner:
            yield f"            {one.words[-1]})\n"
            yield "                shift words\n                (( CURRENT-- ))\n"
            yield f"                {_function(one)}\n                return\n                ;;\n"
        yield "        esac\n    fi\n"
    specs = [_zsh_flag(flag) for flag in command.flags]
    if command.choices:
        count = "*" if command.words == ("shell",) else "1"
        specs.append(f"'{count}: :{name}_words'")
    elif command.paths:
        specs.append("'*:file:_files'")
    yield "    _arguments -s \\\n"
    yield " \\\n".join(f"        {spec}" for spec in specs)
    yield "\n}\n"


def _zsh_flag(flag: Flag) -> str:
    text = _zsh_escaped(flag.help)
    value = ""
    if flag.metavar:
        action = f"({' '.join(flag.choices)})" if flag.choices else " "
        action = "_files" if flag.paths else action
        value = f":{_zsh_escaped(flag.metavar)}:{action}"
    tail = shlex.quote(f"[{text}]{value}")
    spellings = [
        spelling + (("=" if spelling.startswith("--") else "+") if flag.metavar else "")
        for spelling in flag.spellings
    ]
    group = "'*'" if flag.repeats else f"'({' '.join(flag.spellings)})'"
    if len(spellings) == 1:
        return f"{group}{spellings[0]}{tail}"
    return f"{group}{{{','.join(spellings)}}}{tail}"


def _zsh_escaped(text: str) -> str:
    for character in "\\[]:":
        text = text.replace(character, f"\\{character}")
    return text


def fish() -> str:
    """Return the completion for fish."""
    lines = [HEAD, FISH_HEAD]
    for command in commands():
        if command.words:
            where = "; and ".join(
                f'test "$words[{index}]" = {word}' for index, word in enumerate(command.words, 2)
            )
            lines.append(f"    {where}; and set at {_quoted(command)}\n")
    lines.append('    test "$at" = "$argv[1]"\nend\n\n')
    # As with bash, only the words before the completed one count.
    lines.append(
        "function __memlite_count\n    test (count (commandline -opc)) -eq $argv[1]\nend\n"
    )
    lines.append("\ncomplete -c memlite -f\n")
    for command in commands():
        lines += _fish_command(command)
    return "".join(lines)


def _fish_command(command: Command) -> Iterator[str]:
    at = f"__memlite_at {_quoted(command)}"
    yield "\n"
    if command.paths:
        yield f"complete -c memlite -n {shlex.quote(at)} -F\n"
    for word, text in command.choices:
        where = (
            at if command.words == ("shell",) else f"{at}; and __memlite_count {_first(command)}"
        )
        told = f" -d {_fish_quoted(text)}" if text else ""
        yield f"complete -c memlite -n {_fish_quoted(where)} -a {word}{told}\n"
    for flag in command.flags:
        spelled = " ".join(
            f"-l {spelling[2:]}" if spelling.startswith("--") else f"-s {spelling[1:]}"
            for spelling in flag.spellings
        )
        value = ""
        if flag.metavar:
            value = " -r -F" if flag.paths else " -x"
            value += f" -a {_fish_quoted(' '.join(flag.choices))}" if flag.choices else ""
        told = _fish_quoted(flag.help)
        yield f"complete -c memlite -n {_fish_quoted(at)} {spelled}{value} -d {told}\n"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quoted(command: Command, end: str = "") -> str:
    return f'"{" ".join(command.words)}{end}"'


def _first(command: Command) -> int:
    return len(command.words) + 1


def _function(command: Command) -> str:
    return "_".join(("_memlite", *(word.replace("-", "_") for word in command.words)))


FILES = {
    SHARE / "bash-completion" / "completions" / "memlite": bash,
    SHARE / "zsh" / "site-functions" / "_memlite": zsh,
    SHARE / "fish" / "vendor_completions.d" / "memlite.fish": fish,
}


def main() -> int:
    """Write the files, or with ``--check`` compare them."""
    if "--check" in sys.argv[1:]:
        return int(
            any(not path.exists() or path.read_text() != text() for path, text in FILES.items())
        )
    for path, text in FILES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
