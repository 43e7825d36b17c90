"""The command line of ``memlite bench``."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from memlite.core.errors import ConfigError
from memlite.loadtest import option_values as values
from memlite.loadtest.defaults import (
    BACKENDS,
    COMPARED_PATHS,
    PROXIED,
    READ_LATENCY,
    WITH_PROXY,
    WRITE_LATENCY,
)

__all__ = ["PASSWORD_VARIABLE", "CompareOption", "command_line", "compare_options", "parse"]

PASSWORD_VARIABLE = "MEMLITE_BENCH_PASSWORD"  # noqa: S105 - its name

_NAME = "memlite bench"

_EXAMPLES = """\
examples:
  memlite bench compare
  memlite bench compare --backends memory,file,gcs --clients 10:100:10
  memlite bench compare --backends memory --target 127.0.0.1:11211=memcached
  memlite bench compare --cluster 1,2,4 --clients 5,20,100
  memlite bench run 127.0.0.1:11211 --workload ycsb-a --clients 50 --duration 10
  memlite bench run 127.0.0.1:11211 --rate 20000 --arrivals poisson
  memlite bench factorial --factor clients=2,16 --factor value-size=100,10k
  memlite bench study --quick --out study
  memlite bench plan bench-results/today --rate 100k --p99 2ms
  memlite bench models results.json
  memlite bench multigets --sizes 1:9,16,32
  memlite bench report old/results.json new/results.json
