"""The parser of the command line, and of its commands."""

import argparse
from typing import NoReturn, TypeAlias

from memlite.core.errors import ConfigError

__all__ = ["NAME", "Commands", "Parser", "add_command"]

NAME = "memlite bench"


class Parser(argparse.ArgumentParser):
    """Raises an error for an invalid command line, instead of exiting the program."""

    def error(self, message: str) -> NoReturn:
        """Report an invalid command line.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"bench: {message} ({self.prog} --help lists the options)")


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""The object to which commands are added."""


def add_command(commands: Commands, name: str, help_text: str) -> argparse.ArgumentParser:
    """Add a command."""
    return commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        allow_abbrev=False,
    )
