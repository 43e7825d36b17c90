"""Measure what HTTP and OpenTelemetry cost a server, in processor time and in response times.

Servers with and without them run at the same time and are measured in turn, so that other load on
the machine affects all of them equally. First, each receives requests as fast as it can answer; the
figure is the processor time per operation, including that of the exporting thread. Then, two of
them receive requests at half of that rate, and one of these is scraped for its metrics once a
second. Needs Linux, two cores and a C compiler.

``--instructions`` counts the instructions of some commands instead, from `data_received` to
`write`, for which it needs valgrind; other checkouts can be compared with ``--variant``.
"""

import argparse
import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from harness.contestants import Contestant, add_options, contestants, in_turn
from harness.processes import (
    HOST,
    BenchError,
    Running,
    compile_loadgen,
    cpu_seconds,
    exit_code,
    free_port,
    load,
    program,
    progress,
    two_cores,
)

_MEGABYTES: Final = 256
_LOAD: Final = ("--connections=16", "--keys=10000", "--gets=9", "--sets=1")
_SCRAPE_SECONDS: Final = 1.0
_SCRAPES: Final = 200


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement of a server.

    Attributes:
        microseconds: its processor time per operation.
        rate: operations per second.
        p99: the 99th percentile of its response time in microseconds.
    """

    microseconds: float
    rate: float
    p99: float


class Scraper:
    """Asks for the metrics once a second.

    Args:
        port: the HTTP port.

    Attributes:
        milliseconds: how long each reply took.
    """

    def __init__(self, port: int) -> None:
        self._url = f"http://{HOST}:{port}/metrics"
        self.milliseconds: list[float] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Scrape while the block runs."""
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def scrape(self) -> None:
        """Scrape once, as Prometheus does."""
        headers = {"Accept": "application/openmetrics-text", "Accept-Encoding": "gzip"}
        with urllib.request.urlopen(urllib.request.Request(self._url, headers=headers)) as reply:
            reply.read()

    def _run(self, over: threading.Event) -> None:
        while not over.wait(_SCRAPE_SECONDS / 2):
            began = time.perf_counter()
            self.scrape()
            self.milliseconds.append((time.perf_counter() - began) * 1e3)
            over.wait(_SCRAPE_SECONDS / 2)


def variants(port: int, receiver: int) -> Mapping[str, Sequence[str]]:
    """Return the servers' options by name.

    Args:
        port: the HTTP port.
        receiver: the port of a receiver of OpenTelemetry's protocol.
    """
    otlp = ("--otlp", f"http://{HOST}:{receiver}")
    return {
        "off": (),
        "off again": (),
        "http": ("--http", str(port)),
        "otlp": otlp,
        "1/1000": (*otlp, "--trace-sample", "1/1000"),
        "1/100": (*otlp, "--trace-sample", "1/100"),
        "1/1": (*otlp, "--trace-sample", "1/1"),
    }


@contextlib.contextmanager
def receiving() -> Iterator[int]:
    """Run a receiver that discards all data; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Read the request, and reply."""
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


_COUNTED: Final = 2048
_REQUESTS: Final = {
    "get": b"get key\r\n",
    "set": b"set key 0 0 5\r\nvalue\r\n",
    "mg": b"mg key v\r\n",
    "incr": b"incr number 1\r\n",
}
_PROGRAM: Final = f"""
import os, random, sys
from memlite.config import load
from memlite.server.server import Server

class Nowhere:
    def get_extra_info(self, name, default=None): return default
    def is_closing(self): return False
    def write(self, data): pass
    def writelines(self, data): pass
    def close(self): pass
    abort = pause_reading = resume_reading = close
    def get_write_buffer_size(self): return 0
    def set_write_buffer_limits(self, high=None, low=None): pass

server = Server(load(sys.argv[1:], {{}}).config, [])
# The same reads are measured in each run.
server.sampler._random = random.Random(1).random
server.counters.sample_after(128)
server.counters.until_slow_sample = 128
connection = server.connect()
connection.connection_made(Nowhere())
receive = connection.data_received
receive(b"set key 0 0 5\\r\\nvalue\\r\\n")
receive(b"set number 0 0 10\\r\\n1000000000\\r\\n")
requests = {tuple(_REQUESTS.values())}
for request in requests:
    for _ in range(512):
        receive(request)
for request in requests:
    os.getppid()
    for _ in range({_COUNTED}):
        receive(request)
os.getppid()
"""


