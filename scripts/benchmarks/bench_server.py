"""Compare the costs of memlite and memcached, measured in the same run.

Figures from one machine say little about another, and those of a shared machine change from minute
to minute. Therefore each round measures the servers one right after the other, and the result is
the ratio within a round. Needs Linux, two cores, a C compiler and memcached; see ``--help``.
bench_memory.py measures memory, bench_stalls.py measures stalls.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from harness import contestants as who
from harness.commands import compare_commands, show_cells
from harness.eviction import compare_eviction, eviction_costs
from harness.latency import (
    ROUND_SECONDS,
    compare_latency,
    late_limit,
    response_times,
    rounds_that_count,
)
from harness.matrix import GROUPS, compare_matrix, entries
from harness.processes import compile_loadgen, exit_code, program, progress, real_time, two_cores
from harness.requests import Sizes, commands
from harness.scaling import CORES, rows, scalings
from harness.scenarios import SCENARIOS, Setting, compare, costs
from harness.startup import compare_starts, start_ups
from harness.workers import LOADS, compare_threads

_GATED: Final = "get-set"  # the scenario that --minimum checks
# A measurement of a command, or of a load on several threads, lasts this share of --seconds,
# because there are many of them.
_SHORT: Final = 0.1
_MOST_THREADS: Final = 32

Rows = list[dict[str, Any]]

# Tables


_COSTS_HEADING: Final = """
                             CPU per operation, µs                 operations   of memcached's
scenario     server         total    user  system  efficiency      per second       throughput"""


def show_costs(setting: Setting, name: str, minimum: float | None) -> tuple[Rows, bool]:
    """Measure and print a scenario; return its rounds, and whether memlite meets `minimum`."""
    measured = compare(setting, name)
    progress("")
    enough = True
    for row in costs(measured):
        print(
            f"{row.scenario:<13}{row.server:<11}{row.microseconds:>9.2f}{row.user:>8.2f}"
            f"{row.system:>8.2f}{row.efficiency:>12.2f}{row.rate:>16,.0f}{row.rate_ratio:>17.2f}",
            flush=True,
        )
        if minimum is not None and row.server == "memlite" and row.efficiency < minimum:
            print(f"\nefficiency {row.efficiency:.3f} in {name} is below {minimum:g}\n")
            enough = False
    return [one.as_json() for one in measured], enough


_EVICTION_HEADING: Final = """
CPU per set, µs: {keys:,} keys, -m {megabytes}
                         evicting  with room   ratio  evictions per set"""


def show_eviction(setting: Setting, megabytes: int) -> Rows:
    """Measure and print the cost of evictions; return the rounds."""
    measured = compare_eviction(setting, megabytes)
    progress("")
    keys = max(int(one.load["keys"]) for one in measured)
    print(_EVICTION_HEADING.format(keys=keys, megabytes=megabytes))
    for row in eviction_costs(measured):
        print(
            f"eviction     {row.server:<11}{row.evicting:>9.2f}{row.roomy:>11.2f}"
            f"{row.ratio:>8.2f}{row.evictions:>19.2f}",
            flush=True,
        )
        if row.refused:
            print(
                f"    {row.refused:,} of its {row.sets:,} sets were refused for lack of memory",
                flush=True,
            )
    return [one.as_json() for one in measured]


_LATENCY_HEADING: Final = """
Load: {name:<19} operations per second   response time, µs       p99 of  generator late,
                         closed loop  half of it       p50      p99  memcached's      p99, µs"""


def show_latency(setting: Setting, names: Sequence[str]) -> Rows:
    """Measure and print response times at half load of each scenario, worst first; return all."""
    with real_time() as allowed:
        found = {name: compare_latency(setting, name) for name in names}
    progress("")
    tables = {name: response_times(measured, late_limit(name)) for name, measured in found.items()}
    for name in sorted(names, key=lambda name: -max(row.ratio for row in tables[name])):
        print(_LATENCY_HEADING.format(name=name))
        for row in tables[name]:
            print(
                f"half-load    {row.server:<11}{row.capacity:>12,.0f}{row.rate:>12,.0f}"
                f"{row.p50:>10.0f}{row.p99:>9.0f}{row.ratio:>12.2f}×{row.late:>16.0f}",
                flush=True,
            )
        measured, limit = found[name], late_limit(name)
        count = len(rounds_that_count(measured, limit))
        rounds = len({one.round for one in measured})
        print(
            f"{count} of {rounds} rounds of {ROUND_SECONDS:g} s count: in the others the load"
            f" generator was late by more than {limit:,.0f} µs at p99"
        )
    if not allowed:
        print("without real-time priority, which requires root: other processes affect the figures")
    return [one.as_json() | {"of": name} for name in names for one in found[name]]


_START_HEADING: Final = """
ms from exec, medians of {starts}                     first connection  first reply  slowest"""


