"""The ``memlite cluster`` command."""

import argparse
import os
import sys
from collections.abc import Sequence

from memlite.cluster.options import ClusterParser, add_topology_options, topology_of
from memlite.cluster.route import as_json, as_text, check_key

__all__ = ["command_line", "main"]


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: the command line after the subcommand's name.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: an argument is wrong.
    """
    try:
        options = command_line().parse_args(arguments)
    except SystemExit:  # after printing --help
        return 0
    topology = topology_of(options.parser, options)
    keys = [check_key(os.fsencode(key)) for key in options.keys]
    router = topology.router()
    show = as_json if options.json else as_text
    sys.stdout.write("".join(show(topology, key, router.place(key)) for key in keys))
    sys.stdout.flush()
    return 0


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = ClusterParser(
        prog="memlite cluster", description="Commands about clusters of several nodes."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    route = commands.add_parser(
        "route",
        help="say where keys live, and why",
        description="Say on which node keys live, and why. Nothing is sent to the nodes.",
    )
    route.add_argument("keys", nargs="+", metavar="KEY")
    add_topology_options(route)
    route.add_argument("--json", action="store_true", help="show a JSON object for each key")
    route.set_defaults(parser=route)
    return parser