def instructions(contestant: Contestant, further: Sequence[str]) -> list[float]:
    """Return the instructions of each of `_REQUESTS`, as callgrind counts them."""
    command = [program("valgrind", "it counts the instructions"), "--tool=callgrind"]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found"
        command += [f"--callgrind-out-file={found}", "--dump-before=os_getppid"]
        done = subprocess.run(
            [*command, str(contestant.interpreter), "-c", _PROGRAM, *further],
            env={**contestant.environment, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
        # The first dump covers the time before the first call, and every other one the time between
        # two calls.
        dumps = [found.with_suffix(f".{number}") for number in range(2, len(_REQUESTS) + 2)]
        if done.returncode or not dumps[-1].exists():
            raise BenchError(f"{contestant.name}: {done.stderr.strip()[-300:]}")
        return [_total(dump) / _COUNTED for dump in dumps]


def _total(dump: Path) -> int:
    text = dump.read_text(errors="replace")
    return int(re.findall(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)[0])


def count(options: argparse.Namespace) -> int:
    """Count, and print."""
    first, *others = contestants(options)[1:]
    with receiving() as receiver:
        rows = [(first, name, further) for name, further in variants(0, receiver).items()]
        rows += [(other, "off", ()) for other in others]
        print(" " * 24 + "".join(f"{name:>9}   / off" for name in _REQUESTS) + "  instructions")
        off: list[float] = []
        for contestant, name, further in rows:
            # A second run of the same server gives the same counts.
            if name == "off again" or (options.only and name not in options.only):
                continue
            progress(f"{contestant.name}: {name}")
            counted = instructions(contestant, further)
            off = off or counted
            progress("")
            cells = [f"{one:>9,.0f}{one / of:>8.3f}" for one, of in zip(counted, off, strict=True)]
            print(f"{contestant.name:<12}{name:<12}{''.join(cells)}", flush=True)
    return 0


def measure(loadgen: Path, core: int, server: Running, arguments: Sequence[str]) -> Part:
    """Measure a server under a load."""
    before = cpu_seconds(server.pid)
    printed: dict[str, Any] = load(loadgen, server.port, core, [*_LOAD, *arguments])
    spent = cpu_seconds(server.pid).since(before).total
    if spent <= 0:
        raise BenchError("no processor time was measured; use more --seconds")
    operations = float(printed["operations"])
    return Part(spent / operations * 1e6, operations / printed["seconds"], printed["p99_us"])


def bench(options: argparse.Namespace) -> int:
    """Measure, and print."""
    cores = two_cores()
    contestant: Contestant = contestants(options)[1]
    port = free_port()
    timed = (f"--seconds={options.seconds:g}",)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        loadgen = compile_loadgen(Path(folder))
        servers = {
            name: stack.enter_context(contestant.running(cores[0], _MEGABYTES, *further))
            for name, further in variants(port, stack.enter_context(receiving())).items()
        }
        for server in servers.values():
            load(loadgen, server.port, cores[1], [*_LOAD, "--prefill"])
        parts: dict[str, list[Part]] = {name: [] for name in servers}
        for turn in range(1, options.rounds + 1):
            for name in in_turn(list(servers), turn):
                progress(f"round {turn}: {name}")
                parts[name].append(measure(loadgen, cores[1], servers[name], timed))
        progress("")
        print("                 µs per operation    / off, median (lowest to highest)")
        for name, found in parts.items():
            ratios = sorted(
                one.microseconds / off.microseconds
                for one, off in zip(found, parts["off"], strict=True)
            )
            median = statistics.median(one.microseconds for one in found)
            print(
                f"{name:<12}{median:>21.2f}{statistics.median(ratios):>12.3f}"
                f" ({ratios[0]:.3f} to {ratios[-1]:.3f})"
            )
        _half_load(options, loadgen, cores[1], servers, parts, port)
    return 0


def _half_load(
    options: argparse.Namespace,
    loadgen: Path,
    core: int,
    servers: Mapping[str, Running],
    parts: Mapping[str, Sequence[Part]],
    port: int,
) -> None:
    rate = statistics.median(part.rate for part in parts["off"]) / 2
    scraper = Scraper(port)
    arguments = (f"--seconds={2 * options.seconds:g}", f"--rate={rate:.0f}")
    found: dict[str, list[Part]] = {"off": [], "scraped": []}
    for turn in range(1, options.rounds + 1):
        for name in in_turn(list(found), turn):
            progress(f"half load, round {turn}: {name}")
            if name == "off":
                found[name].append(measure(loadgen, core, servers["off"], arguments))
                continue
            with scraper.running():
                found[name].append(measure(loadgen, core, servers["http"], arguments))
    progress("")
    print(f"\nat {rate:,.0f} operations per second     µs per operation   p99, µs")
    for name, measured in found.items():
        median = statistics.median(one.microseconds for one in measured)
        p99 = statistics.median(one.p99 for one in measured)
        print(f"{name:<35}{median:>17.2f}{p99:>10.0f}")
    pairs = zip(found["scraped"], found["off"], strict=True)
    ratio = statistics.median(one.microseconds / off.microseconds for one, off in pairs)
    took = sorted(scraper.milliseconds)
    print(
        f"scraped / off: {ratio:.3f}; a scrape takes {statistics.median(took):.1f} ms,"
        f" at most {took[-1]:.1f} ms, in {len(took)} scrapes"
    )
    before = cpu_seconds(servers["http"].pid)
    for _ in range(_SCRAPES):
        scraper.scrape()
    spent = cpu_seconds(servers["http"].pid).since(before).total / _SCRAPES
    print(f"processor time of a scrape: {spent * 1e3:.2f} ms; once a second, {spent:.2%} of a core")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="per measurement (default: %(default)g)"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="SERVER",
        help="with --instructions: only this server (repeatable)",
    )
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions per command with valgrind"
    )
    add_options(parser)
    return parser.parse_args(arguments)


def main() -> int:
    """Run the command line."""
    options = parse(None)
    run = count if options.instructions else bench
    return exit_code("bench_telemetry.py", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
