"""The command line of ``memlite proxy``."""

import argparse
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memlite.cluster.hot_keys import HotKey
from memlite.cluster.membership.lease import MAX_DEADLINE
from memlite.cluster.node_access import add_node_access
from memlite.cluster.options import ClusterParser, add_topology_options, refuse_hash, topology_of
from memlite.cluster.topology import ON_RETURN, Topology, check_replicas
from memlite.config import Settings, load
from memlite.config.options import OPTIONS_BY_NAME
from memlite.config.parsers import MEGABYTE, size
from memlite.core.errors import ConfigError
from memlite.proxy.unread_replies import MAX_UNREAD
from memlite.server.otlp.sampling import traced_one_in

if TYPE_CHECKING:
    from memlite.proxy.trace import Sample, Tracing

__all__ = ["HELP", "OPTIONS_OF_A_SERVER", "ProxyOptions", "command_line", "read_options"]

_DEADLINE: Final = 1.0
_MAX_WORKERS: Final = 16_384
OPTIONS_OF_A_SERVER: Final = (
    "port", "listen", "unix-socket", "unix-mask", "conn-limit", "listen-backlog",
    "max-reqs-per-event", "max-item-size", "verbose", "log-level", "log-format", "slow-log",
    "daemon", "pidfile", "user", "loop", "enable-ssl", "extended", "auth-file", "auth-timeout",
    "protocol", "enable-sasl", "otlp", "http", "http-token-file", "http-hosts", "http-keys",
    "http-debug",
)  # fmt: skip
"""The server options that a proxy has as well."""

HELP: Final = {
    "extended": "idle_timeout=SECONDS, and the ssl_ keys of a server (memlite --help)",
    "otlp": "export metrics, and spans of the requests selected by --trace-sample, to an"
    " OpenTelemetry receiver, such as http://localhost:4318; env: the one in"
    " OTEL_EXPORTER_OTLP_ENDPOINT",
    "slow-log": "show requests that take at least this long, such as 10ms, 500us or 1.5s, in "
    '"stats slow" and "watch slow"; 0: none',
}
"""A proxy's help for the options whose meaning differs from a server's."""


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The options on a command line.

    Attributes:
        parsed: the options that a server does not have.
        topology: the nodes; None for a cluster, whose store lists them.
        settings: the options that a server has as well.
        tracing: what is traced to a file; None for nothing.
        spans: the requests whose spans are exported; None for none.
    """

    parsed: argparse.Namespace
    topology: Topology | None
    settings: Settings
    tracing: "Tracing | None"
    spans: "Sample | None"


def read_options(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> ProxyOptions:
    """Read and check a command line.

    Args:
        parser: from `command_line`.
        arguments: the arguments after the subcommand's name.

    Raises:
        ConfigError: it is invalid; the text is one line.
        SystemExit: it asked for help, which is printed.
    """
    parsed, others = parser.parse_known_args(arguments)
    topology = None
    if parsed.cluster is None:
        topology = _topology(parser, parsed)
        if parsed.promote_hot_keys is not None:
            _check_hot_keys(topology)
    else:
        refuse_hash(parser, parsed)
        if parsed.on_return is not None:
            parser.error("--on-return applies only to --nodes; nodes of a cluster flush themselves")
        if parsed.deadline > MAX_DEADLINE:
            parser.error(
                f"--deadline {parsed.deadline:g} is too long with --cluster: at most"
                f" {MAX_DEADLINE:g} seconds, as moves of keys wait for three deadlines"
            )
    settings = _settings(others)
    exports = settings.config.otlp is not None
    sample = _sample(parser, parsed, exports=exports)
    tracing = None
    if parsed.trace is not None and sample is not None:
        from memlite.proxy.trace import Tracing

        tracing = Tracing(parsed.trace, sample, names=parsed.trace_keys)
    return ProxyOptions(parsed, topology, settings, tracing, sample if exports else None)


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the options that a server does not have."""
    parser = ClusterParser(
        prog="memlite proxy",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Forward the commands of clients to the nodes that store their keys.",
        epilog=_epilog(),
    )
    add_topology_options(parser)
    parser.add_argument(
        "--deadline",
        type=_seconds,
        default=_DEADLINE,
        metavar="SECONDS",
        help="time within which a node must answer, or be considered down (default: %(default)g;"
        f" with --cluster at most {MAX_DEADLINE:g})",
    )
    parser.add_argument(
        "--on-return",
        choices=ON_RETURN,
        help="with --nodes: what to do with a node that may have missed changes, before it is used"
        " again (default: flush)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail a get of several keys if a node fails (default: its keys are misses)",
    )
    parser.add_argument(
        "--in-flight",
        type=_workers,
        metavar="N",
        help="send the nodes at most N requests at a time; further ones wait in one queue, and fail"
        " after --deadline (default: no limit)",
    )
    parser.add_argument(
        "--unread-limit",
        type=_size,
        default=MAX_UNREAD,
        metavar="SIZE",
        help="limit of unread replies of all clients together; above it, the clients with the most"
        " unread replies are disconnected (default: 256m)",
    )
    parser.add_argument(
        "--promote-hot-keys",
        type=_percent,
        metavar="PERCENT",
        help="spread the reads of a key over all nodes if it makes up this share of an average"
        " node's requests; without --cluster, this must be the only proxy",
    )
    _add_trace(parser)
    add_node_access(parser)
    return parser


