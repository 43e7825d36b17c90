"""The ``memlite cluster`` command."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from memlite.client.address import PORT
from memlite.cluster import route as routes
from memlite.cluster.options import ClusterParser, add_topology_options, topology_of

__all__ = ["command_line", "main"]

_NODES: Final = 3
_MOST_NODES: Final = 100


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: the command line after the subcommand's name.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: an argument is wrong.
        StartError: the cluster to be tried cannot start.
    """
    try:
        options = command_line().parse_args(arguments)
    except SystemExit:  # after printing --help
        return 0
    options.run(options)
    return 0


def _route(options: argparse.Namespace) -> None:
    topology = topology_of(options.parser, options)
    keys = [routes.check_key(os.fsencode(key)) for key in options.keys]
    router = topology.router()
    show = routes.as_json if options.json else routes.as_text
    sys.stdout.write("".join(show(topology, key, router.place(key)) for key in keys))
    sys.stdout.flush()


def _show(options: argparse.Namespace) -> None:
    from memlite.cluster.membership.reading import read_cluster  # which needs asyncio
    from memlite.cluster.show import as_json, as_text

    document = read_cluster(options.url, "cluster show")
    sys.stdout.write((as_json if options.json else as_text)(document))
    sys.stdout.flush()


def _try(options: argparse.Namespace) -> None:
    from memlite.cluster.trial import run_trial  # starts processes, which `route` need not know

    run_trial(options.nodes, options.port, options.arguments)


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
    route.set_defaults(parser=route, run=_route)
    show = commands.add_parser(
        "show",
        help="list the nodes that have joined a cluster",
        description="List the nodes that have joined a cluster with --join.",
    )
    show.add_argument(
        "url", metavar="URL", help="gs://bucket/prefix or memcached://host:port/prefix"
    )
    show.add_argument("--json", action="store_true", help="show a JSON object")
    show.set_defaults(run=_show)
    trial = commands.add_parser(
        "try",
        help="run several nodes and a proxy on this machine",
        description="Run several nodes on this machine, and a proxy in front of them, until "
        "Ctrl+C. They listen on 127.0.0.1.",
    )
    trial.add_argument(
        "--nodes",
        type=_number(1, _MOST_NODES),
        default=_NODES,
        metavar="NUM",
        help="how many nodes, on the ports after the proxy's (default: %(default)s)",
    )
    trial.add_argument(
        "-p",
        "--port",
        type=_number(1, 65535 - _MOST_NODES),
        default=PORT,
        metavar="NUM",
        help="the proxy's port (default: %(default)s)",
    )
    trial.add_argument(
        "arguments", nargs="*", metavar="OPTION", help="options of the nodes, after --"
    )
    trial.set_defaults(run=_try)
    return parser


def _number(least: int, most: int) -> Callable[[str], int]:
    """Return a function that reads a whole number from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} to {most}, not {text!r}"
            )
        return int(text)

    return read
