"""Measure resident memory, compared with memcached: per item, per connection, and relative to -m.

Three figures: the memory of an item with a 20-byte key and a 100-byte value; the memory of an idle
connection; and how far a server grows beyond ``-m`` while values of 10 to 10,000 bytes come and go,
in phases of different sizes, which write many times the budget in total. Needs Linux, two cores, a
C compiler and memcached; see ``--help``.
"""

import argparse
import contextlib
import json
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness.churn import PHASES, churn
from harness.contestants import Contestant, add_options, contestants, describe_cpu, introduce
from harness.processes import (
    HOST,
    BenchError,
    compile_loadgen,
    exit_code,
    load,
    pinned,
    progress,
    resident,
    two_cores,
)
from harness.wire import Wire

_KEY_SIZE: Final = 20
_VALUE_SIZE: Final = 100
_ROOM_MEGABYTES: Final = 4096
_SPARE_DESCRIPTORS: Final = 100
# Excludes one-time costs of the first connections and commands from the figures.
_WARM_UP: Final = 1_000

Rows = list[dict[str, Any]]


# Items


def bytes_per_item(
    contestant: Contestant, cores: tuple[int, int], loadgen: Path, items: int
) -> Any:
    """Fill a server that has room for all items; return the memory of an item."""
    sizes = [f"--key-size={_KEY_SIZE}", f"--value-size={_VALUE_SIZE}", "--connections=4"]
    with contestant.running(cores[0], _ROOM_MEGABYTES) as server:
        warm = [*sizes, "--keys=100", f"--operations={_WARM_UP}", "--pipeline=16"]
        load(loadgen, server.port, cores[1], warm)
        with Wire(server.port) as wire:
            wire.ask(b"flush_all")
            before, counted = resident(server.pid), int(wire.stats()["bytes"])
            load(
                loadgen,
                server.port,
                cores[1],
                [*sizes, f"--keys={items}", "--prefill", "--pipeline=16"],
            )
            after, stats = resident(server.pid), wire.stats()
    if int(stats["curr_items"]) < items:
        raise BenchError(f"{contestant.name} holds {stats['curr_items']} of {items} items")
    return {
        "figure": "item",
        "server": contestant.name,
        "items": items,
        "resident_bytes": (after - before) / items,
        "counted_bytes": (int(stats["bytes"]) - counted) / items,
    }


def show_items(
    parties: Sequence[Contestant], cores: tuple[int, int], loadgen: Path, items: int
) -> Rows:
    """Measure and print bytes per item."""
    print(f"\nbytes per item: {items:,} of {_KEY_SIZE}-byte keys and {_VALUE_SIZE}-byte values")
    print("             resident  as it counts (stats: bytes)", flush=True)
    rows = []
    for contestant in parties:
        progress(f"items: {contestant.name}")
        row = bytes_per_item(contestant, cores, loadgen, items)
        progress("")
        print(
            f"{contestant.name:<11}{row['resident_bytes']:>10.1f}{row['counted_bytes']:>14.1f}",
            flush=True,
        )
        rows.append(row)
    return rows


# Connections


def allow_descriptors(connections: int) -> None:
    """Raise the limit on open files for this process and the servers it starts.

    Raises:
        BenchError: the system does not permit enough.
    """
    needed = connections + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    except (OSError, OverflowError, ValueError):
        raise BenchError(
            f"{connections} connections need {needed} open files, and only {hard} are permitted"
            " (ulimit -Hn); use fewer --connections"
        ) from None


