"""The commands that change the members of a cluster and move keys."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from memlite.cluster.node_access import add_node_access, node_access

if TYPE_CHECKING:
    from memlite.cluster.options import ClusterParser

__all__ = ["add_move_commands"]

_RATE: Final = 5_000
_MAX_REPLICAS: Final = 100
_URL: Final = "gs://bucket/prefix, valkey://host:port/prefix or memcached://host:port/prefix"


def add_move_commands(commands: "argparse._SubParsersAction[ClusterParser]") -> None:
    """Add ``add``, ``drain``, ``remove``, ``replicas``, ``resume`` and ``cancel``."""
    add = commands.add_parser(
        "add",
        help="bring nodes into a cluster, and move their keys to them",
        description="Bring nodes into a cluster whose members are kept in a store, and move the "
        "keys that they take over while clients read and write through proxies.",
    )
    _add_nodes(
        add,
        "a spare's name, or [NAME=]HOST:PORT of a server that does not register itself",
    )
    drain = commands.add_parser(
        "drain",
        help="move all keys of nodes to the others",
        description="Move all keys of nodes to the other members, while clients read and write "
        "through proxies. The nodes stay as spares.",
    )
    _add_nodes(drain, "the name or address of a member")
    remove = commands.add_parser(
        "remove",
        help="drain nodes and forget them",
        description="Move all keys of nodes to the other members, and forget the nodes. One that "
        "registers itself is a spare until it stops.",
    )
    _add_nodes(remove, "the name or address of a node")
    replicas = commands.add_parser(
        "replicas",
        help="have items on several nodes",
        description="Have each item of a cluster whose members are kept in a store on several "
        "nodes, so that they survive the loss of one. The number can be raised later, but never "
        "lowered. From then on, nodes that join are spares until they are added, and clients must "
        "go through proxies: one that goes to nodes directly changes a single copy.",
    )
    replicas.add_argument(
        "replicas", type=_replicas, metavar="NUM", help="on how many nodes an item is"
    )
    replicas.add_argument("--cluster", required=True, dest="url", metavar="URL", help=_URL)
    _add_moving(replicas)
    replicas.set_defaults(action="replicas", run=_run)
    resume = commands.add_parser(
        "resume",
        help="go on with a move of keys that was interrupted",
        description="Go on with a move of keys that was interrupted.",
    )
    _add_url(resume)
    _add_moving(resume)
    resume.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="a node that keys move to, and that is gone for good: the others get its keys; may be "
        "repeated",
    )
    resume.set_defaults(action="resume", run=_run)
    cancel = commands.add_parser(
        "cancel",
        help="give a move of keys up",
        description="Give a move of keys up. Once items have moved this is only possible if the "
        "nodes that were to be added are gone, with the items that were there.",
    )
    _add_url(cancel)
    _add_moving(cancel)
    cancel.set_defaults(action="cancel", run=_run)


def _add_nodes(parser: "ClusterParser", what: str) -> None:
    parser.add_argument("nodes", nargs="+", metavar="NODE", help=what)
    parser.add_argument("--cluster", required=True, dest="url", metavar="URL", help=_URL)
    _add_moving(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say how many items and bytes would move, and change nothing",
    )
    parser.set_defaults(action=parser.prog.rpartition(" ")[2], run=_run)


def _add_url(parser: "ClusterParser") -> None:
    parser.add_argument("url", metavar="URL", help=_URL)


def _add_moving(parser: "ClusterParser") -> None:
    parser.add_argument(
        "--rate",
        type=_rate,
        default=_RATE,
        metavar="NUM",
        help="items to move per second, 0 for no limit (default: %(default)s)",
    )
    parser.add_argument(
        "--lost",
        action="append",
        default=[],
        metavar="NAME",
        help="a node that is gone for good and has no lease that could run out; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="show the result as a JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    add_node_access(parser)


def _rate(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(text)


def _replicas(text: str) -> int:
    number = _rate(text)
    if not 1 <= number <= _MAX_REPLICAS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {_MAX_REPLICAS}, not {text!r}")
    return number


def _run(options: argparse.Namespace) -> None:
    from memlite.cluster.mover.command import Request, run  # needs asyncio

    nodes: Sequence[str] = getattr(options, "nodes", ())
    run(
        Request(
            options.action,
            options.url,
            node_access(f"cluster {options.action}", options),
            tuple(nodes),
            options.rate,
            tuple(options.lost),
            tuple(getattr(options, "without", ())),
            getattr(options, "replicas", 1),
            getattr(options, "dry_run", False),
            options.json,
            options.quiet,
        )
    )
