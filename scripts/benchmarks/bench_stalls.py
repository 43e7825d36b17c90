"""Measure how long clients wait while another client keeps the server busy.

A probe requests one key a thousand times a second on its own connections, at times that do not
depend on the replies; response times are measured from these times. Meanwhile other connections
flush or scan a million items, store two million, store three million in a full cache, or transfer
large values, some of which displace thousands of small ones. memlite is compared with memcached,
and each of them with itself when idle, which shows the noise of the machine. Needs Linux, two
cores, a C compiler and memcached; see ``--help``.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.contestants import Contestant, add_options, contestants, describe_cpu, introduce
from harness.processes import (
    BenchError,
    Running,
    compile_loadgen,
    exit_code,
    load,
    pinned,
    probing,
    progress,
    two_cores,
)
from harness.wire import Wire

_ROOM_MEGABYTES: Final = 4096
# With this much memory per item, both servers have to evict.
_BYTES_PER_ITEM: Final = 341
_LEAST_MEGABYTES: Final = 8  # memcached's minimum with items this large
_RATE: Final = 1_000.0
_LARGE: Final = 2**20
_KEYS_THAT_NEVER_FIT: Final = 5_000  # values of _LARGE bytes
_TURNED_OVER: Final = 3
_PAUSE_SECONDS: Final = 0.1
_PROBE_SECONDS: Final = 10.0
# An underestimate, so that all items are stored before the first expires.
_ITEMS_STORED_PER_SECOND: Final = 80_000


@dataclass(frozen=True, slots=True)
class Setting:
    """The common settings of all situations.

    Attributes:
        cores: one for servers, one for the probe and the other load.
        loadgen: the compiled load generator.
        items: the number of items stored in advance, or half the number stored meanwhile.
        seconds: how long to observe.
        threads: threads or workers of all servers.
    """

    cores: tuple[int, int]
    loadgen: Path
    items: int
    seconds: float
    threads: int = 1

    def store(self, server: Running, items: int, exptime: int = 0) -> None:
        """Store `items` items of 100 bytes."""
        self.load(server, f"--keys={items}", "--prefill", "--pipeline=50", f"--exptime={exptime}")

    def load(self, server: Running, *arguments: str) -> None:
        """Run the load generator on the probe's core, when the probe leaves it idle."""
        common = ["--connections=4", *arguments]
        load(self.loadgen, server.port, self.cores[1], common, background=True)


@dataclass(frozen=True, slots=True)
class Situation:
    """An activity that might stall other clients.

    Attributes:
        summary: one line for ``--help``.
        act: runs while the probe runs.
        prepare: runs before.
        full: whether the cache is full once all items are stored.
        options: further options of the servers.
    """

    summary: str
    act: Callable[[Setting, Running], None]
    prepare: Callable[[Setting, Running], None] | None = None
    full: bool = False
    options: tuple[str, ...] = ()


def _observe(setting: Setting, server: Running) -> None:
    time.sleep(setting.seconds)


def _fill(setting: Setting, server: Running) -> None:
    setting.store(server, setting.items)


def _fill_mortal(setting: Setting, server: Running) -> None:
    setting.store(server, setting.items, _time_to_live(setting))


def _time_to_live(setting: Setting) -> int:
    return 2 + setting.items // _ITEMS_STORED_PER_SECOND


def _repeat(command: str) -> Callable[[Setting, Running], None]:
    """Return an activity that sends a command repeatedly, with pauses."""

    def act(setting: Setting, server: Running) -> None:
        end = time.monotonic() + setting.seconds
        with Wire(server.port) as wire:
            while time.monotonic() < end:
                if command.startswith("stats"):
                    wire.lines(command.encode())
                else:
                    wire.ask(command.encode())
                time.sleep(_PAUSE_SECONDS)

    return act


def _flush(setting: Setting, server: Running) -> None:
    time.sleep(_PAUSE_SECONDS)
    with Wire(server.port) as wire:
        wire.ask(b"flush_all")
    time.sleep(setting.seconds)


def _expire(setting: Setting, server: Running) -> None:
    time.sleep(_time_to_live(setting) + 1)
    _repeat("lru_crawler crawl all")(setting, server)


def _grow(setting: Setting, server: Running) -> None:
    setting.store(server, 2 * setting.items)


def _turn_over(setting: Setting, server: Running) -> None:
    sets = _TURNED_OVER * setting.items
    setting.load(
        server,
        f"--keys={sets}",
        "--gets=0",
        "--sets=1",
        "--pipeline=50",
        f"--operations={sets}",
    )


def _move_large(setting: Setting, server: Running) -> None:
    setting.load(
        server,
        f"--value-size={_LARGE}",
        "--keys=10",
        "--gets=1",
        "--sets=1",
        "--connections=1",
        f"--seconds={setting.seconds}",
    )


def _fill_and_use(setting: Setting, server: Running) -> None:
    _fill(setting, server)
    gets = _TURNED_OVER * setting.items
    setting.load(
        server, f"--keys={setting.items}", "--sets=0", "--pipeline=50", f"--operations={gets}"
    )


