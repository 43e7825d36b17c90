"""The command line of ``memlite shell``."""

import argparse
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from memlite.client.address import Address, parse_address
from memlite.client.credentials import password_in
from memlite.client.tls import TlsFileError, TlsSettings
from memlite.core.errors import ConfigError
from memlite.shell.commands import COMMANDS
from memlite.shell.dialects import DIALECTS

__all__ = ["PASSWORD_VARIABLE", "Options", "command_line", "parse", "password_from", "tls_context"]

PASSWORD_VARIABLE = "MEMLITE_SHELL_PASSWORD"  # noqa: S105 - where it is, not what
_NAME = "memlite shell"
_TIMEOUT = 5.0
_MAX_VALUE = 64 * 1024 * 1024

_EPILOG = f"""\
The words after the address form one command; the exit status is 1 if its reply
is an error, otherwise 0. Without an address, the first word must be a known
command. Without a command, lines are read from the terminal or standard input.

examples:
  memlite shell
  memlite shell cache:11211 get greeting
  memlite shell cache:11211 set greeting "hello world"
  memlite shell --raw cache:11211 get logo > logo.png
  memlite shell -x cache:11211 set logo < logo.png
  memlite shell /run/memlite/socket stats items
  memlite shell --json --repeat -1 --interval 5 cache:11211 stats
  memlite shell --latency cache:11211
  memlite shell --tls --cacert ca.pem --user ada cache:11212
  printf 'set a 0 0 1\\r\\nx\\r\\nget a\\r\\n' | memlite shell cache:11211

The password of --user is read from --password-file or, without it, from
{PASSWORD_VARIABLE}; if neither is given, it is prompted for.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The options and arguments of the command line.

    Attributes:
        address: the server's address.
        words: the command to carry out; empty to read lines.
        raw: whether to show values unchanged.
        json: whether to show each reply as a JSON object.
        live: ``latency`` or ``stat``, to show that view instead; empty for neither.
        repeat: how many times to carry out the command, or how many lines of `live` to show; -1 for
            no limit.
        interval: seconds between repetitions, or between lines.
        value_from_input: whether the value of the command is read from standard input.
        timeout: seconds; None for no limit.
        value_length: limit for values, in bytes.
        user: the name to authenticate with; empty for no authentication.
        password_file: the file with the password.
        tls: whether to encrypt the connection.
        cacert: file of the certificate authorities to trust, in place of the system's.
        cert: file of the client's certificate.
        key: file of its private key, if `cert` does not contain it.
        skip_verify: whether to accept any certificate.
        sni: the server's name, which its certificate must have; empty for the host.
        dialect: one of `memlite.shell.dialects.DIALECTS`.
    """

    address: Address
    words: tuple[str, ...]
    raw: bool
    json: bool
    live: str
    repeat: int
    interval: float
    value_from_input: bool
    timeout: float | None
    value_length: int
    user: str
    password_file: Path | None
    tls: bool
    cacert: Path | None
    cert: Path | None
    key: Path | None
    skip_verify: bool
    sni: str
    dialect: str


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"shell: {message} ({_NAME} --help lists the options)")


def parse(arguments: Sequence[str]) -> Options | None:
    """Parse the command line; return None if it asks for help, which is printed.

    Raises:
        ConfigError: the command line is wrong.
    """
    parser = command_line()
    try:
        found = parser.parse_args(arguments)
        address, words = _address(found.words)
        if address is not None:
            # Options may also follow the address, but must not be within the command.
            parser.parse_args(words, namespace=found)
            words = found.words
    except SystemExit:
        return None
    given = [
        name for name in ("cacert", "cert", "key", "skip_verify", "sni") if getattr(found, name)
    ]
    if given and not found.tls:
        flag = "tls-skip-verify" if given[0] == "skip_verify" else given[0]
        raise ConfigError(f"shell: --{flag} requires --tls")
    if found.key and not found.cert:
        raise ConfigError("shell: --key requires --cert")
    if found.password_file and not found.user:
        raise ConfigError("shell: --password-file requires --user")
    if found.user and found.dialect == "lite":
        raise ConfigError(
            "shell: --user cannot be combined with --dialect lite, which has no passwords"
        )
    if any(not character.isprintable() or character == " " for character in found.user):
        raise ConfigError("shell: --user must not contain spaces or control characters")
    if found.live and words:
        raise ConfigError(f"shell: --{found.live} cannot be combined with a command")
    if found.live == "stat" and found.dialect == "lite":
        raise ConfigError(
            "shell: --stat cannot be combined with --dialect lite, which has no statistics"
        )
    if found.repeat is not None and not (words or found.live):
        raise ConfigError("shell: --repeat requires a command, --latency or --stat")
    if found.value_from_input and not words:
        raise ConfigError("shell: -x requires a command, such as: set logo")
    return Options(
        address=address or Address(),
        words=tuple(words),
        raw=found.raw,
        json=found.json,
        live=found.live,
        repeat=_repetitions(found),
        interval=found.interval,
        value_from_input=found.value_from_input,
        timeout=found.timeout or None,
        value_length=found.value_length,
        user=found.user,
        password_file=found.password_file,
        tls=found.tls,
        cacert=found.cacert,
        cert=found.cert,
        key=found.key,
        skip_verify=found.skip_verify,
        sni=found.sni,
        dialect=found.dialect,
    )


