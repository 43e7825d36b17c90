"""All options of a measurement, most of which are in separate modules."""

import argparse

from memlite.loadtest import option_values as values
from memlite.loadtest.options.clients import add_clients
from memlite.loadtest.options.connection import add_login, add_tls
from memlite.loadtest.options.output import add_output
from memlite.loadtest.options.saturation import add_saturation
from memlite.loadtest.options.workload import add_workload

__all__ = ["add_measuring"]


def add_measuring(parser: argparse.ArgumentParser, clients: str) -> None:
    """Add the options; `clients` is the default of ``--clients``."""
    parser.set_defaults(usual_clients=clients)
    add = parser.add_argument
    add(
        "--clients",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="concurrent clients: 50, or 1,10,100, or first:last:step "
        f"(default: {clients}; 1 with --find-knee)",
    )
    add(
        "--workload",
        default="mixed",
        metavar="NAME|FILE",
        help="preset (see 'memlite bench workload') or TOML file (default: %(default)s)",
    )
    add_output(parser)
    add_workload(parser)
    add_login(parser)
    add_clients(parser)
    add_tls(parser)
    add_saturation(parser)
