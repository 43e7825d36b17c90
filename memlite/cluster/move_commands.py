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
        help="add nodes to a cluster, and move their keys to them",
        description="Add nodes to a cluster whose members are kept in a store, and move the keys "
        "that they take over, while clients read and write through proxies.",
    )
    _add_nodes(
        add,
        "a spare's name, or [NAME=]HOST:PORT of a server that does not register itself",
    )
    drain = commands.add_parser(
        "drain",
        help="move all keys of nodes to the other nodes",
        description="Move all keys of nodes to the other members, while clients read and write "
        "through proxies. The nodes remain as spares.",
    )
    _add_nodes(drain, "the name or address of a member")
    remove = commands.add_parser(
        "remove",
        help="drain nodes, and remove them from the cluster",
        description="Move all keys of nodes to the other members, and remove the nodes from the "
        "cluster. A node that registers itself remains a spare until it stops.",
    )
    _add_nodes(remove, "the name or address of a node")
    replicas = commands.add_parser(
        "replicas",
        help="store each item on several nodes",
        description="Store each item of a cluster whose members are kept in a store on several "
        "nodes, so that it survives the loss of one. The number can be raised later, but never "
        "lowered. From then on, nodes that join are spares until they are added, and clients must "
        "use proxies: a client that connects to nodes directly changes a single copy.",
    )
    replicas.add_argument(
        "replicas", type=_replicas, metavar="NUM", help="number of nodes that store each item"
    )
    replicas.add_argument("--cluster", required=True, dest="url", metavar="URL", help=_URL)
    _add_moving(replicas)
    replicas.set_defaults(action="replicas", run=_run)
    resume = commands.add_parser(
        "resume",
        help="resume a move of keys that was interrupted",
        description="Resume a move of keys that was interrupted.",
    )
    _add_url(resume)
    _add_moving(resume)
    resume.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="a node that keys move to, and that has failed permanently: the other nodes get its "
        "keys; may be repeated",
    )
    resume.set_defaults(action="resume", run=_run)
    cancel = commands.add_parser(
        "cancel",
        help="cancel a move of keys",
        description="Cancel a move of keys. Once items have moved, this is possible only if the "
        "nodes being added have failed permanently, with the items that they held.",
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
        help="show how many items and bytes would move, and change nothing",
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
        help="a node that has failed permanently and has no lease; may be repeated",
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