def kib_per_connection(contestant: Contestant, cores: tuple[int, int], connections: int) -> Any:
    """Open idle connections; return the memory of each, before and after its first use."""
    limit = str(connections + connections // 5 + _SPARE_DESCRIPTORS)
    with (
        contestant.running(cores[0], 64, "-c", limit) as server,
        contextlib.ExitStack() as stack,
        pinned(cores[1]),
        Wire(server.port) as wire,
    ):
        wire.ask(b"version")
        before = resident(server.pid)
        clients = []
        for count in range(connections):
            clients.append(stack.enter_context(socket.create_connection((HOST, server.port), 10)))
            if count % 100 == 0:
                wire.ask(b"version")  # so that the listener's backlog does not fill up
        _until(wire, connections)
        unused = resident(server.pid)
        for client in clients:
            client.sendall(b"get nothing\r\n")
        for client in clients:
            if client.recv(100) != b"END\r\n":
                raise BenchError(f"{contestant.name} did not answer on a connection")
        used = resident(server.pid)
    return {
        "figure": "connection",
        "server": contestant.name,
        "connections": connections,
        "unused_kib": (unused - before) / connections / 1024,
        "used_kib": (used - before) / connections / 1024,
    }


def _until(wire: Wire, connections: int) -> None:
    """Wait until the server has accepted this many connections.

    Raises:
        BenchError: it has not done so after 10 seconds.
    """
    deadline = time.monotonic() + 10
    while (there := int(wire.stats()["curr_connections"])) < connections:
        if time.monotonic() > deadline:
            raise BenchError(f"the server has {there} of {connections} connections")
        time.sleep(0.01)


def show_connections(
    parties: Sequence[Contestant], cores: tuple[int, int], connections: int
) -> Rows:
    """Measure and print KiB per idle connection."""
    allow_descriptors(connections)
    print(f"\nKiB per connection: {connections:,} idle ones")
    print("           never used  after a get", flush=True)
    rows = []
    for contestant in parties:
        progress(f"connections: {contestant.name}")
        row = kib_per_connection(contestant, cores, connections)
        progress("")
        print(
            f"{contestant.name:<11}{row['unused_kib']:>10.2f}{row['used_kib']:>13.2f}", flush=True
        )
        rows.append(row)
    return rows


# The budget


class Growth:
    """Growth of a server's resident memory since the start, as a share of its budget."""

    def __init__(self, pid: int, budget: int) -> None:
        self._pid = pid
        self._budget = budget
        self._before = resident(pid)
        self.most = 0.0

    def now(self) -> float:
        """Return the current growth, and update the maximum."""
        growth = (resident(self._pid) - self._before) / self._budget
        self.most = max(self.most, growth)
        return growth


def show_budget(
    parties: Sequence[Contestant], cores: tuple[int, int], megabytes: int, times: float
) -> Rows:
    """Run the churn with a budget, and print how much each server grows."""
    print(f"\nresident growth / -m {megabytes}, each phase writes {times:g} times as much")
    print(
        "server     phase                           at its end     most     items  evictions"
        "   refused",
        flush=True,
    )
    rows = []
    budget = megabytes * 2**20
    for contestant in parties:
        with (
            contestant.running(cores[0], megabytes) as server,
            pinned(cores[1]),
            Wire(server.port) as wire,
        ):
            wire.pipelined([b"set warm 0 0 4\r\nwarm\r\n", b"delete warm\r\n"] * _WARM_UP)
            growth = Growth(server.pid, budget)
            most = 0.0
            for number, phase in enumerate(PHASES):
                progress(f"-m {megabytes}: {contestant.name}, {phase.name}")
                growth.most = 0.0
                replies = churn(wire, phase, budget, times, number, growth.now)
                refused = replies.total() - sum(
                    replies[known] for known in (b"STORED", b"DELETED", b"NOT_FOUND")
                )
                stats = wire.stats()
                row = {
                    "figure": "budget",
                    "server": contestant.name,
                    "megabytes": megabytes,
                    "phase": phase.name,
                    "end": growth.now(),
                    "most": growth.most,
                    "items": int(stats["curr_items"]),
                    "evictions": int(stats["evictions"]),
                    "refused": refused,
                }
                most = max(most, growth.most)
                progress("")
                print(
                    f"{contestant.name:<11}{phase.name:<32}{row['end']:>10.3f}{row['most']:>9.3f}"
                    f"{row['items']:>10,}{row['evictions']:>11,}{refused:>10,}",
                    flush=True,
                )
                rows.append(row)
            print(
                f"{contestant.name:<11}{'the whole churn':<32}{growth.now():>10.3f}{most:>9.3f}",
                flush=True,
            )
    return rows


# The command line


_FIGURES: Final = ("items", "connections", "budget")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--figure", action="append", choices=_FIGURES, help="only this figure (repeatable)"
    )
    parser.add_argument("--items", type=int, default=500_000, help="(default: 500000)")
    parser.add_argument("--connections", type=int, default=10_000, help="(default: 10000)")
    parser.add_argument(
        "--megabytes",
        type=int,
        action="append",
        metavar="N",
        help="-m of the churn (repeatable; default: 64 and 128)",
    )
    parser.add_argument(
        "--times", type=float, default=3.0, help="how many times -m each phase writes (default: 3)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add_options(parser)
    options = parser.parse_args(arguments)
    options.figure = options.figure or list(_FIGURES)
    options.megabytes = options.megabytes or [64, 128]
    if min(options.items, options.connections, options.times, *options.megabytes) <= 0:
        parser.error("--items, --connections, --times and --megabytes must be positive")
    return options


def bench(options: argparse.Namespace) -> int:
    """Measure and print; return the exit code.

    Raises:
        BenchError: a requirement is missing, or a server failed.
    """
    cores = two_cores()
    parties = contestants(options)
    rows: Rows = []
    with tempfile.TemporaryDirectory(prefix="memlite-bench-") as directory:
        loadgen = compile_loadgen(Path(directory))
        introduce(parties)
        if "items" in options.figure:
            rows += show_items(parties, cores, loadgen, options.items)
        if "connections" in options.figure:
            rows += show_connections(parties, cores, options.connections)
        if "budget" in options.figure:
            for megabytes in options.megabytes:
                rows += show_budget(parties, cores, megabytes, options.times)
    if options.json is not None:
        servers = {one.name: one.description for one in parties}
        content = {"cpu": describe_cpu(), "servers": servers, "figures": rows}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code: 0, or 2 if it cannot run."""
    options = parse(arguments)
    return exit_code("bench_memory", lambda: bench(options))


if __name__ == "__main__":
    sys.exit(main())
