"""Write the man page, share/man/man1/memlite.1; ``--check`` only compares it.

Run it after changing an option: ``.venv/bin/python scripts/docs/write_man_page.py``.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from command_lines import Command, Flag, commands

from memlite.config import EXTENDED, OPTIONS
from memlite.core.version import __version__

PAGE = Path(__file__).parents[2] / "share" / "man" / "man1" / "memlite.1"

_DESCRIPTION = """\
memlite is a cache server that speaks memcached's protocols: text, meta and binary. Items are kept
in memory, in a file or in a Google Cloud Storage bucket. Option letters have the same
meaning as in memcached. Without -l it listens on the loopback interface only."""

_ENVIRONMENT = """\
Each option has a variable, such as MEMLITE_CONN_LIMIT for --conn-limit. MEMLITE_CONFIG names a
settings file, as --config does. Flags override the environment, the environment overrides the file,
and the file overrides the defaults. Variables that Kubernetes sets for a Service, such as
MEMLITE_SERVICE_HOST and MEMLITE_PORT=tcp://10.0.0.1:11211, are ignored."""

_SIGNALS = (
    ("SIGINT, SIGTERM", "stop: pending replies are sent, for at most a second"),
    ("SIGUSR1", "stop gracefully: commands that have begun to arrive may finish"),
    ("SIGHUP", "reload the users file (-Y), certificates and key (-Z)"),
)

_EXIT = (
    ("0", "success"),
    ("1", "a command of memlite shell failed, or requests of the load tester"),
    ("64", "a setting or argument is invalid; a line on stderr names it"),
    ("71", "the server cannot start, or a target cannot be reached"),
    ("130", "interrupted"),
)

_EXAMPLES = (
    ("memlite -m 1024 -l 127.0.0.1", "serve a gigabyte of items on 127.0.0.1:11211"),
    ("memlite --backend file:///var/lib/memlite/cache.json", "keep items in a file"),
    ("memlite shell localhost:11211 get greeting", "read an item"),
    ("memlite bench compare", "compare the backends on this machine"),
)


def page() -> str:
    """Return the text of the page."""
    server, *others = commands()
    lines = [
        '.\\" Written by scripts/docs/write_man_page.py.',
        f'.TH MEMLITE 1 "" "memlite {_text(__version__)}" "User Commands"',
        ".nh",  # do not hyphenate names of variables
        ".SH NAME",
        _text(f"memlite - {server.help}"),
        ".SH SYNOPSIS",
        ".B memlite",
        "[\\fIoptions\\fR]",
    ]
    for command in others:
        lines += [".br", f".B {_text(_name(command))}", "[\\fIoptions\\fR]"]
        lines += [_text(command.arguments)] * bool(command.arguments)
    lines += [".SH DESCRIPTION", _text(_DESCRIPTION), ".SH OPTIONS", *_options(server)]
    lines += [".SH EXTENDED OPTIONS", _text("Keys of -o, separated by commas:")]
    for key, option in EXTENDED.items():
        lines += _entry(f"\\fB{_text(key)}\\fR", option.help) if option.help else []
    lines.append(".SH COMMANDS")
    for command in others:
        lines += [
            f".SS {_text(_name(command))}",
            _text(_sentence(command.help)),
            *_options(command),
        ]
    lines += [".SH ENVIRONMENT", _text(_ENVIRONMENT)]
    for heading, table in (
        ("SIGNALS", _SIGNALS),
        ("EXIT STATUS", _EXIT),
        ("EXAMPLES", _EXAMPLES),
    ):
        lines.append(f".SH {heading}")
        for left, right in table:
            lines += _entry(f"\\fB{_text(left)}\\fR", right)
    lines += [".SH SEE ALSO", ".BR memcached (1)"]
    return "\n".join(lines) + "\n"


def _options(command: Command) -> Iterator[str]:
    defaults = {f"--{option.name}": option for option in OPTIONS} if not command.words else {}
    for flag in command.flags:
        option = defaults.get(flag.spellings[-1])
        variable = f" Variable: {option.variable}." if option else ""
        yield from _entry(_spelling(flag), _sentence(flag.help) + variable)


def _spelling(flag: Flag) -> str:
    text = ", ".join(f"\\fB{_text(spelling)}\\fR" for spelling in flag.spellings)
    if flag.metavar:
        text += (
            f"{'=' if flag.spellings[-1].startswith('--') else ' '}\\fI{_text(flag.metavar)}\\fR"
        )
    return text


def _entry(left: str, right: str) -> list[str]:
    return [".TP", left, _text(right)]


def _name(command: Command) -> str:
    return " ".join(("memlite", *command.words))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].removesuffix(".") + "."


def _text(text: str) -> str:
    """Escape the parts of `text` that troff would take for markup."""
    escaped = text.replace("\\", "\\(rs").replace("-", "\\-")
    # A period or an apostrophe at the beginning of a line would be a request.
    return "\n".join("\\&" * line.startswith((".", "'")) + line for line in escaped.splitlines())


def main() -> int:
    """Write the page, or with ``--check`` compare it."""
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