def show_starts(setting: Setting, starts: int) -> Rows:
    """Measure and print start-up times; return the rounds."""
    measured = compare_starts(setting, starts)
    progress("")
    print(_START_HEADING.format(starts=starts))
    for row in start_ups(measured):
        connected = "" if row.connected is None else f"{1e3 * row.connected:.1f}"
        print(
            f"start-up     {row.server:<35}{connected:>18}{1e3 * row.answered:>13.1f}"
            f"{1e3 * row.slowest:>9.1f}",
            flush=True,
        )
    return [one.as_json() for one in measured]


def show_commands(
    setting: Setting, sizes: Sizes, items: int, only: Sequence[str], threads: int
) -> Rows:
    """Measure and print the cost of each command; return the samples."""
    seconds = setting.seconds * _SHORT
    measured = compare_commands(setting, seconds, sizes, items, only, threads)
    progress("")
    show_cells(measured, "server")
    return [one.as_json() for one in measured]


_MATRIX_HEADING: Final = """
CPU per operation, µs, worst first                                                 throughput
                                            server     memcached    its efficiency of memcached's"""


def show_matrix(setting: Setting, groups: Sequence[str], items: int) -> Rows:
    """Measure and print the cost of gets and sets of many sizes; return the samples."""
    measured = compare_matrix(setting, groups, items)
    progress("")
    print(_MATRIX_HEADING)
    for one in entries(measured, setting.contestants[0].name):
        print(
            f"matrix  {one.shape + ', ' + one.request:<36}{one.server:<11}{one.peer:>9.2f}"
            f"{one.microseconds:>7.2f}{one.efficiency:>11.2f}{one.rate_ratio:>15.2f}",
            flush=True,
        )
    return measured


_THREADS_HEADING: Final = """
CPU per operation of all threads or workers together, µs; relative to 1 of them
load      server      -t     CPU  relative  efficiency  operations/s  busiest of them"""

_SCALING_HEADING: Final = """
Throughput relative to one core, derived: X(N) = N / c(N) if N workers take c(N) per operation, and
c(N) = c(1) · (1 + σ(N − 1) + κN(N − 1)), fitted to the rows above; [95% confidence interval]"""


def show_threads(setting: Setting, threads: Sequence[int], names: Sequence[str]) -> Rows:
    """Measure and print the cost of several threads or workers; return the samples."""
    measured = compare_threads(setting, threads, names, setting.seconds * _SHORT)
    progress("")
    print(_THREADS_HEADING)
    for row in rows(measured):
        print(
            f"{row.load:<10}{row.server:<11}{row.threads:>3}{row.microseconds:>8.2f}"
            f"{row.relative:>10.2f}{row.efficiency:>12.2f}{row.rate:>14,.0f}{row.busiest:>9.2f} ×",
            flush=True,
        )
    derived = scalings(measured)
    if derived:
        print(_SCALING_HEADING)
        print(f"load      server          σ       κ{''.join(f'{one:>13} cores' for one in CORES)}")
    for fit in derived:
        cells = "".join(
            f"{f'{at:.1f}' + (f' [{low:.1f}, {high:.1f}]' if high < math.inf else ''):>19}"
            for at, low, high in fit.capacities
        )
        print(f"{fit.load:<10}{fit.server:<11}{fit.contention:>6.3f}{fit.coherency:>8.4f}{cells}")
    return [one.as_json() for one in measured]


# The command line


OTHERS: Final = {
    "commands": "each command, one at a time and 16 per write; a tenth of --seconds for each",
    "eviction": "sets of four times as many keys as -m holds, compared with room for all of them",
    "half-load": "response times in open loop, at half of each server's own capacity",
    "matrix": "gets and sets: values of 10 B to 1 MB, keys, hit ratios, 1 to 5,000 connections",
    "start-up": "from exec to the first connection and reply",
    "threads": "each of --threads under several loads; a tenth of --seconds for each",
}


