"""The ``memlite proxy`` command."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memlite.cli.serve import Serving, serve
from memlite.cluster.node_access import node_access
from memlite.cluster.topology import Topology
from memlite.config import Config
from memlite.proxy.options import command_line, read_options
from memlite.server.connections.listeners import Listener

if TYPE_CHECKING:
    from memlite.proxy.node import Access
    from memlite.proxy.trace import Sample, Tracing
    from memlite.server.connections.tls import Tls

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the proxy until a signal stops it.

    Args:
        arguments: the command line after the subcommand's name.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: an argument is wrong.
        StartError: the proxy cannot start.
    """
    parser = command_line()
    try:
        found = read_options(parser, arguments)
    except SystemExit:  # after printing --help
        return 0
    options, topology = found.parsed, found.topology
    if topology is None:
        what = f"a proxy for the cluster in {options.cluster}"
    else:
        count = len(topology.nodes)
        what = f"a proxy for {count} node{'s' if count > 1 else ''}"
    assemble = partial(
        _proxy,
        found.settings.config,
        topology,
        _access(options),
        options.topology,
        options.cluster,
        options.strict,
        options.unread_limit,
        options.in_flight,
        found.tracing,
        found.spans,
        options.promote_hot_keys,
    )
    return serve(found.settings, assemble, what)


def _proxy(
    config: Config,
    topology: Topology | None,
    access: "Access",
    file: Path | None,
    cluster: str | None,
    strict: bool,
    unread_limit: int,
    in_flight: int | None,
    tracing: "Tracing | None",
    spans: "Sample | None",
    promote: float | None,
    listeners: Sequence[Listener],
    tls: "Tls | None",
) -> Serving:
    from memlite.cluster.membership.url import store_of
    from memlite.proxy.proxy import Proxy

    store = None if cluster is None else store_of(cluster, "--cluster")
    return Proxy(
        config,
        topology,
        listeners,
        access=access,
        strict=strict,
        unread_limit=unread_limit,
        in_flight=in_flight,
        tracing=tracing,
        spans=spans,
        file=file,
        store=store,
        promote=promote,
        tls=tls,
    )


def _access(options: argparse.Namespace) -> "Access":
    """Return the access to the nodes.

    Raises:
        ConfigError: an option is wrong, or a file cannot be used.
    """
    from memlite.cluster.membership.lease import Lease
    from memlite.proxy.node import Access

    reached = node_access("proxy", options)
    # A topology that is not from a store is valid until it is replaced.
    lease = Lease.unlimited() if options.cluster is None else Lease()
    return Access(options.deadline, reached.tls, reached.login, lease)
