"""Options of ``bench plan``."""

from pathlib import Path

from memlite.loadtest import option_values as values
from memlite.loadtest.options.output import add_prices
from memlite.loadtest.options.parser import Commands, add_command

__all__ = ["add_plan"]


def add_plan(commands: Commands) -> None:
    """Add the command."""
    plan = add_command(
        commands, "plan", "estimate how many servers and machines a load needs, from saved results"
    )
    add = plan.add_argument
    add(
        "results",
        type=Path,
        metavar="RESULTS",
        help="results.json or its directory, or the directory of a study",
    )
    add(
        "--workload",
        default="mixed",
        metavar="NAME",
        help="workload of a study to plan for (default: %(default)s)",
    )
    add(
        "--rate",
        type=values.checked(values.positive),
        required=True,
        metavar="NUM",
        help="operations per second, such as 100k",
    )
    add(
        "--p99",
        type=values.checked(values.positive_duration),
        required=True,
        metavar="TIME",
        help="longest acceptable 99th percentile of response times, such as 2ms",
    )
    add(
        "--keys",
        type=values.checked(values.positive),
        metavar="NUM",
        help="number of items, to estimate the memory that they need",
    )
    add(
        "--value-size",
        type=values.checked(values.size),
        metavar="SIZE",
        help="value size in bytes, such as 1k (default: as measured)",
    )
    add(
        "--hit-ratio",
        type=values.checked(values.share),
        metavar="SHARE",
        help="share of reads that find an item: 0.9 or 90%% (default: as measured)",
    )
    add(
        "--machine",
        action="append",
        default=[],
        metavar="NAME",
        help="consider only this machine; may be repeated (default: all rented machines in the "
        "table of machines whose cores and price are known)",
    )
    add("--json", action="store_true", help="print JSON")
    add_prices(plan)
