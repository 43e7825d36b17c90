"""The ``memlite cluster`` command."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from memlite.client.address import PORT
from memlite.cluster import route as routes
from memlite.cluster.move_commands import add_move_commands
from memlite.cluster.node_access import add_node_access, node_access
from memlite.cluster.options import ClusterParser, add_topology_options, topology_of
from memlite.core.errors import ConfigError, StartError

__all__ = ["command_line", "main"]

_NODES: Final = 3
_MAX_NODES: Final = 100


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
    from memlite.cluster.mover.reading import read_with_mover  # needs asyncio
    from memlite.cluster.show import as_json, as_text

    document, mover = read_with_mover(options.url, "cluster show")
    sys.stdout.write((as_json if options.json else as_text)(document, mover))
    sys.stdout.flush()


def _promote(options: argparse.Namespace) -> None:
    from memlite.cluster.membership.promoting import demote_keys, promote_keys  # need asyncio

    change = promote_keys if options.promotes else demote_keys
    try:
        change(options.cluster, "--cluster", [os.fsencode(key) for key in options.keys])
    except ConfigError as error:
        raise ConfigError(f"{options.parser.prog.removeprefix('memlite ')}: {error}") from None


def _plan(options: argparse.Namespace) -> None:
    import asyncio

    from memlite.cluster import plan as plans
    from memlite.cluster.dump import survey_all  # needs asyncio, too

    if not options.add and not options.remove:
        options.parser.error("--add or --remove is required")
    before = topology_of(options.parser, options)
    if before.move is not None:
        raise StartError("cluster plan: a move of keys is in progress; wait until it has finished")
    try:
        after = plans.changed(
            before, options.add, options.remove, by_name=options.cluster is not None
        )
    except ConfigError as error:
        raise ConfigError(f"cluster plan: {error}") from None
    counted = plans.surveys(before, after)
    asyncio.run(survey_all(before.nodes, counted, node_access("cluster plan", options)))
    show = plans.as_json if options.json else plans.as_text
    sys.stdout.write(show(plans.plan_of(before, after, counted)))
    sys.stdout.flush()


def _try(options: argparse.Namespace) -> None:
    from memlite.cluster.trial import run_trial  # starts processes; `route` does not need it

    run_trial(options.nodes, options.port, options.arguments)


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = ClusterParser(
        prog="memlite cluster", description="Inspect and manage clusters of several nodes."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    route = commands.add_parser(
        "route",
        help="show which node stores each key, and why",
        description="Show which node stores each key, and why. Nothing is sent to the nodes.",
    )
    route.add_argument("keys", nargs="+", metavar="KEY")
    add_topology_options(route)
    route.add_argument("--json", action="store_true", help="show a JSON object for each key")
    route.set_defaults(parser=route, run=_route)
    _add_plan(commands)
    add_move_commands(commands)
    show = commands.add_parser(
        "show",
        help="list the nodes that have joined a cluster",
        description="List the nodes that have joined a cluster with --join.",
    )
    show.add_argument(
        "url",
        metavar="URL",
        help="gs://bucket/prefix, valkey://host:port/prefix or memcached://host:port/prefix",
    )
    show.add_argument("--json", action="store_true", help="show a JSON object")
    show.set_defaults(run=_show)
    _add_promote(commands)
    trial = commands.add_parser(
        "try",
        help="run several nodes and a proxy on this machine",
        description="Run several nodes on this machine, and a proxy in front of them, until "
        "Ctrl+C. They listen on 127.0.0.1.",
    )
    trial.add_argument(
        "--nodes",
        type=_number(1, _MAX_NODES),
        default=_NODES,
        metavar="NUM",
        help="number of nodes, on the ports after the proxy's (default: %(default)s)",
    )
    trial.add_argument(
        "-p",
        "--port",
        type=_number(1, 65535 - _MAX_NODES),
        default=PORT,
        metavar="NUM",
        help="the proxy's port (default: %(default)s)",
    )
    trial.add_argument(
        "arguments", nargs="*", metavar="OPTION", help="options for the nodes, after --"
    )
    trial.set_defaults(run=_try)
    return parser


def _add_promote(commands: "argparse._SubParsersAction[ClusterParser]") -> None:
    for name, text in (
        ("promote", "keep copies of hot keys on all nodes of a cluster"),
        ("demote", "stop keeping copies of hot keys on all nodes"),
    ):
        parser = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        parser.add_argument("keys", nargs="+", metavar="KEY")
        parser.add_argument(
            "--cluster",
            required=True,
            metavar="URL",
            help="where the nodes register with --join: gs://bucket/prefix, "
            "valkey://host:port/prefix (valkeys: with TLS) or memcached://host:port/prefix "
            "(memcacheds)",
        )
        parser.set_defaults(parser=parser, run=_promote, promotes=name == "promote")


def _add_plan(commands: "argparse._SubParsersAction[ClusterParser]") -> None:
    plan = commands.add_parser(
        "plan",
        help="show how many items would move if nodes were added or removed",
        description="Show how many items and bytes would move if nodes were added or removed. "
        "The nodes are asked for their items; nothing is changed.",
    )
    add_topology_options(plan)
    plan.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="[NAME=]HOST:PORT",
        help="a node to add; may be repeated",
    )
    plan.add_argument(
        "--remove",
        action="append",
        default=[],
        metavar="NODE",
        help="the name or address of a node to remove; may be repeated",
    )
    plan.add_argument("--json", action="store_true", help="show a JSON object")
    add_node_access(plan)
    plan.set_defaults(parser=plan, run=_plan)


def _number(least: int, most: int) -> Callable[[str], int]:
    """Return a function that reads a whole number from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} to {most}, not {text!r}"
            )
        return int(text)

    return read
