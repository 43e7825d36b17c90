"""Options that name the nodes, for every command that needs them."""

import argparse
import os
from pathlib import Path
from typing import NoReturn

from memlite.cluster.hot_keys import parse_hot_keys
from memlite.cluster.topology import (
    DEFAULT_HASH,
    MULTI_GETS,
    READ,
    WRITE,
    Topology,
    parse_nodes,
    read_topology,
)
from memlite.core.errors import ConfigError, StartError
from memlite.routing import HASHES

__all__ = ["ClusterParser", "add_topology_options", "refuse_hash", "topology_of"]


class ClusterParser(argparse.ArgumentParser):
    """A parser whose errors are ConfigErrors."""

    def error(self, message: str) -> NoReturn:
        """Raise a ConfigError."""
        name = self.prog.removeprefix("memlite ")
        raise ConfigError(f"{name}: {message} ({self.prog} --help lists the options)")


def add_topology_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--nodes``, ``--topology``, ``--cluster``, ``--hash`` and ``--hash-tag``."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--nodes",
        metavar="HOST:PORT,...",
        help="the nodes' addresses (default port: 11211)",
    )
    where.add_argument(
        "--topology", type=Path, metavar="FILE", help="a TOML file that lists the nodes"
    )
    where.add_argument(
        "--cluster",
        metavar="URL",
        help="where the nodes register with --join: gs://bucket/prefix, "
        "valkey://host:port/prefix (valkeys: with TLS) or memcached://host:port/prefix "
        "(memcacheds)",
    )
    parser.add_argument(
        "--hash",
        choices=tuple(HASHES),
        help=f"with --nodes: how keys are distributed (default: {DEFAULT_HASH})",
    )
    parser.add_argument(
        "--hash-tag",
        metavar="{}",
        help="with --nodes: two characters that enclose the hashed part of a key",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="with --nodes: number of nodes that store each item (default: 1)",
    )
    parser.add_argument(
        "--write",
        choices=WRITE,
        help="with --replicas: which nodes must confirm a change before the reply (default: all)",
    )
    parser.add_argument(
        "--read",
        choices=READ,
        help="with --replicas: which nodes answer reads (default: any)",
    )
    parser.add_argument(
        "--multi-gets",
        choices=MULTI_GETS,
        help="if --replicas is the number of nodes: whether a get of several keys is split, or"
        " sent to one node as a whole (default: sharded)",
    )
    parser.add_argument(
        "--hot-key",
        action="append",
        metavar="KEY",
        help="with --nodes: a key whose reads are spread over all nodes; may be repeated",
    )


def topology_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Topology:
    """Return the topology given by the options; with ``--cluster``, the present one.

    Raises:
        ConfigError: it is invalid.
        StartError: a cluster's store cannot be read, or no node has joined it.
    """
    if options.nodes is not None:
        hot_keys = _hot_keys(parser, options)
        try:
            return parse_nodes(
                options.nodes,
                options.hash or DEFAULT_HASH,
                options.hash_tag or "",
                replicas=1 if options.replicas is None else options.replicas,
                write=options.write or WRITE[0],
                read=options.read or READ[0],
                hot_keys=hot_keys,
                multi_gets=options.multi_gets or MULTI_GETS[0],
            )
        except ConfigError as error:
            raise ConfigError(f"{parser.prog.removeprefix('memlite ')}: --nodes: {error}") from None
    refuse_hash(parser, options)
    if options.topology is not None:
        return read_topology(options.topology)
    from memlite.cluster.membership.reading import read_cluster  # needs asyncio

    topology = read_cluster(options.cluster, "--cluster").topology()
    if topology is None:
        raise StartError(f"--cluster: {options.cluster} has no members")
    return topology


def _hot_keys(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[bytes]:
    keys = [os.fsencode(key) for key in options.hot_key or ()]
    try:
        parse_hot_keys(keys)
    except ConfigError as error:
        parser.error(f"--hot-key: {error}")
    return keys


def refuse_hash(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Reject options that apply only to ``--nodes``.

    Raises:
        ConfigError: there is such an option.
    """
    if options.hot_key is not None:
        use = "in a topology file, set hot_keys = [...]"
        if options.cluster is not None:
            use = f"use memlite cluster promote KEY --cluster {options.cluster}"
        parser.error(f"--hot-key applies only to --nodes; {use}")
    for name in ("hash", "hash_tag", "replicas", "write", "read", "multi_gets"):
        if getattr(options, name) is not None:
            flag = name.replace("_", "-")
            if options.cluster is not None and not name.startswith("hash"):
                use = "replicas of a cluster are set with memlite cluster replicas"
                parser.error(f"--{flag} applies only to --nodes; {use}")
            use = f"in a topology file, set {name} = ..."
            if options.cluster is not None:
                use = "it cannot be changed for a cluster"
            parser.error(f"--{flag} applies only to --nodes; {use}")