def tls_context(options: Options) -> ssl.SSLContext | None:
    """Return the context for the connection that the options describe; None for plain text.

    Raises:
        ConfigError: a file cannot be read, or is not valid.
    """
    if not options.tls:
        return None
    settings = TlsSettings(
        str(options.cacert or ""),
        str(options.cert or ""),
        str(options.key or ""),
        verify=not options.skip_verify,
    )
    try:
        return settings.context()
    except TlsFileError as error:
        option = "cacert" if error.setting == "ca_cert" else error.setting
        raise ConfigError(f"shell: --{option} {error.path}: {error.reason}") from None


def password_from(options: Options) -> bytes | None:
    """Return the password from the file or the environment; None if the user must be asked.

    Raises:
        ConfigError: the file cannot be read.
    """
    if options.password_file:
        try:
            return password_in(options.password_file)
        except OSError as error:
            raise ConfigError(
                f"shell: --password-file {options.password_file}: {error.strerror}"
            ) from None
    text = os.environ.get(PASSWORD_VARIABLE)
    return None if text is None else os.fsencode(text)


def _address(words: list[str]) -> tuple[Address | None, list[str]]:
    """Return the address, if the words begin with one, and the command."""
    if not words or words[0] in COMMANDS:
        return None, words
    try:
        return parse_address(words[0]), words[1:]
    except ConfigError as error:
        raise ConfigError(f"shell: {error}") from None


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog=_NAME,
        usage=f"{_NAME} [options] [HOST:PORT | /path/to/socket] [COMMAND ...]",
        description="An interactive client for servers that speak memcached's text protocol.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--raw", action="store_true", help="show raw values and nothing else")
    shown.add_argument("--json", action="store_true", help="show each reply as a JSON object")
    live = parser.add_mutually_exclusive_group()
    live.add_argument(
        "--latency",
        dest="live",
        action="store_const",
        const="latency",
        default="",
        help="show the server's latency, one line per --interval",
    )
    live.add_argument(
        "--stat",
        dest="live",
        action="store_const",
        const="stat",
        help="show items, connections and rates, one line per --interval",
    )
    add(
        "-r",
        "--repeat",
        type=_count,
        metavar="NUM",
        help="run the command this many times, or show this many lines; -1: forever",
    )
    add(
        "-i",
        "--interval",
        type=_interval,
        default=1.0,
        metavar="SECONDS",
        help="pause between repetitions (default: %(default)g)",
    )
    add(
        "-x",
        dest="value_from_input",
        action="store_true",
        help="take the value of the command from standard input",
    )
    add(
        "--dialect",
        choices=tuple(DIALECTS),
        default="memcached",
        help="the server's protocol (default: %(default)s)",
    )
    add(
        "--timeout",
        type=_seconds,
        default=_TIMEOUT,
        metavar="SECONDS",
        help="how long to wait for the server; 0: forever (default: %(default)g)",
    )
    add(
        "--max-value",
        dest="value_length",
        type=_size,
        default=_MAX_VALUE,
        metavar="BYTES",
        help="maximum size of a value, such as 500k or 1g (default: 64m)",
    )
    group = parser.add_argument_group("authentication")
    group.add_argument(
        "--user", default="", metavar="NAME", help="authenticate first (memcached -Y)"
    )
    group.add_argument(
        "--password-file", type=Path, metavar="FILE", help="file whose first line is the password"
    )
    add = parser.add_argument_group("TLS").add_argument
    add("--tls", action="store_true", help="encrypt the connection")
    add("--cacert", type=Path, metavar="FILE", help="trust these CAs instead of the system's")
    add("--cert", type=Path, metavar="FILE", help="client certificate")
    add("--key", type=Path, metavar="FILE", help="its private key, if in another file")
    add(
        "--tls-skip-verify",
        dest="skip_verify",
        action="store_true",
        help="accept any certificate, without verifying the server's identity",
    )
    add(
        "--sni",
        default="",
        metavar="NAME",
        help="server name for SNI and verification, if not HOST",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"must be from 0 to 86400, not {text}")
    return seconds


def _interval(text: str) -> float:
    seconds = _seconds(text)
    if not seconds:
        raise argparse.ArgumentTypeError("must be more than 0")
    return seconds


def _count(text: str) -> int:
    if text != "-1" and not (text.isascii() and text.isdigit() and int(text[:12]) > 0):
        raise argparse.ArgumentTypeError(f"must be at least 1, or -1 to repeat forever, not {text}")
    return int(text)


def _repetitions(found: argparse.Namespace) -> int:
    """Return how often to carry out the command; by default, a live view has no end."""
    if found.repeat is not None:
        return int(found.repeat)
    return -1 if found.live else 1


def _size(text: str) -> int:
    number, unit = text[:-1], text[-1:].lower()
    factor = {"k": 1024, "m": 1024**2, "g": 1024**3}.get(unit)
    if factor is None:
        number, factor = text, 1
    if not (number.isascii() and number.isdigit() and len(number) <= 12):
        raise argparse.ArgumentTypeError(f"not a size such as 500k or 64m: {text!r}")
    return int(number) * factor