def _threads(text: str) -> list[int]:
    counts = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
    if not all(0 < count <= _MOST_THREADS for count in counts):
        raise argparse.ArgumentTypeError(
            f"{text}: must be numbers from 1 to {_MOST_THREADS}, separated by commas"
        )
    return sorted(set(counts))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    summaries = {name: one.summary for name, one in SCENARIOS.items()} | OTHERS
    listing = "\n".join(f"  {name:<14}{summary}" for name, summary in summaries.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"scenarios:\n{listing}\n\nefficiency: memcached's CPU time per operation divided by"
        "\nthe server's, the median over rounds; 1.00 means as cheap as memcached.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=summaries,
        help="only this scenario (repeatable; default: all)",
        metavar="NAME",
    )
    parser.add_argument("--rounds", type=int, default=5, help="per scenario (default: 5)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="per server and round (default: 2)"
    )
    parser.add_argument("--connections", type=int, default=50, help="(default: 50)")
    parser.add_argument(
        "--half-load-of",
        action="append",
        choices=SCENARIOS,
        default=[],
        help="the load of half-load (repeatable; default: get-set)",
        metavar="NAME",
    )
    parser.add_argument(
        "--starts", type=int, default=10, help="of each server in start-up (default: 10)"
    )
    parser.add_argument(
        "--megabytes", type=int, default=64, metavar="N", help="-m in eviction (default: 64)"
    )
    parser.add_argument(
        "--generator",
        choices=("own", "memtier"),
        default="own",
        help="of the scenarios from get-set to mb-gets (default: own, loadgen.c)",
    )
    parser.add_argument(
        "--memtier",
        default="memtier_benchmark",
        metavar="PROGRAM",
        help="(default: the installed memtier_benchmark)",
    )
    group = parser.add_argument_group("the scenario commands")
    group.add_argument(
        "--command",
        action="append",
        choices=commands(Sizes()),
        default=[],
        help="only this command (repeatable; default: all)",
        metavar="NAME",
    )
    group.add_argument("--key-size", type=int, default=Sizes().key, help="bytes (default: 20)")
    group.add_argument("--value-size", type=int, default=Sizes().value, help="(default: 100)")
    group.add_argument(
        "--items", type=int, default=0, metavar="N", help="other items, stored first (default: 0)"
    )
    group.add_argument(
        "--command-threads", type=int, default=1, metavar="N", help="-t of servers (default: 1)"
    )
    group = parser.add_argument_group("the scenario matrix")
    group.add_argument(
        "--group",
        action="append",
        choices=GROUPS,
        default=[],
        help="only this part (repeatable; default: all, but connections with --items): "
        + ", ".join(GROUPS),
        metavar="NAME",
    )
    group = parser.add_argument_group("the scenario threads")
    group.add_argument(
        "--threads",
        type=_threads,
        metavar="LIST",
        help="numbers of threads (-t) of all servers; selects this scenario (default: 1,2,4)",
    )
    group.add_argument(
        "--load",
        action="append",
        choices=LOADS,
        default=[],
        help="only this load (repeatable; default: all): " + ", ".join(LOADS),
        metavar="NAME",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write measurements to this file")
    parser.add_argument(
        "--minimum",
        type=float,
        metavar="RATIO",
        help=f"exit with 1 if memlite's efficiency in {_GATED} is lower",
    )
    who.add_options(parser)
    options = parser.parse_args(arguments)
    chosen = options.scenario or (["threads"] if options.threads else summaries)
    options.scenario = list(dict.fromkeys(chosen))
    for name in ("rounds", "seconds", "connections", "starts", "megabytes", "command_threads"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be positive")
    fault = Sizes(options.key_size, options.value_size).fault()
    if fault:
        parser.error(fault)
    if options.items < 0:
        parser.error("--items must not be negative")
    if options.minimum is not None and _GATED not in options.scenario:
        parser.error(f"--minimum requires the scenario {_GATED}")
    return options


def bench(options: argparse.Namespace) -> int:
    """Measure and print; return the exit code.

    Raises:
        BenchError: a requirement is missing, or a server failed.
    """
    cores = two_cores()
    parties = who.contestants(options)
    memtier = ""
    if options.generator == "memtier":
        memtier = program(options.memtier, "it generates the load; see --generator")
    rows: Rows = []
    enough = True
    with tempfile.TemporaryDirectory(prefix="memlite-bench-") as directory:
        setting = Setting(
            parties,
            cores,
            compile_loadgen(Path(directory)),
            options.rounds,
            options.seconds,
            options.connections,
            memtier,
        )
        who.introduce(parties)
        print(
            f"{options.connections} connections, medians of {options.rounds} rounds of"
            f" {options.seconds:g} s",
            flush=True,
        )
        loads = [name for name in options.scenario if name in SCENARIOS]
        if loads:
            print(_COSTS_HEADING, flush=True)
        for name in loads:
            minimum = options.minimum if name == _GATED else None
            measured, good = show_costs(setting, name, minimum)
            rows += measured
            enough = enough and good
        others: dict[str, Callable[[], Rows]] = {
            "commands": lambda: show_commands(
                setting,
                Sizes(options.key_size, options.value_size),
                options.items,
                options.command,
                options.command_threads,
            ),
            "eviction": lambda: show_eviction(setting, options.megabytes),
            "half-load": lambda: show_latency(setting, options.half_load_of or [_GATED]),
            "matrix": lambda: show_matrix(setting, options.group or list(GROUPS), options.items),
            "start-up": lambda: show_starts(setting, options.starts),
            "threads": lambda: show_threads(
                setting, options.threads or [1, 2, 4], options.load or list(LOADS)
            ),
        }
        for name, show in others.items():
            if name in options.scenario:
                rows += show()
    if options.json is not None:
        write_json(options.json, parties, options, rows)
    return 0 if enough else 1


def write_json(
    file: Path, parties: Sequence[who.Contestant], options: argparse.Namespace, rows: Rows
) -> None:
    """Write every measurement to a file."""
    names = ["rounds", "seconds", "connections", "starts", "megabytes"]
    names += ["key_size", "value_size", "items", "command_threads", "generator", "threads", "load"]
    content = {
        "cpu": who.describe_cpu(),
        "servers": {one.name: one.description for one in parties},
        "settings": {name: getattr(options, name) for name in names},
        "measurements": rows,
    }
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code: 0, 1 below ``--minimum``, 2 if it cannot run."""
    options = parse(arguments)
    return exit_code("bench_server", lambda: bench(options))


if __name__ == "__main__":
    sys.exit(main())
