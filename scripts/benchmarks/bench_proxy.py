"""Compare the costs of proxies in front of the same memcached nodes, measured in the same run.

The figure is the processor time of the proxy alone, per operation; the nodes and the load generator
share the other core. Each round measures the proxies one right after the other, and the result is
the ratio within a round. Needs Linux, two cores, a C compiler, memcached, and nutcracker, which is
twemproxy.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import contestants as who
from harness.commands import Sample, allow_connections, measure_commands, show_cells
from harness.contestants import Contestant, in_turn
from harness.processes import (
    BenchError,
    Running,
    compile_loadgen,
    exit_code,
    load,
    progress,
    real_time,
    resident,
    two_cores,
)
from harness.proxies import PEER, Proxy, memcached_proxy, memlite_proxy, nutcracker
from harness.requests import Sizes, commands
from harness.scenarios import Cost, Measurement, Scenario, Setting, costs, measure

_MEGABYTES: Final = 1024  # for each node, so that no item is evicted

_COMMANDS_SECONDS: Final = 0.1  # as a share of --seconds, because there are many commands

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Load:
    """A kind of load on a proxy.

    Attributes:
        requests: the requests.
        connections: number of connections of the load generator.
        nodes: number of nodes behind the proxy.
        stored: whether to store the keys first; otherwise all gets miss.
        stored_keys: how many of them to store; 0 for all.
        options: further options of the load generator.
    """

    requests: Scenario
    connections: int = 50
    nodes: int = 3
    stored: bool = True
    stored_keys: int = 0
    options: tuple[str, ...] = ()

    @property
    def meta(self) -> bool:
        """Whether requests use the meta protocol, which nutcracker does not support."""
        return "--meta" in self.options


def _gets(summary: str, connections: int = 50, **further: Any) -> Load:
    return Load(Scenario(f"gets, {summary}", gets=1, sets=0), connections, **further)


def _many(summary: str, gets: int, sets: int, **further: Any) -> Load:
    return Load(Scenario(summary, gets, sets, keys=1_000_000, **further))


LOADS: Final = {
    "get-1": _gets("1 connection", 1),
    "get-8": _gets("8 connections", 8),
    "get-50": _gets("50 connections"),
    "get-200": _gets("200 connections", 200),
    "get-miss": _gets("all of them misses", stored=False),
    "get-pipeline": Load(Scenario("gets, 16 per write", 1, 0, pipeline=16)),
    "miss-pipeline": Load(Scenario("misses, 16 per write", 1, 0, pipeline=16), stored=False),
    "set": Load(Scenario("sets", 0, 1)),
    "set-pipeline": Load(Scenario("sets, 16 per write", 0, 1, pipeline=16)),
    "get-set": Load(Scenario("10 gets to 1 set")),
    "multiget-10": Load(Scenario("gets of 10 keys; per key", sets=0, multiget=10)),
    "multiget-100": Load(Scenario("gets of 100 keys; per key", sets=0, multiget=100)),
    "multimiss-10": Load(Scenario("misses of 10 keys; per key", sets=0, multiget=10), stored=False),
    "multimix-10": Load(
        Scenario("gets of 10 keys, half of them misses; per key", sets=0, multiget=10),
        stored_keys=5000,
    ),
    "meta-get": _gets("as mg", options=("--meta",)),
    "delete": Load(Scenario("deletes", 0, 1), options=("--deletes",)),
    "get-1k": Load(Scenario("gets of 1 KiB", 1, 0, 1024)),
    "get-16k": Load(Scenario("gets of 16 KiB", 1, 0, 16 * 1024, keys=1000)),
    "set-16k": Load(Scenario("sets of 16 KiB", 0, 1, 16 * 1024, keys=1000)),
    # Most of these keys are not remembered: the proxy finds the node of each.
    "many-keys": _many("gets of a million keys", 1, 0),
    "many-pipeline": _many("gets of a million keys, 16 per write", 1, 0, pipeline=16),
    "many-set": _many("sets of a million keys", 0, 1),
    "many-set-p16": _many("sets of a million keys, 16 per write", 0, 1, pipeline=16),
    "many-multi-10": _many("gets of 10 of a million keys; per key", 1, 0, multiget=10),
    "many-multi-100": _many("gets of 100 of a million keys; per key", 1, 0, multiget=100),
    "nodes-10": _gets("10 nodes", nodes=10),
    "nodes-30": _gets("30 nodes", nodes=30),
    "nodes-100": _gets("100 nodes", nodes=100),
}


def _commands() -> list[str]:
    return [name for name, one in commands(Sizes()).items() if not one.binary]


# Measuring


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark: the programs and the settings.

    Attributes:
        proxies: nutcracker first.
        node: the program of the nodes.
        setting: the common settings.
        folder: the folder for the proxies' files.
    """

    proxies: Sequence[Proxy]
    node: Contestant
    setting: Setting
    folder: Path

    def compare(self, name: str) -> tuple[list[Measurement], dict[str, int]]:
        """Run all rounds of a load; return them, and the memory of each proxy in bytes."""
        asked, setting = LOADS[name], self.setting
        server_core, other_core = setting.cores
        common = [f"--connections={asked.connections}", *asked.requests.arguments()]
        with ExitStack() as stack:
            nodes = [
                stack.enter_context(self.node.running(other_core, _MEGABYTES)).port
                for _ in range(asked.nodes)
            ]
            servers: dict[str, Running] = {
                one.name: stack.enter_context(one.running(server_core, nodes, self.folder))
                for one in self.proxies
                if one.name != PEER or not asked.meta
            }
            if asked.stored:
                # Through each proxy, as they may place keys on different nodes.
                for server in servers.values():
                    stored = [f"--keys={asked.stored_keys}"] if asked.stored_keys else []
                    load(setting.loadgen, server.port, other_core, [*common, *stored, "--prefill"])
            arguments = [*common, *asked.options, f"--seconds={setting.seconds}"]
            found = []
            for turn in range(1, setting.rounds + 1):
                progress(f"{name}: round {turn} of {setting.rounds}")
                found += [
                    measure(setting, name, turn, which, servers[which], arguments)
                    for which in in_turn(list(servers), turn)
                ]
            return found, {which: resident(server.pid) for which, server in servers.items()}

    def compare_commands(self, names: Sequence[str]) -> list[Sample]:
        """Measure commands of the text protocol on all proxies but nutcracker."""
        setting = self.setting
        server_core, other_core = setting.cores
        proxies = [one for one in self.proxies if one.name != PEER]
        allow_connections(len(proxies) * setting.connections)
        with ExitStack() as stack:
            nodes = [
                stack.enter_context(self.node.running(other_core, _MEGABYTES)).port
                for _ in range(3)
            ]
            servers = {
                one.name: stack.enter_context(one.running(server_core, nodes, self.folder))
                for one in proxies
            }
            seconds = setting.seconds * _COMMANDS_SECONDS
            return measure_commands(setting, servers, seconds, Sizes(), names)


