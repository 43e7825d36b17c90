"""Options of ``bench study``."""

from pathlib import Path

from memlite.loadtest import option_values as values
from memlite.loadtest.options.output import add_mix_systems
from memlite.loadtest.options.parser import NAME, Commands, add_command

__all__ = ["add_study"]


def add_study(commands: Commands) -> None:
    """Add the command."""
    study = add_command(
        commands,
        "study",
        "measure servers, proxies and clusters of both, and write a report with all tables and "
        "figures; also accepts the options of compare",
    )
    study.usage = f"{NAME} study [--quick] [options] [compare options]"
    add = study.add_argument
    add("--quick", action="store_true", help="measure for 5 minutes instead of 80")
    add(
        "--backend",
        choices=("memory", "file", "memcached"),
        default="memory",
        help="backend of the nodes; memcached is the one on the PATH (default: %(default)s)",
    )
    add(
        "--clients",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="concurrent clients, at least three numbers (default: 1,2,4,8,16,32,64,128; quick: "
        "1,4,16,64)",
    )
    add(
        "--in-flight",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="limits of the proxies' requests in flight, at least two (default: 8,16,32,64; quick: "
        "8,64 for one node)",
    )
    add(
        "--duration",
        type=values.checked(values.positive_duration),
        metavar="TIME",
        help="length of a repetition (default: 5s; quick: 0.5s)",
    )
    add(
        "--warm-up",
        type=values.checked(values.duration),
        metavar="TIME",
        help="unmeasured load before each repetition (default: 1s; quick: 0.1s)",
    )
    add(
        "--repetitions",
        type=values.checked(values.positive),
        metavar="NUM",
        help="number of repetitions (default: 3; quick: 2 for the experiment)",
    )
    add(
        "--workers",
        type=values.checked(values.positive),
        default=3,
        metavar="NUM",
        help="worker processes that run the clients (default: %(default)s)",
    )
    add(
        "--seed",
        type=values.checked(int),
        default=1,
        metavar="NUM",
        help="random seed for the order of the experiment's runs (default: %(default)s)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory; an interrupted run of the same study in it is resumed "
        "(default: bench-results/<time>)",
    )
    add_mix_systems(study)
    add("-q", "--quiet", action="store_true", help="do not show progress")
