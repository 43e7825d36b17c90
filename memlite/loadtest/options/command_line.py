"""The command line as a whole: its commands, in the order of the help."""

import argparse

from memlite.loadtest.options.clusters import add_cluster
from memlite.loadtest.options.comparison import add_comparison
from memlite.loadtest.options.factorial import add_factorial
from memlite.loadtest.options.measurement import add_measuring
from memlite.loadtest.options.models import add_models
from memlite.loadtest.options.multigets import add_multigets
from memlite.loadtest.options.parser import NAME, Parser, add_command
from memlite.loadtest.options.plan import add_plan
from memlite.loadtest.options.report import add_report
from memlite.loadtest.options.study import add_study

__all__ = ["command_line"]

_EXAMPLES = """\
examples:
  memlite bench compare
  memlite bench compare --backends memory,file,gcs --clients 10:100:10
  memlite bench compare --backends memory --target 127.0.0.1:11211=memcached
  memlite bench compare --cluster 1,2,4 --clients 5,20,100
  memlite bench run 127.0.0.1:11211 --workload ycsb-a --clients 50 --duration 10
  memlite bench run 127.0.0.1:11211 --rate 20000 --arrivals poisson
  memlite bench factorial --factor clients=2,16 --factor value-size=100,10k
  memlite bench study --quick --out study
  memlite bench study --hosts 10.0.0.2,10.0.0.3,10.0.0.4
  memlite bench plan bench-results/today --rate 100k --p99 2ms
  memlite bench models results.json
  memlite bench multigets --sizes 1:9,16,32
  memlite bench report old/results.json new/results.json
"""


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(
        prog=NAME,
        description="Load-tests servers that speak memcached's protocol with concurrent\n"
        "clients, and reports throughput and latency.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    compare = add_command(commands, "compare", "start a server for each backend and compare them")
    add_comparison(compare)
    add_cluster(compare)
    add_measuring(compare, clients="10:100:10")
    run = add_command(commands, "run", "measure one running server")
    run.add_argument(
        "address",
        metavar="HOST:PORT[=NAME]",
        help="address of the server, or path of its UNIX socket",
    )
    add_measuring(run, clients="50")
    add_factorial(commands)
    add_study(commands)
    add_report(commands)
    add_plan(commands)
    add_models(commands)
    add_multigets(commands)
    add_command(
        commands,
        "launcher",
        "start servers and proxies for a load tester on another machine, which runs this command "
        "over ssh (--hosts) and controls it through standard input",
    )
    workload = add_command(
        commands, "workload", "print a preset, as a starting point for your own workload"
    )
    workload.add_argument(
        "name", nargs="?", metavar="NAME", help="the preset (default: list all presets)"
    )
    return parser
