"""The ``memlite proxy`` command."""

import argparse
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from memlite.cli.serve import Serving, serve
from memlite.cluster.options import ClusterParser, add_topology_options, topology_of
from memlite.cluster.topology import Topology
from memlite.config import Config, Settings, load
from memlite.config.options import OPTIONS_BY_NAME
from memlite.core.errors import ConfigError
from memlite.server.connections.listeners import Listener

if TYPE_CHECKING:
    from memlite.server.connections.tls import Tls

__all__ = ["main"]

_DEADLINE: Final = 1.0
_OF_CONNECTIONS: Final = (
    "port", "listen", "unix-socket", "unix-mask", "conn-limit", "listen-backlog",
    "max-reqs-per-event", "max-item-size", "verbose", "log-level", "log-format", "daemon",
    "pidfile", "user", "loop",
)  # fmt: skip
"""The options of the server that a proxy has as well."""


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
    parser = _parser()
    try:
        options, others = parser.parse_known_args(arguments)
    except SystemExit:  # after printing --help
        return 0
    topology = topology_of(parser, options)
    settings = _settings(others)
    count = len(topology.nodes)
    what = f"a proxy for {count} node{'s' if count > 1 else ''}"
    return serve(settings, partial(_proxy, settings.config, topology, options.deadline), what)


def _proxy(
    config: Config,
    topology: Topology,
    deadline: float,
    listeners: Sequence[Listener],
    tls: "Tls | None",
) -> Serving:
    from memlite.proxy.proxy import Proxy

    return Proxy(config, topology, listeners, deadline=deadline)


def _settings(arguments: Sequence[str]) -> Settings:
    """Return the settings of the server that are the proxy's as well.

    Raises:
        ConfigError: one is wrong, or none of these.
    """
    settings = load(arguments, {})
    if settings.actions:
        raise ConfigError("proxy: --help lists the options, and memlite --help those of a server")
    for name, source in settings.sources.items():
        if source != "default" and name not in _OF_CONNECTIONS:
            raise ConfigError(f"proxy: {source} is for servers (memlite proxy --help)")
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = ClusterParser(
        prog="memlite proxy",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Forward the commands of clients to the nodes that have their keys.",
        epilog=_epilog(),
    )
    add_topology_options(parser)
    parser.add_argument(
        "--deadline",
        type=_seconds,
        default=_DEADLINE,
        metavar="SECONDS",
        help="within which a node must answer, or it is taken for down (default: %(default)g)",
    )
    return parser


def _epilog() -> str:
    lines = ["options as of a server:"]
    for name in _OF_CONNECTIONS:
        option = OPTIONS_BY_NAME[name]
        flags = f"-{option.short}, --{name}" if option.short else f"--{name}"
        lines.append(f"  {flags} {option.metavar or ''}".rstrip())
        lines += textwrap.wrap(option.help, 76, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0.01 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"must be seconds from 0.01 to 3600, not {text!r}")
    return seconds
