"""The command line of ``memlite top``."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from memlite.client.address import Address, parse_address
from memlite.core.errors import ConfigError

__all__ = ["PASSWORD_VARIABLE", "Options", "command_line", "parse"]

PASSWORD_VARIABLE: Final = "MEMLITE_TOP_PASSWORD"  # noqa: S105 - its name

_LEAST: Final = 0.1
_MOST: Final = 3600.0

_EPILOG: Final = f"""\
If a server lists the nodes of a cluster, as a proxy does, the nodes are shown.

keys:
  q, Ctrl+C       quit
  p, space        pause
  +, -            lengthen or shorten the interval
  < >, arrows     sort by another column; r: reverse the order
  n o g s h l m u i e c
                  sort by name, operations, gets, sets, hit ratio, latency,
                  memory, share of the memory used, items, evictions,
                  connections

examples:
  memlite top
  memlite top cache1 cache2:11212
  memlite top proxy:11211
  memlite top --json cache1 | jq .total.operations_per_second

The password of --user is read from --password-file, or else from
{PASSWORD_VARIABLE}.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The options and arguments of the command line.

    Attributes:
        addresses: the servers' addresses.
        interval: seconds between two readings.
        once: whether to show one table and exit.
        json: whether to write it as JSON.
        discovers: whether to show the nodes that a server lists in place of the server.
        timeout: seconds within which a server must answer.
        parsed: the options for passwords and TLS.
    """

    addresses: tuple[Address, ...]
    interval: float
    once: bool
    json: bool
    discovers: bool
    timeout: float
    parsed: argparse.Namespace


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"top: {message} (memlite top --help lists the options)")


def parse(arguments: Sequence[str]) -> Options | None:
    """Parse the command line; return None if it asks for help, which is printed.

    Raises:
        ConfigError: the command line is invalid.
    """
    try:
        found = command_line().parse_args(arguments)
    except SystemExit:
        return None
    try:
        addresses = tuple(parse_address(text) for text in found.addresses or ["localhost"])
    except ConfigError as error:
        raise ConfigError(f"top: {error}") from None
    return Options(
        addresses=tuple(dict.fromkeys(addresses)),
        interval=found.interval,
        once=found.once or found.json,
        json=found.json,
        discovers=not found.no_discovery,
        timeout=found.timeout,
        parsed=found,
    )


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog="memlite top",
        description="Show statistics of memlite and memcached servers on a terminal.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("addresses", nargs="*", metavar="HOST:PORT", help="servers (default: localhost:11211)")
    add(
        "-i",
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="time between updates (default: %(default)g)",
    )
    add(
        "--once",
        action="store_true",
        help="show one table and exit; the default if the output is not a terminal",
    )
    add("--json", action="store_true", help="like --once, but print a JSON object")
    add(
        "--no-discovery",
        action="store_true",
        help="show the given servers, not the nodes that they list",
    )
    add(
        "--timeout",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="time allowed for a reply (default: %(default)g)",
    )
    group = parser.add_argument_group("authentication")
    group.add_argument("--user", metavar="NAME", help="authenticate first (memcached -Y)")
    group.add_argument(
        "--password-file", type=Path, metavar="FILE", help="file whose first line is the password"
    )
    _add_tls(parser)
    return parser


def _add_tls(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("TLS").add_argument
    add("--tls", action="store_true", help="encrypt connections")
    add(
        "--tls-ca-cert",
        default="",
        metavar="FILE",
        help="PEM file of trusted CA certificates (default: the system's)",
    )
    add("--tls-cert", default="", metavar="FILE", help="PEM file with a client certificate")
    add(
        "--tls-key",
        default="",
        metavar="FILE",
        help="PEM file with its private key (default: in --tls-cert)",
    )
    add("--tls-skip-verify", action="store_true", help="do not verify servers' certificates")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _LEAST <= seconds <= _MOST:
        raise argparse.ArgumentTypeError(f"must be from 0.1 to 3600 seconds, not {text!r}")
    return seconds
