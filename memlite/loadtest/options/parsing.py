"""Parses the command line."""

import argparse
import functools
from collections.abc import Sequence
from typing import NamedTuple

from memlite.loadtest import option_values as values
from memlite.loadtest.options.clusters import complete_comparison
from memlite.loadtest.options.command_line import command_line

__all__ = ["CompareOption", "compare_options", "parse"]


class CompareOption(NamedTuple):
    """An option of ``compare``.

    Attributes:
        name: its first spelling, without dashes.
        takes_value: whether it takes a value.
    """

    name: str
    takes_value: bool


def parse(arguments: Sequence[str]) -> argparse.Namespace | None:
    """Parse the command line; returns None after printing help.

    Raises:
        ConfigError: the command line is invalid.
    """
    parser = _parser()
    try:
        options, others = parser.parse_known_args(arguments)
        if options.command == "factorial":
            parser.parse_args(["compare", *others])  # raises an error for unknown options
            options.others = others
            if not options.factor:
                parser.error("factorial: --factor OPTION=VALUE,VALUE is required")
        elif options.command == "study":
            options.others = others
        elif others:
            parser.error(f"unrecognized arguments: {' '.join(others)}")
    except SystemExit:
        return None
    if options.command in ("compare", "run") and options.clients is None:
        # A search for the knee starts from a single client, unless it increases the rate.
        one = options.find_knee and not options.rate
        options.clients = values.numbers("1" if one else options.usual_clients)
    if options.command == "compare":
        complete_comparison(options)
    return options


@functools.cache
def _parser() -> argparse.ArgumentParser:
    """Return the parser; building it takes as long as reading a file of results."""
    return command_line()


def compare_options() -> dict[str, CompareOption]:
    """Return the options of ``compare`` by all their long spellings, without dashes."""
    commands = _parser()._actions  # argparse has no public way to ask
    (chosen,) = (one for one in commands if isinstance(one, argparse._SubParsersAction))
    found: dict[str, CompareOption] = {}
    for action in chosen.choices["compare"]._actions:
        names = [one.removeprefix("--") for one in action.option_strings if one[:2] == "--"]
        found |= {name: CompareOption(names[0], action.nargs != 0) for name in names}
    return found
