"""Options of ``bench models``."""

from pathlib import Path

from memlite.loadtest import option_values as values
from memlite.loadtest.options.parser import Commands, add_command

__all__ = ["add_models"]


def add_models(commands: Commands) -> None:
    """Add the command."""
    models = add_command(
        commands,
        "models",
        "compare queueing models with saved results for several numbers of clients",
    )
    add = models.add_argument
    add("results", type=Path, metavar="RESULTS", help="results.json or its directory")
    add(
        "--trace",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="trace that a proxy with --trace and --in-flight wrote in the run; may be repeated",
    )
    add(
        "--servers",
        type=values.checked(values.positive),
        metavar="NUM",
        help="number of requests that a server processes at a time (default: its number of busy "
        "threads)",
    )
    add("--out", type=Path, metavar="DIR", help="output directory (default: that of the results)")
