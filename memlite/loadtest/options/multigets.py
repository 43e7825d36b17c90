"""Options of ``bench multigets``."""

from collections.abc import Callable
from pathlib import Path

from memlite.loadtest import option_values as values
from memlite.loadtest.options.output import add_mix_systems
from memlite.loadtest.options.parser import Commands, add_command

__all__ = ["add_multigets"]


def add_multigets(commands: Commands) -> None:
    """Add the command."""
    multigets = add_command(
        commands,
        "multigets",
        "compare gets of several keys that are sharded over the nodes behind a proxy with gets of "
        "keys that are all on one node",
    )
    add = multigets.add_argument
    options: tuple[tuple[str, Callable[[str], object], str, str, str], ...] = (
        (
            "--sizes",
            values.numbers,
            "1:9,12,16,24,32",
            "LIST",
            "numbers of keys: 4, or first:last:step",
        ),
        (
            "--nodes",
            values.positive,
            "3",
            "NUM",
            "number of nodes, and of processes that generate load",
        ),
        ("--clients", values.positive, "6", "NUM", "concurrent clients of all processes together"),
        ("--keys", values.positive, "1000", "NUM", "number of keys per process"),
        ("--value-size", values.size, "100", "NUM", "value size in bytes, such as 100 or 10k"),
        ("--duration", values.duration, "1s", "TIME", "length of a measurement"),
        (
            "--repetitions",
            values.positive,
            "5",
            "NUM",
            "measurements per size, both sharded and from one node",
        ),
        ("--seed", int, "1", "NUM", "random seed, also for the order of measurements"),
    )
    for name, parse_text, default, metavar, text in options:
        add(
            name,
            type=values.checked(parse_text),
            default=default,
            metavar=metavar,
            help=f"{text} (default: %(default)s)",
        )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory; an interrupted run with the same options in it is resumed "
        "(default: bench-results/<time>)",
    )
    add_mix_systems(multigets)
    add("-q", "--quiet", action="store_true", help="do not show progress")
