"""The command lines of memlite as data, for completions and the man page.

The server's command line comes from the table of options, the others from their parsers.
"""

import argparse
from dataclasses import dataclass

from memlite.cli.subcommands import SUBCOMMANDS
from memlite.cluster.command import command_line as cluster
from memlite.config import EXTENDED, OPTIONS, REFUSED, Option
from memlite.config.parsers import Choice
from memlite.loadtest.options import command_line as bench
from memlite.loadtest.workload_files import preset_names
from memlite.proxy.options import HELP, OPTIONS_OF_A_SERVER
from memlite.proxy.options import command_line as proxy
from memlite.shell.commands import COMMANDS
from memlite.shell.options import command_line as shell
from memlite.testing.gcs_emulator.command import command_line as gcs_emulator
from memlite.top.options import command_line as top

__all__ = ["Command", "Flag", "commands"]

_PATHS = ("FILE", "DIR", "NAME|FILE")


@dataclass(frozen=True)
class Flag:
    """An option.

    Attributes:
        spellings: such as ``-p`` and ``--port``.
        help: a one-line description.
        metavar: the name of its value; empty for a switch.
        choices: its values, if there are few; with `paths`, some of them.
        repeats: whether it may be given several times.
    """

    spellings: tuple[str, ...]
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def paths(self) -> bool:
        """Whether its value is the path of a file or folder."""
        return self.metavar in _PATHS


@dataclass(frozen=True)
class Command:
    """A command and its options.

    Attributes:
        words: its names, without ``memlite``; empty for the server.
        help: a one-line description.
        flags: its options.
        arguments: how the arguments after the options are written; empty for none.
        choices: possible words for the first argument, and their descriptions.
        paths: whether its arguments are paths.
    """

    words: tuple[str, ...]
    help: str
    flags: tuple[Flag, ...]
    arguments: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    paths: bool = False


def commands() -> list[Command]:
    """Return all commands, the server first."""
    measuring = _with_commands(("bench",), SUBCOMMANDS["bench"].help, bench())
    return [
        _server(),
        *measuring,
        *_with_commands(("cluster",), SUBCOMMANDS["cluster"].help, cluster()),
        *_with_commands(("gcs-emulator",), SUBCOMMANDS["gcs-emulator"].help, gcs_emulator()),
        _proxy(),
        Command(
            ("shell",),
            SUBCOMMANDS["shell"].help,
            tuple(_flags(shell())),
            "[HOST:PORT | /path/to/socket] [COMMAND ...]",
            tuple((command.name, command.summary) for command in COMMANDS.values()),
        ),
        Command(("top",), SUBCOMMANDS["top"].help, tuple(_flags(top())), "[HOST:PORT ...]"),
    ]


def _proxy() -> Command:
    names = OPTIONS_OF_A_SERVER
    flags = [
        *_flags(proxy()),
        *(_of_server(one, HELP.get(one.name)) for one in OPTIONS if one.name in names),
    ]
    return Command(("proxy",), SUBCOMMANDS["proxy"].help, tuple(flags))


def _of_server(option: Option, text: str | None = None) -> Flag:
    return Flag(
        (*((f"-{option.short}",) if option.short else ()), f"--{option.name}"),
        (text or option.help) + ("" if option.effect else " (no effect)"),
        option.metavar or "",
        option.parse.choices if isinstance(option.parse, Choice) else _extended(option.field),
        option.repeated is not None,
    )


def _server() -> Command:
    flags = [_of_server(option) for option in OPTIONS]
    flags += [
        Flag(("--config",), "read settings from this TOML file", "FILE"),
        Flag(("--print-config",), "print the settings and the source of each, and exit"),
        Flag(("-h", "--help"), "print this help and exit"),
        Flag(("-i", "--license"), "print the licence and exit"),
        Flag(("-V", "--version"), "print the version and exit"),
    ]
    assert not {spelling for flag in flags for spelling in flag.spellings} & {
        f"-{letter}" for letter in REFUSED
    }
    choices = tuple((command.name, command.help) for command in SUBCOMMANDS.values())
    return Command((), "a memcached-compatible cache server", tuple(flags), choices=choices)


def _extended(field: str) -> tuple[str, ...]:
    return tuple(key for key, option in EXTENDED.items() if option.help) * (field == "extended")


def _with_commands(
    words: tuple[str, ...], text: str, parser: argparse.ArgumentParser
) -> list[Command]:
    flags, arguments, inner, paths = tuple(_flags(parser)), "", [], False
    choices: list[tuple[str, str]] = []
    for action in parser._actions:  # argparse has no public interface for this
        if isinstance(action, argparse._SubParsersAction):
            arguments = "COMMAND"
            choices = [(one.dest, one.help or "") for one in action._choices_actions]
            helps = dict(choices)
            for name, one in action.choices.items():
                inner += _with_commands((*words, name), helps[name], one)
        elif not action.option_strings:
            arguments = {
                "+": f"{action.metavar} ...",
                "?": f"[{action.metavar}]",
                "*": f"[-- {action.metavar} ...]",
            }.get(str(action.nargs), str(action.metavar))
            paths = action.metavar == "RESULTS"
            if words == ("bench", "workload"):
                choices = [(name, "") for name in preset_names()]
    return [Command(words, text, flags, arguments, tuple(choices), paths), *inner]


def _flags(parser: argparse.ArgumentParser) -> list[Flag]:
    return [
        Flag(
            tuple(action.option_strings),
            (action.help or "") % {"default": action.default, "prog": parser.prog},
            _metavar(action),
            _choices(action),
            isinstance(action, argparse._AppendAction),
        )
        for action in parser._actions
        if action.option_strings
    ]


def _metavar(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    return str(action.metavar or ("NAME" if action.choices else action.dest.upper()))


def _choices(action: argparse.Action) -> tuple[str, ...]:
    if action.dest == "workload":
        return tuple(preset_names())
    return tuple(action.choices or ())
