"""The command line of ``memlite bench``."""

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from memlite.errors import ConfigError
from memlite.loadtest.login import PASSWORD_VARIABLE
from memlite.loadtest.targets import READ_LATENCY, WRITE_LATENCY

__all__ = ["parse"]

_NAME = "memlite bench"
_T = TypeVar("_T")
_SIZES = {"": 1, "k": 1024, "m": 1024**2}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0}

_EXAMPLES = """\
examples:
  memlite bench compare
  memlite bench compare --backends memory,file,gcs --clients 10:100:10
  memlite bench compare --backends memory --target 127.0.0.1:11211=memcached
  memlite bench run 127.0.0.1:11211 --workload ycsb-a --clients 50 --duration 10
  memlite bench run 127.0.0.1:11211 --rate 20000 --arrivals poisson
  memlite bench report old/results.json new/results.json
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"bench: {message} ({self.prog} --help lists the options)")


def parse(arguments: Sequence[str]) -> argparse.Namespace | None:
    """Return what the command line says; None when it asked for help, which is printed.

    Raises:
        ConfigError: it is wrong.
    """
    try:
        options = _parser().parse_args(arguments)
    except SystemExit:
        return None
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_NAME,
        description="Spawns concurrent clients, measures servers that speak memcached's\n"
        "protocol, and reports what it found.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    compare = _command(commands, "compare", "start a server for each backend and compare them")
    add = compare.add_argument
    add(
        "--backends",
        type=_list,
        default=["memory", "file", "gcs"],
        metavar="LIST",
        help="of memory, file, gcs (an emulated bucket) and URLs such as gs://bucket/prefix, "
        "each perhaps followed by =name (default: memory,file,gcs)",
    )
    add(
        "--target",
        action="append",
        default=[],
        metavar="HOST:PORT[=NAME]",
        help="a server that runs already, to compare with; may be repeated",
    )
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="where the file backend keeps its file: the disk that is measured (default: --out)",
    )
    add(
        "--gcs-read-latency",
        default=READ_LATENCY,
        metavar="DIST",
        help="of the emulated bucket, as gcs-emulator takes it; empty for none "
        "(default: %(default)s)",
    )
    add("--gcs-write-latency", default=WRITE_LATENCY, metavar="DIST", help="(default: %(default)s)")
    _add_measuring(compare, clients="10:100:10")
    run = _command(commands, "run", "drive one server that runs already")
    run.add_argument("address", metavar="HOST:PORT[=NAME]", help="or the path of a UNIX socket")
    _add_measuring(run, clients="50")
    report = _command(commands, "report", "draw a report from saved results, or compare several")
    report.add_argument(
        "results", nargs="+", type=Path, metavar="RESULTS", help="results.json, or its directory"
    )
    report.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="(default: beside the results; of several, bench-results/<time>)",
    )
    _add_prices(report)
    workload = _command(commands, "workload", "print a preset, to copy and change")
    workload.add_argument("name", nargs="?", metavar="NAME", help="without it, they are listed")
    return parser


def _command(
    commands: "argparse._SubParsersAction[_Parser]", name: str, help_text: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        allow_abbrev=False,
    )


def _add_measuring(parser: argparse.ArgumentParser, clients: str) -> None:
    add = parser.add_argument
    add(
        "--clients",
        type=_checked(_numbers),
        default=clients,
        metavar="LIST",
        help="at once: 50, or 1,10,100, or first:last:step (default: %(default)s)",
    )
    add(
        "--workload",
        default="mixed",
        metavar="NAME|FILE",
        help="a preset, see 'memlite bench workload', or a TOML file (default: %(default)s)",
    )
    add("--title", default="", help="for the report's head")
    add("--out", type=Path, metavar="DIR", help="(default: bench-results/<time>)")
    _add_prices(parser)
    add("--no-report", action="store_true", help="save results, and draw nothing")
    add("-q", "--quiet", action="store_true", help="no progress")
    _add_knobs(parser)
    _add_login(parser)
    how = parser.add_argument_group("clients")
    add = how.add_argument
    add(
        "--client",
        choices=("text", "pymemcache"),
        default="text",
        help="the built-in client, or real pymemcache clients in threads (default: text)",
    )
    add(
        "--dialect",
        choices=("memcached", "lite"),
        default="memcached",
        help="of servers that run already: memcached's, or the classroom's lite, which has get "
        "and set alone (default: memcached)",
    )
    add("--workers", type=_checked(_positive), metavar="NUM", help="processes that run them "
        "(default: half the processors)")  # fmt: skip
    add("--timeout", type=_checked(_duration), default=5.0, metavar="TIME", help="(default: 5s)")
    add("--verify", action="store_true", help="check that each value is one that was stored")
    add("--seed", type=_checked(int), default=1, metavar="NUM", help="(default: %(default)s)")
    _add_tls(parser)
    knee = parser.add_argument_group("saturation")
    add = knee.add_argument
    add(
        "--find-knee",
        action="store_true",
        help="raise clients (with --rate: the rate) from the first until throughput stops growing",
    )
    add("--slo", type=_checked(_duration), metavar="TIME", help="or until p99 is above this")
    add("--most", type=_checked(_number), metavar="NUM", help="and no further than this "
        "(default: 1024 clients, 1000000/s)")  # fmt: skip


def _add_login(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("authentication, by servers that run already")
    group.add_argument("--user", metavar="NAME", help="who clients say they are")
    group.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"its first line is the user's password (default: of {PASSWORD_VARIABLE})",
    )


def _add_tls(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("TLS, to servers that run already").add_argument
    add("--tls", action="store_true", help="speak it")
    add(
        "--tls-ca-cert",
        default="",
        metavar="FILE",
        help="PEM file the server's certificate is checked against (default: this machine's)",
    )
    add("--tls-cert", default="", metavar="FILE", help="PEM file with the client's certificate")
    add(
        "--tls-key",
        default="",
        metavar="FILE",
        help="PEM file with its private key (default: in --tls-cert)",
    )
    add("--tls-skip-verify", action="store_true", help="take any certificate of the server's")


def _add_knobs(parser: argparse.ArgumentParser) -> None:
    """Add the options that stand for a field of the workload; `dest` says which."""
    knobs = parser.add_argument_group("workload, in place of what the preset or file says")
    add = knobs.add_argument
    add("--mix", type=_checked(_mix), metavar="OP=SHARE,...", help="such as get=10,set=1")
    add("--keys", dest="keys.count", type=_checked(_count), metavar="NUM", help="how many")
    add(
        "--distribution",
        dest="keys.distribution",
        metavar="NAME",
        help="uniform, zipfian, latest, hotspot or sequential",
    )
    add("--theta", dest="keys.theta", type=_checked(float), metavar="NUM", help="of zipfian")
    add(
        "--value-size",
        type=_checked(_sizes),
        metavar="LIST",
        help="bytes: 100, or 100,1k,10k to measure each",
    )
    add("--ttl", dest="ttl", type=_checked(int), metavar="SECONDS", help="of what is stored")
    add("--trace", dest="trace", metavar="FILE", help="replay it (CSV: time,operation,key,size)")
    add(
        "--pipeline",
        dest="load.pipeline",
        type=_checked(_positive),
        metavar="NUM",
        help="requests a connection may have under way",
    )
    add(
        "--multiget",
        dest="load.multiget",
        type=_checked(_positive),
        metavar="NUM",
        help="keys of a get, 1 to 100",
    )
    add("--noreply", dest="load.noreply", action="store_true", default=None, help="of changes")
    add(
        "--rate",
        type=_checked(_rates),
        metavar="LIST",
        help="open loop: operations a second of all clients together; a list measures each",
    )
    add("--arrivals", dest="load.arrivals", choices=("constant", "poisson"))
    add("--think-time", dest="load.think_time", type=_checked(_duration), metavar="TIME")
    add("--operations", dest="load.operations", type=_checked(_count), metavar="NUM",
        help="of all clients in a repetition, instead of a duration")  # fmt: skip
    add("--duration", dest="load.duration", type=_checked(_duration), metavar="TIME")
    add("--warm-up", dest="load.warm_up", type=_checked(_duration), metavar="TIME")
    add("--repetitions", dest="load.repetitions", type=_checked(_positive), metavar="NUM")


def _add_prices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="price table to use instead of memlite's"
    )


def _checked(parse_text: Callable[[str], _T]) -> Callable[[str], _T]:
    def parse_one(text: str) -> _T:
        try:
            return parse_text(text)
        except ValueError as error:
            said = str(error)
            if "literal" in said or "convert" in said:
                said = f"not a number: {text!r}"
            raise argparse.ArgumentTypeError(said) from None

    return parse_one


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _positive(text: str) -> int:
    number = _count(text)
    if number < 1:
        raise ValueError("must be 1 or more")
    return number


def _count(text: str) -> int:
    """Return a number such as 1000, 10k, 2m."""
    found = re.fullmatch(r"(\d+)([km]?)", text.strip().lower(), re.ASCII)
    if found is None:
        raise ValueError(f"not a number: {text!r}")
    return int(found[1]) * {"": 1, "k": 1000, "m": 1_000_000}[found[2]]


def _number(text: str) -> float:
    return float(_count(text))


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for part in _list(text):
        first, *rest = part.split(":")
        if not rest:
            numbers.append(_positive(first))
            continue
        if len(rest) > 2:
            raise ValueError(f"not first:last:step: {part!r}")
        step = _positive(rest[1]) if len(rest) == 2 else 1
        start, last = _positive(first), _positive(rest[0])
        if last < start:
            raise ValueError(f"{last} is less than {start}")
        numbers += range(start, last + 1, step)
    if not numbers:
        raise ValueError("no number")
    return list(dict.fromkeys(numbers))


def _rates(text: str) -> list[float]:
    return [float(_positive(part)) for part in _list(text)]


def _sizes(text: str) -> list[int]:
    sizes = []
    for part in _list(text):
        found = re.fullmatch(r"(\d+)([km]?)", part.lower(), re.ASCII)
        if found is None:
            raise ValueError(f"not a size: {part!r}")
        sizes.append(int(found[1]) * _SIZES[found[2]])
    return sizes


def _duration(text: str) -> float:
    """Return seconds of 2, 1.5s, 250ms, 2m."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s|m|)", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(f"not a time such as 250ms or 2s: {text!r}")
    return float(found[1]) * _TIMES[found[2]]


def _mix(text: str) -> dict[str, float]:
    mix = {}
    for part in _list(text):
        name, equals, share = part.partition("=")
        if not equals:
            raise ValueError(f"not OPERATION=SHARE: {part!r}")
        mix[name] = float(share)
    return mix