# Tables


_HEADING: Final = f"""
                          CPU per operation, µs                 operations    of {PEER}'s  memory
load           proxy        total    user  system  efficiency   per second     throughput      MB"""


def _show(row: Cost, memory: int) -> None:
    print(
        f"{row.scenario:<15}{row.server:<11}{row.microseconds:>7.2f}{row.user:>8.2f}"
        f"{row.system:>8.2f}{row.efficiency:>12.2f}{row.rate:>13,.0f}{row.rate_ratio:>15.2f}"
        f"{memory / 2**20:>8.0f}",
        flush=True,
    )


def _show_worst(rows: Sequence[Cost]) -> None:
    """Print the efficiency of every build of memlite, the lowest first."""
    print(f"\nefficiency ({PEER}'s processor time / the proxy's), the lowest first")
    for row in sorted(rows, key=lambda row: row.efficiency):
        print(f"  {row.efficiency:5.2f}  {row.server:<11}{LOADS[row.scenario].requests.summary}")


# The command line


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    listing = "\n".join(f"  {name:<15}{one.requests.summary}" for name, one in LOADS.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"loads (50 connections and 3 nodes unless stated otherwise):\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--load",
        action="append",
        choices=LOADS,
        help="only this load (repeatable; default: all)",
        metavar="NAME",
    )
    parser.add_argument("--rounds", type=int, default=5, help="per load (default: 5)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="per proxy and round (default: 2)"
    )
    parser.add_argument(
        "--traced", action="store_true", help="measure memlite with --trace-sample 1/100 as well"
    )
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="give all processes priority over others on the machine (needs root)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write measurements to this file")
    parser.add_argument("--nutcracker", metavar="PROGRAM", help="(default: the installed one)")
    parser.add_argument(
        "--memcached-proxy", metavar="PROGRAM", help="measure the proxy of this memcached as well"
    )
    parser.add_argument(
        "--command",
        action="append",
        choices=["all", *_commands()],
        default=[],
        help="instead of loads, measure this command of the text protocol, or all, on memlite's"
        " and memcached's proxies; a tenth of --seconds for each (repeatable; an unknown name"
        " lists the valid ones)",
        metavar="NAME",
    )
    who.add_options(parser)
    options = parser.parse_args(arguments)
    if options.command and (options.load or options.memcached_proxy is None):
        parser.error("--command requires --memcached-proxy, and cannot be combined with --load")
    options.load = [] if options.command else list(dict.fromkeys(options.load or LOADS))
    if "all" in options.command:
        options.command = _commands()
    for name in ("rounds", "seconds"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name} must be positive")
    return options