"""


class CompareOption(NamedTuple):
    """An option of ``compare``.

    Attributes:
        name: its first spelling, without dashes.
        takes_value: whether it takes a value.
    """

    name: str
    takes_value: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"bench: {message} ({self.prog} --help lists the options)")


def parse(arguments: Sequence[str]) -> argparse.Namespace | None:
    """Parse the command line; returns None after printing help.

    Raises:
        ConfigError: the command line is invalid.
    """
    parser = command_line()
    try:
        options, others = parser.parse_known_args(arguments)
        if options.command == "factorial":
            parser.parse_args(["compare", *others])  # raises an error if that has no such options
            options.others = others
            if not options.factor:
                parser.error("factorial: --factor OPTION=VALUE,VALUE is required")
        elif options.command == "study":
            options.others = others
        elif others:
            parser.error(f"unrecognized arguments: {' '.join(others)}")
    except SystemExit:
        return None
    if options.command in ("compare", "run") and options.clients is None:
        # A search for the knee goes up from a single client, unless it is the rate that goes up.
        one = options.find_knee and not options.rate
        options.clients = values.numbers("1" if one else options.usual_clients)
    if options.command == "compare":
        _complete_comparison(options)
    return options


def compare_options() -> dict[str, CompareOption]:
    """Return the options of ``compare`` by all their long spellings, without dashes."""
    commands = command_line()._actions  # argparse has no public way to ask
    (chosen,) = (one for one in commands if isinstance(one, argparse._SubParsersAction))
    found: dict[str, CompareOption] = {}
    for action in chosen.choices["compare"]._actions:
        names = [one.removeprefix("--") for one in action.option_strings if one[:2] == "--"]
        found |= {name: CompareOption(names[0], action.nargs != 0) for name in names}
    return found


def _complete_comparison(options: argparse.Namespace) -> None:
    """Add the defaults that depend on whether clusters are compared.

    Raises:
        ConfigError: there are paths without a cluster.
    """
    if options.in_flight is not None:
        options.proxy_option.append(("in-flight", str(options.in_flight)))
    of_proxies = bool(options.proxies or options.proxy_option)
    for name in ("paths", "proxies", "in_flight", "proxy_option"):
        if getattr(options, name) and not options.cluster:
            flag = name.replace("_", "-")
            if name == "proxy_option":
                flag += f" {options.proxy_option[0][0]}"
            raise ConfigError(f"bench: --{flag} is for clusters: use --cluster as well")
    if of_proxies and not set(options.paths or [PROXIED]) & set(WITH_PROXY):
        raise ConfigError("bench: --proxies and options of proxies need a proxy: --paths proxied")
    options.paths = options.paths or ([PROXIED] if of_proxies else list(COMPARED_PATHS))
    options.proxies = options.proxies or [1]
    if options.backends is None:
        options.backends = ["memory"] if options.cluster else list(BACKENDS)


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog=_NAME,
        description="Load-tests servers that speak memcached's protocol with concurrent\n"
        "clients, and reports throughput and latency.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    compare = _command(commands, "compare", "start a server for each backend and compare them")
    add = compare.add_argument
    add(
        "--backends",
        type=values.listed,
        metavar="LIST",
        help="memory, file, gcs (an emulated bucket), valkey and memcached (those on the PATH) or "
        "URLs such as gs://bucket/prefix, each optionally followed by =NAME "
        f"(default: {','.join(BACKENDS)}; memory with --cluster)",
    )
    add(
        "--target",
        action="append",
        default=[],
        metavar="HOST:PORT[=NAME]",
        help="a running server to compare with; may be repeated",
    )
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="directory of the file backend's file, on the disk to be measured (default: --out)",
    )
    add(
        "--gcs-read-latency",
        type=values.checked(values.latency),
        default=READ_LATENCY,
        metavar="DIST",
        help="read latency of the emulated bucket, in the syntax of gcs-emulator; empty for none "
        "(default: %(default)s)",
    )
    add(
        "--gcs-write-latency",
        type=values.checked(values.latency),
        default=WRITE_LATENCY,
        metavar="DIST",
        help="its write latency (default: %(default)s)",
    )
    add(
        "--server-option",
        type=values.checked(values.given),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the servers that are started, or of the nodes, such as near-cache=16m; "
        "may be repeated",
    )
    _add_cluster(compare)
    _add_measuring(compare, clients="10:100:10")
    run = _command(commands, "run", "measure one running server")
    run.add_argument("address", metavar="HOST:PORT[=NAME]", help="or the path of a UNIX socket")
    _add_measuring(run, clients="50")
    _add_factorial(commands)
    _add_study(commands)
    report = _command(commands, "report", "write a report from saved results, or compare several")
    report.add_argument(
        "results", nargs="+", type=Path, metavar="RESULTS", help="results.json, or its directory"
    )
    report.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory (default: that of the results; for several, bench-results/<time>)",
    )
    _add_prices(report)
    _add_plan(commands)
    _add_models(commands)
    _add_multigets(commands)
    workload = _command(commands, "workload", "print a preset, as a starting point for your own")
    workload.add_argument(
        "name", nargs="?", metavar="NAME", help="the preset (default: list all presets)"
    )
    return parser


def _add_models(commands: "argparse._SubParsersAction[_Parser]") -> None:
    models = _command(
        commands,
        "models",
        "compare queueing models with results saved at several numbers of clients",
    )
    add = models.add_argument
    add("results", type=Path, metavar="RESULTS", help="results.json, or its directory")
    add(
        "--trace",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="what a proxy with --trace and --in-flight has written meanwhile; may be repeated",
    )
    add(
        "--servers",
        type=values.checked(values.positive),
        metavar="NUM",
        help="how many requests a server serves at a time (default: as many as it has threads "
        "that are busy)",
    )
    add("--out", type=Path, metavar="DIR", help="output directory (default: that of the results)")


def _add_multigets(commands: "argparse._SubParsersAction[_Parser]") -> None:
    multigets = _command(
        commands,
        "multigets",
        "compare gets of several keys that are spread over the nodes behind a proxy with gets from "
        "one of them",
    )
    add = multigets.add_argument
    options: tuple[tuple[str, Callable[[str], object], str, str, str], ...] = (
        (
            "--sizes",
            values.numbers,
            "1:9,12,16,24,32",
            "LIST",
            "numbers of keys: 4, or first:last:step",
        ),
        ("--nodes", values.positive, "3", "NUM", "nodes, and processes that generate load"),
        ("--clients", values.positive, "6", "NUM", "concurrent clients, over all processes"),
        ("--keys", values.positive, "1000", "NUM", "number of keys of each process"),
        ("--value-size", values.size, "100", "NUM", "bytes of a value, such as 100 or 10k"),
        ("--duration", values.duration, "1s", "TIME", "length of a measurement"),
        ("--repetitions", values.positive, "5", "NUM", "measurements of each size, either way"),
        ("--seed", int, "1", "NUM", "random seed, of the order as well"),
    )
    for name, parse_text, default, metavar, text in options:
        add(
            name,
            type=values.checked(parse_text),
            default=default,
            metavar=metavar,
            help=f"{text} (default: %(default)s)",
        )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory; one with measurements of the same options is completed "
        "(default: bench-results/<time>)",
    )
    add("-q", "--quiet", action="store_true", help="do not show progress")


def _add_factorial(commands: "argparse._SubParsersAction[_Parser]") -> None:
    factorial = _command(
        commands,
        "factorial",
        "measure all combinations of factors and say what matters; other options are those of "
        "compare",
    )
    factorial.usage = f"{_NAME} factorial --factor OPTION=VALUE,VALUE ... [options of compare]"
    add = factorial.add_argument
    add(
        "--factor",
        action="append",
        default=[],
        metavar="OPTION=VALUES",
        help="an option of compare, a proxy or a server, and two values or more, such as "
        "clients=2,16; may be repeated",
    )
    add(
        "--repetitions",
        type=values.checked(values.positive),
        default=3,
        metavar="NUM",
        help="runs of each combination (default: %(default)s)",
    )
    add(
        "--seed",
        type=values.checked(int),
        default=1,
        metavar="NUM",
        help="random seed, of the order of runs as well (default: %(default)s)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory; one with runs of the same experiment is completed "
        "(default: bench-results/<time>)",
    )
    add("--no-report", action="store_true", help="save the analysis without writing a report")
    add("-q", "--quiet", action="store_true", help="do not show progress")


def _add_study(commands: "argparse._SubParsersAction[_Parser]") -> None:
    study = _command(
        commands,
        "study",
        "measure servers, proxies and clusters of both, and write a report with all tables and "
        "figures; other options are those of compare",
    )
    study.usage = f"{_NAME} study [--quick] [options] [options of compare]"
    add = study.add_argument
    add("--quick", action="store_true", help="measure for minutes, not for an hour and a half")
    add(
        "--backend",
        choices=("memory", "file", "memcached"),
        default="memory",
        help="of the nodes; memcached: the one on the PATH (default: %(default)s)",
    )
    add(
        "--clients",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="concurrent clients, three numbers or more (default: 1,2,4,8,16,32,64,128; quick: "
        "1,4,16,64)",
    )
    add(
        "--in-flight",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="limits of the proxies, two or more (default: 8,16,32,64; quick: 8,64)",
    )
    add(
        "--duration",
        type=values.checked(values.positive_duration),
        metavar="TIME",
        help="length of a repetition (default: 5s; quick: 0.6s)",
    )
    add(
        "--warm-up",
        type=values.checked(values.duration),
        metavar="TIME",
        help="unmeasured load before each repetition (default: 1s; quick: 0.15s)",
    )
    add(
        "--repetitions",
        type=values.checked(values.positive),
        metavar="NUM",
        help="number of repetitions (default: 3)",
    )
    add(
        "--workers",
        type=values.checked(values.positive),
        default=3,
        metavar="NUM",
        help="load generators: processes that run the clients (default: %(default)s)",
    )
    add(
        "--seed",
        type=values.checked(int),
        default=1,
        metavar="NUM",
        help="random seed of the experiment's order (default: %(default)s)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="output directory; one with a part of the same study is completed "
        "(default: bench-results/<time>)",
    )
    add("-q", "--quiet", action="store_true", help="do not show progress")


def _add_plan(commands: "argparse._SubParsersAction[_Parser]") -> None:
    plan = _command(
        commands, "plan", "say how many servers and machines a load needs, from saved results"
    )
    add = plan.add_argument
    add(
        "results",
        type=Path,
        metavar="RESULTS",
        help="results.json, or its directory; also that of a study",
    )
    add(
        "--workload",
        default="mixed",
        metavar="NAME",
        help="of a study: plan for this one of its workloads (default: %(default)s)",
    )
    add(
        "--rate",
        type=values.checked(values.positive),
        required=True,
        metavar="NUM",
        help="operations per second, such as 100k",
    )
    add(
        "--p99",
        type=values.checked(values.positive_duration),
        required=True,
        metavar="TIME",
        help="the longest acceptable 99th percentile of response times, such as 2ms",
    )
    add(
        "--keys",
        type=values.checked(values.positive),
        metavar="NUM",
        help="number of items, for the memory",
    )
    add(
        "--value-size",
        type=values.checked(values.size),
        metavar="SIZE",
        help="bytes of a value, such as 1k (default: as measured)",
    )
    add(
        "--hit-ratio",
        type=values.checked(values.share),
        metavar="SHARE",
        help="share of reads that find an item: 0.9 or 90%% (default: as measured)",
    )
    add(
        "--machine",
        action="append",
        default=[],
        metavar="NAME",
        help="consider this machine only; may be repeated (default: those in the table of machines "
        "that are rented, and whose cores and price are known)",
    )
    add("--json", action="store_true", help="print JSON")
    _add_prices(plan)


def _command(
    commands: "argparse._SubParsersAction[_Parser]", name: str, help_text: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        allow_abbrev=False,
    )


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("clusters, in place of single servers").add_argument
    add(
        "--cluster",
        "--servers",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="start clusters of so many nodes and compare them: 3, or 1,2,4, or first:last:step",
    )
    add(
        "--paths",
        type=values.checked(values.paths),
        metavar="LIST",
        help="how requests reach the nodes: proxied, through memlite proxy; direct, from clients "
        "that know the nodes; or asked, from clients that ask the proxy for them when they connect "
        f"(default: {','.join(COMPARED_PATHS)}; with an option of proxies: {PROXIED})",
    )
    add(
        "--proxies",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="numbers of proxies in front of the nodes; clients are spread over them (default: 1)",
    )
    add(
        "--in-flight",
        type=values.checked(values.positive),
        metavar="NUM",
        help="most requests of each proxy at the nodes (default: no limit)",
    )
    add(
        "--proxy-option",
        type=values.checked(values.given),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the proxies, such as replicas=2; may be repeated",
    )


def _add_measuring(parser: argparse.ArgumentParser, clients: str) -> None:
    parser.set_defaults(usual_clients=clients)
    add = parser.add_argument
    add(
        "--clients",
        type=values.checked(values.numbers),
        metavar="LIST",
        help="concurrent clients: 50, or 1,10,100, or first:last:step "
        f"(default: {clients}; 1 with --find-knee)",
    )
    add(
        "--workload",
        default="mixed",
        metavar="NAME|FILE",
        help="a preset, see 'memlite bench workload', or a TOML file (default: %(default)s)",
    )
    add("--title", default="", help="title of the report")
    add("--out", type=Path, metavar="DIR", help="output directory (default: bench-results/<time>)")
    add(
        "--machine",
        type=values.checked(values.machine),
        action="append",
        default=[],
        metavar="NAME[:NUM]",
        help="the machine that all servers run on, from the table of machines, for performance per "
        "watt and per price; several: how many, such as raspberry-pi-4b:5, or this option again",
    )
    _add_prices(parser)
    add("--no-report", action="store_true", help="save the results without writing a report")
    add("-q", "--quiet", action="store_true", help="do not show progress")
    _add_workload_overrides(parser)
    _add_login(parser)
    clients_group = parser.add_argument_group("clients")
    add = clients_group.add_argument
    add(
        "--client",
        choices=("text", "pymemcache"),
        default="text",
        help="the built-in client, or pymemcache clients in threads (default: text)",
    )
    add(
        "--dialect",
        choices=("memcached", "lite"),
        default="memcached",
        help="of running servers: memcached's, or the classroom's lite dialect, which has only "
        "get and set (default: memcached)",
    )
    add(
        "--workers",
        type=values.checked(values.positive),
        metavar="NUM",
        help="worker processes that run the clients (default: half the cores)",
    )
    add(
        "--timeout",
        type=values.checked(values.duration),
        default=5.0,
        metavar="TIME",
        help="longest wait for a reply (default: 5s)",
    )
    add("--verify", action="store_true", help="check that every value read is one that was stored")
    add(
        "--seed",
        type=values.checked(int),
        default=1,
        metavar="NUM",
        help="random seed (default: %(default)s)",
    )
    _add_tls(parser)
    knee = parser.add_argument_group("saturation")
    add = knee.add_argument
    add(
        "--find-knee",
        action="store_true",
        help="raise clients (with --rate: the rate) from the first value until throughput stops "
        "growing",
    )
    add(
        "--slo",
        type=values.checked(values.duration),
        metavar="TIME",
        help="also stop when p99 exceeds this",
    )
    add("--most", type=values.checked(values.number), metavar="NUM", help="highest load to try "
        "(default: 1024 clients, 1000000/s)")  # fmt: skip


def _add_login(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("authentication, for running servers")
    group.add_argument("--user", metavar="NAME", help="user name")
    group.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"file whose first line is the password (default: ${PASSWORD_VARIABLE})",
    )


def _add_tls(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("TLS, for running servers").add_argument
    add("--tls", action="store_true", help="connect with TLS")
    add(
        "--tls-ca-cert",
        default="",
        metavar="FILE",
        help="PEM file of trusted CA certificates (default: the system's)",
    )
    add("--tls-cert", default="", metavar="FILE", help="PEM file with the client's certificate")
    add(
        "--tls-key",
        default="",
        metavar="FILE",
        help="PEM file with its private key (default: in --tls-cert)",
    )
    add("--tls-skip-verify", action="store_true", help="do not verify the server's certificate")


def _add_workload_overrides(parser: argparse.ArgumentParser) -> None:
    """Add the options that override a field of the workload; `dest` names the field."""
    overrides = parser.add_argument_group("workload, overriding the preset or file")
    add = overrides.add_argument
    add(
        "--mix",
        type=values.checked(values.mix),
        metavar="OP=SHARE,...",
        help="such as get=10,set=1",
    )
    add(
        "--keys",
        dest="keys.count",
        type=values.checked(values.count),
        metavar="NUM",
        help="number of keys",
    )
    add(
        "--distribution",
        dest="keys.distribution",
        metavar="NAME",
        help="uniform, zipfian, latest, hotspot or sequential",
    )
    add(
        "--theta",
        dest="keys.theta",
        type=values.checked(float),
        metavar="NUM",
        help="skew of zipfian and latest",
    )
    add(
        "--value-size",
        type=values.checked(values.sizes),
        metavar="LIST",
        help="bytes: 100, or 100,1k,10k to measure each",
    )
    add(
        "--ttl",
        dest="ttl",
        type=values.checked(int),
        metavar="SECONDS",
        help="expiry of stored items",
    )
    add(
        "--trace",
        dest="trace",
        metavar="FILE",
        help="trace to replay (CSV: time,operation,key,size)",
    )
    add(
        "--pipeline",
        dest="load.pipeline",
        type=values.checked(values.positive),
        metavar="NUM",
        help="most requests in flight on a connection",
    )
    add(
        "--multiget",
        dest="load.multiget",
        type=values.checked(values.positive),
        metavar="NUM",
        help="keys per get, 1 to 100",
    )
    add(
        "--noreply",
        dest="load.noreply",
        action="store_true",
        default=None,
        help="send writes with noreply",
    )
    add(
        "--rate",
        type=values.checked(values.rates),
        metavar="LIST",
        help="open loop: operations per second over all clients; a list measures each",
    )
    add(
        "--arrivals",
        dest="load.arrivals",
        choices=("constant", "poisson"),
        help="arrival process of an open loop",
    )
    add(
        "--think-time",
        dest="load.think_time",
        type=values.checked(values.duration),
        metavar="TIME",
        help="pause between a reply and the next request",
    )
    add("--operations", dest="load.operations", type=values.checked(values.count), metavar="NUM",
        help="operations per repetition over all clients, instead of --duration")  # fmt: skip
    add(
        "--duration",
        dest="load.duration",
        type=values.checked(values.duration),
        metavar="TIME",
        help="length of a repetition",
    )
    add(
        "--warm-up",
        dest="load.warm_up",
        type=values.checked(values.duration),
        metavar="TIME",
        help="unmeasured load before each repetition",
    )
    add(
        "--repetitions",
        dest="load.repetitions",
        type=values.checked(values.positive),
        metavar="NUM",
        help="number of repetitions",
    )


def _add_prices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--machines",
        type=Path,
        metavar="FILE",
        help="table of machines, their power and price (default: memlite's own)",
    )
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="price table (default: memlite's own)"
    )