def _displace(setting: Setting, server: Running) -> None:
    setting.load(
        server,
        f"--value-size={_LARGE}",
        f"--keys={_KEYS_THAT_NEVER_FIT}",
        "--gets=0",
        "--sets=1",
        "--connections=1",
        f"--seconds={setting.seconds}",
    )


SITUATIONS: Final = {
    "nothing": Situation("no other load", _observe),
    "flush_all": Situation("one flush_all of a million items", _flush, _fill),
    "stats-items": Situation(
        "stats items of a million, ten times a second", _repeat("stats items"), _fill
    ),
    "stats-sizes": Situation(
        "stats sizes of a million, ten times a second",
        _repeat("stats sizes"),
        _fill,
        options=("-o", "track_sizes"),
    ),
    "crawl": Situation(
        "lru_crawler crawl all of a million that have not expired",
        _repeat("lru_crawler crawl all"),
        _fill,
    ),
    "expiry": Situation("a million items expire, and are then crawled", _expire, _fill_mortal),
    "growth": Situation("from an empty cache to two million items, with pipelined sets", _grow),
    "eviction": Situation(
        "a million items are replaced by three million others", _turn_over, _fill, full=True
    ),
    "large": Situation("sets and gets of 1 MiB values in a loop", _move_large),
    "displacing": Situation(
        "a million items in use are replaced by values of 1 MiB",
        _displace,
        _fill_and_use,
        full=True,
    ),
}


# Measuring and printing


def _until_probed(server: Running) -> None:
    """Wait until the probe's requests arrive.

    Raises:
        BenchError: they do not in time.
    """
    begun = time.monotonic()
    with Wire(server.port) as wire:
        while int(wire.stats()["cmd_get"]) == 0:
            if time.monotonic() > begun + _PROBE_SECONDS:
                raise BenchError("the probe did not start")
            time.sleep(0.01)


def measure(setting: Setting, name: str, contestant: Contestant) -> dict[str, Any]:
    """Probe a fresh server in a situation; return the response times, in microseconds."""
    situation = SITUATIONS[name]
    room = _ROOM_MEGABYTES
    if situation.full:
        room = max(_LEAST_MEGABYTES, setting.items * _BYTES_PER_ITEM >> 20)
    further = ["-I", "2m", *situation.options]
    if setting.threads > 1:
        further += ["-t", str(setting.threads)]
    with contestant.running(setting.cores[0], room, *further) as server:
        with Wire(server.port) as wire:
            wire.stats()  # wait for the start, and the imports of the first request
        if situation.prepare is not None:
            situation.prepare(setting, server)
        with (
            probing(setting.loadgen, server.port, setting.cores[1], _RATE) as printed,
            pinned(setting.cores[1]),
        ):
            _until_probed(server)
            situation.act(setting, server)
    return {
        "situation": name,
        "server": contestant.name,
        "probes": printed["operations"],
        **{figure: printed[figure] for figure in ("p50_us", "p99_us", "max_us", "late_max_us")},
    }


_HEADING: Final = """
response time of a get, ms
situation    server       probes     p50     p99     max  probe late by up to"""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    listing = "\n".join(f"  {name:<14}{one.summary}" for name, one in SITUATIONS.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"situations:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--situation",
        action="append",
        choices=SITUATIONS,
        help="only this situation (repeatable; default: all)",
        metavar="NAME",
    )
    parser.add_argument(
        "--items", type=int, default=1_000_000, help="number of items (default: 1000000)"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each (default: 3)")
    parser.add_argument(
        "-t",
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="threads or workers of all servers, on one core together (default: 1)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add_options(parser)
    options = parser.parse_args(arguments)
    options.situation = list(dict.fromkeys(options.situation or SITUATIONS))
    if options.items < 1 or options.seconds <= 0 or options.threads < 1:
        parser.error("--items, --seconds and -t must be positive")
    return options


def bench(options: argparse.Namespace) -> int:
    """Measure and print; return the exit code.

    Raises:
        BenchError: a requirement is missing, or a server failed.
    """
    cores = two_cores()
    parties = contestants(options)
    rows = []
    with tempfile.TemporaryDirectory(prefix="memlite-bench-") as directory:
        setting = Setting(
            cores, compile_loadgen(Path(directory)), options.items, options.seconds, options.threads
        )
        introduce(parties)
        print(_HEADING, flush=True)
        for name in options.situation:
            for contestant in parties:
                progress(f"{name}: {contestant.name}")
                row = measure(setting, name, contestant)
                progress("")
                milliseconds = "".join(
                    f"{row[figure] / 1000:>8.2f}" for figure in ("p50_us", "p99_us", "max_us")
                )
                print(
                    f"{name:<13}{contestant.name:<11}{row['probes']:>8,}{milliseconds}"
                    f"{row['late_max_us'] / 1000:>21.2f}",
                    flush=True,
                )
                rows.append(row)
    if options.json is not None:
        servers = {one.name: one.description for one in parties}
        about = {"cpu": describe_cpu(), "threads": options.threads}
        content = {**about, "servers": servers, "situations": rows}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code: 0, or 2 if it cannot run."""
    options = parse(arguments)
    return exit_code("bench_stalls", lambda: bench(options))


if __name__ == "__main__":
    sys.exit(main())
