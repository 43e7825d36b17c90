"""The ``memlite proxy`` command."""

import argparse
import os
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memlite.cli.serve import Serving, serve
from memlite.client.credentials import read_login, read_tls
from memlite.client.tls import TlsSettings
from memlite.cluster.options import ClusterParser, add_topology_options, refuse_hash, topology_of
from memlite.cluster.topology import ON_RETURN, Topology
from memlite.config import Config, Settings, load
from memlite.config.options import OPTIONS_BY_NAME
from memlite.core.errors import ConfigError
from memlite.server.connections.listeners import Listener

if TYPE_CHECKING:
    from memlite.proxy.node import Access
    from memlite.server.connections.tls import Tls

__all__ = ["OPTIONS_OF_A_SERVER", "command_line", "main"]

PASSWORD_VARIABLE: Final = "MEMLITE_NODE_PASSWORD"  # noqa: S105 - its name

_DEADLINE: Final = 1.0
OPTIONS_OF_A_SERVER: Final = (
    "port", "listen", "unix-socket", "unix-mask", "conn-limit", "listen-backlog",
    "max-reqs-per-event", "max-item-size", "verbose", "log-level", "log-format", "daemon",
    "pidfile", "user", "loop", "enable-ssl", "extended", "auth-file", "auth-timeout",
)  # fmt: skip
"""The options of the server that a proxy has as well."""

_HELP: Final = {"extended": "idle_timeout=SECONDS, and ssl_ keys as of a server (memlite --help)"}


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
        options, others = parser.parse_known_args(arguments)
    except SystemExit:  # after printing --help
        return 0
    if options.cluster is None:
        topology = _topology(parser, options)
        count = len(topology.nodes)
        what = f"a proxy for {count} node{'s' if count > 1 else ''}"
    else:
        refuse_hash(parser, options)
        if options.on_return is not None:
            parser.error("--on-return is for --nodes; members of a cluster empty themselves")
        topology = None
        what = f"a proxy for the cluster in {options.cluster}"
    settings = _settings(others)
    access = _access(options)
    assemble = partial(
        _proxy,
        settings.config,
        topology,
        access,
        options.topology,
        options.cluster,
        options.strict,
    )
    return serve(settings, assemble, what)


def _proxy(
    config: Config,
    topology: Topology | None,
    access: "Access",
    file: Path | None,
    cluster: str | None,
    strict: bool,
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
        file=file,
        store=store,
        tls=tls,
    )


def _topology(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Topology:
    """Return the topology that the options name.

    Raises:
        ConfigError: something about it is wrong.
    """
    topology = topology_of(parser, options)
    if options.on_return is None:
        return topology
    if options.topology is not None:
        parser.error("--on-return is for --nodes; a topology file has on_return = ...")
    return replace(topology, on_return=options.on_return)


def _access(options: argparse.Namespace) -> "Access":
    """Return how nodes are reached.

    Raises:
        ConfigError: an option is wrong, or a file cannot be used.
    """
    from memlite.proxy.node import Access

    prefix = "proxy: --node-"
    login = read_login(
        prefix, options.node_user, options.node_password_file, PASSWORD_VARIABLE, os.environ
    )
    files = (options.node_tls_ca_cert, options.node_tls_cert, options.node_tls_key)
    settings = TlsSettings(*files, verify=not options.node_tls_skip_verify)
    tls = read_tls(prefix, options.node_tls, settings)
    return Access(options.deadline, None if tls is None else tls.context(), login)


def _settings(arguments: Sequence[str]) -> Settings:
    """Return the settings of the server that are the proxy's as well.

    Raises:
        ConfigError: one is wrong, or none of these.
    """
    try:
        settings = load(arguments, {})
    except ConfigError as error:
        text = str(error).replace("memlite -h", "memlite proxy --help")
        raise ConfigError(f"proxy: {text}") from None
    if settings.actions:
        raise ConfigError(f"proxy: {arguments[0]} is for servers (memlite proxy --help)")
    for name, source in settings.sources.items():
        if source != "default" and name not in OPTIONS_OF_A_SERVER:
            raise ConfigError(f"proxy: {source} is for servers (memlite proxy --help)")
    return settings


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the options that are not those of a server."""
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
    parser.add_argument(
        "--on-return",
        choices=ON_RETURN,
        help="what to do with a node that may have missed changes, before it is used again;"
        " with --nodes (default: flush)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail a get of several keys if a node fails (default: its keys are misses)",
    )
    _add_access(parser)
    return parser


def _add_access(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("passwords and TLS of the nodes").add_argument
    add("--node-user", metavar="NAME", help="user name (memcached -Y)")
    add(
        "--node-password-file",
        type=Path,
        metavar="FILE",
        help=f"file whose first line is the password (default: ${PASSWORD_VARIABLE})",
    )
    add("--node-tls", action="store_true", help="connect with TLS")
    add(
        "--node-tls-ca-cert",
        default="",
        metavar="FILE",
        help="PEM file of trusted CA certificates (default: the system's)",
    )
    add("--node-tls-cert", default="", metavar="FILE", help="PEM file with the proxy's certificate")
    add(
        "--node-tls-key",
        default="",
        metavar="FILE",
        help="PEM file with its private key (default: in --node-tls-cert)",
    )
    add("--node-tls-skip-verify", action="store_true", help="do not verify nodes' certificates")


def _epilog() -> str:
    lines = ["options as of a server:"]
    for name in OPTIONS_OF_A_SERVER:
        option = OPTIONS_BY_NAME[name]
        flags = f"-{option.short}, --{name}" if option.short else f"--{name}"
        lines.append(f"  {flags} {option.metavar or ''}".rstrip())
        text = _HELP.get(name, option.help)
        lines += textwrap.wrap(text, 76, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0.01 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"must be seconds from 0.01 to 3600, not {text!r}")
    return seconds