def _add_trace(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("trace").add_argument
    add("--trace", type=Path, metavar="FILE", help="write a line of CSV for each request")
    add(
        "--trace-sample",
        metavar="WHICH",
        help="all, 1/100, failed, or slow:10ms for those that take at least 10 ms (default: all;"
        " without --trace those that OTEL_TRACES_SAMPLER selects, or none)",
    )
    add("--trace-keys", action="store_true", help="record the keys (default: only their number)")


def _topology(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Topology:
    """Return the topology that the options name.

    Raises:
        ConfigError: it is invalid.
    """
    topology = topology_of(parser, options)
    if options.on_return is None:
        return topology
    if options.topology is not None:
        parser.error("--on-return applies only to --nodes; in a topology file, set on_return")
    topology = replace(topology, on_return=options.on_return)
    check_replicas(topology)
    return topology


def _check_hot_keys(topology: Topology) -> None:
    """Check that keys can be promoted.

    Raises:
        ConfigError: another setting rules it out.
    """
    try:
        check_replicas(replace(topology, hot_keys=(HotKey(b"any"),)))
    except ConfigError as error:
        raise ConfigError(f"proxy: --promote-hot-keys: {error}") from None


def _settings(arguments: Sequence[str]) -> Settings:
    """Return the server settings that apply to the proxy as well.

    Raises:
        ConfigError: one is invalid, or does not apply to a proxy.
    """
    try:
        settings = load(arguments, {})
    except ConfigError as error:
        text = str(error).replace("memlite -h", "memlite proxy --help")
        raise ConfigError(f"proxy: {text}") from None
    if settings.actions:
        action = min(settings.actions)
        raise ConfigError(f"proxy: --{action} applies only to servers (memlite proxy --help)")
    if settings.config.udp_port:
        source = settings.sources["udp-port"]
        raise ConfigError(
            f"proxy: {source}: a proxy does not serve UDP; leave it out, or set it to 0"
        )
    for name, source in settings.sources.items():
        if name == "udp-port":
            continue  # it is 0, as set by start scripts of memcached
        if source != "default" and name not in OPTIONS_OF_A_SERVER:
            raise ConfigError(f"proxy: {source} applies only to servers (memlite proxy --help)")
    return settings


def _sample(
    parser: argparse.ArgumentParser, options: argparse.Namespace, *, exports: bool
) -> "Sample | None":
    """Return which requests are traced; None for none.

    Raises:
        ConfigError: the options make no sense.
    """
    from memlite.proxy.trace import Sample, parse_sample

    text = options.trace_sample
    if options.trace is None:
        if options.trace_keys:
            parser.error("--trace-keys requires --trace FILE")
        if text and not exports:
            parser.error("--trace-sample requires --trace FILE or --otlp URL")
        if not text:
            every = traced_one_in(None, os.environ) if exports else 0
            return Sample(every=every) if every else None
    try:
        return parse_sample(text or "all")
    except ConfigError as error:
        raise ConfigError(f"proxy: --trace-sample: {error}") from None


def _epilog() -> str:
    lines = ["options shared with the server:"]
    for name in OPTIONS_OF_A_SERVER:
        option = OPTIONS_BY_NAME[name]
        flags = f"-{option.short}, --{name}" if option.short else f"--{name}"
        lines.append(f"  {flags} {option.metavar or ''}".rstrip())
        text = HELP.get(name, option.help)
        lines += textwrap.wrap(text, 76, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0.01 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"must be from 0.01 to 3600 seconds, not {text!r}")
    return seconds


def _percent(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0
    if not 1 <= percent <= 10_000:
        raise argparse.ArgumentTypeError(f"must be a percentage from 1 to 10000, not {text!r}")
    return percent


def _size(text: str) -> int:
    try:
        value = size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if value < MEGABYTE:
        raise argparse.ArgumentTypeError(f"must be at least 1m, not {text}")
    return value


def _workers(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {_MAX_WORKERS}, not {text!r}")
    return int(text)
