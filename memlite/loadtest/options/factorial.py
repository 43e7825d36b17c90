"""Options of ``bench factorial``."""

from pathlib import Path

from memlite.loadtest import option_values as values
from memlite.loadtest.options.output import add_mix_systems
from memlite.loadtest.options.parser import NAME, Commands, add_command

__all__ = ["add_factorial"]


def add_factorial(commands: Commands) -> None:
    """Add the command."""
    factorial = add_command(
        commands,
        "factorial",
        "measure all combinations of factors and report which of them matter; also accepts the "
        "options of compare",
    )
    factorial.usage = f"{NAME} factorial --factor OPTION=VALUE,VALUE ... [compare options]"
    add = factorial.add_argument
    add(
        "--factor",
        action="append",
        default=[],
        metavar="OPTION=VALUES",
        help="option of compare, a proxy or a server, with two or more values, such as "
        "clients=2,16; may be repeated",
    )
    add(
        "--repetitions",
        type=values.checked(values.positive),
        default=3,
        metavar="NUM",
        help="runs of each combination (default: %(default)s)",
    )
    add(
        "--seed",
        type=values.checked(int),
        default=1,
        metavar="NUM",
        help="random seed, also for the order of runs (default: %(default)s)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory; an interrupted run of the same experiment in it is resumed "
        "(default: bench-results/<time>)",
    )
    add("--no-report", action="store_true", help="save the analysis without writing a report")
    add_mix_systems(factorial)
    add("-q", "--quiet", action="store_true", help="do not show progress")