def _proxies(options: argparse.Namespace, builds: Sequence[Contestant]) -> list[Proxy]:
    proxies = [nutcracker(options.nutcracker)]
    if options.memcached_proxy is not None:
        proxies.append(memcached_proxy(options.memcached_proxy))
    proxies += [memlite_proxy(build) for build in builds]
    if options.traced:
        trace = ["--trace", os.devnull, "--trace-sample", "1/100"]
        proxies.append(memlite_proxy(builds[0], "traced", trace))
    return proxies


def bench(options: argparse.Namespace) -> int:
    """Measure and print; return the exit code.

    Raises:
        BenchError: a requirement is missing, or a program failed.
    """
    cores = two_cores()
    if options.real_time:
        with real_time() as permitted:
            if not permitted:
                raise BenchError("--real-time: not permitted")
            return _bench(options, cores)
    return _bench(options, cores)


def _bench(options: argparse.Namespace, cores: tuple[int, int]) -> int:
    node, *builds = who.contestants(options)
    proxies = _proxies(options, builds)
    rows: Rows = []
    shown: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="memlite-bench-") as directory:
        folder = Path(directory)
        setting = Setting(
            builds, cores, compile_loadgen(folder), options.rounds, options.seconds, connections=50
        )
        print(who.describe_cpu())
        print(f"nodes: {node.description}")
        for one in proxies:
            print(f"{one.name}: {one.description}")
        print(f"medians of {options.rounds} rounds of {options.seconds:g} s")
        measuring = Bench(proxies, node, setting, folder)
        if options.command:
            samples = measuring.compare_commands(options.command)
            progress("")
            show_cells(samples, "proxy")
            rows += [one.as_json() for one in samples]
        else:
            print(_HEADING, flush=True)
        for name in options.load:
            measured, memory = measuring.compare(name)
            progress("")
            for row in costs(measured):
                _show(row, memory[row.server])
                if any(row.server == build.name for build in builds):
                    shown.append(row)
            rows += [one.as_json() | {"memory": memory[one.server]} for one in measured]
    if shown:
        _show_worst(shown)
    if options.json is not None:
        content = {"cpu": who.describe_cpu(), "measurements": rows}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code: 0, or 2 if it cannot run."""
    options = parse(arguments)
    return exit_code("bench_proxy", lambda: bench(options))


if __name__ == "__main__":
    sys.exit(main())
