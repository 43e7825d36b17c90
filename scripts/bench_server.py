"""Compare memlite's CPU time per operation with memcached's, both measured in the same run.

Figures of one machine say little about another, and those of a shared machine change from minute
to minute. So each round loads one server right after the other, and what counts is the ratio of
the two within a round. Needs Linux, two cores, a C compiler and memcached; see ``--help``.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 5.0
# Enough for every scenario's items, so that neither server evicts.
_MEMORY_MEGABYTES: Final = 1024


class BenchError(Exception):
    """The benchmark cannot go on; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of load.

    Attributes:
        summary: one line for ``--help``.
        gets: requests of this kind for every `sets` of the other.
        sets: see `gets`.
        value_size: bytes.
        keys: how many, taken at random; all are stored before the first round.
        pipeline: requests per write.
        multiget: keys per get, each counted as one operation.
    """

    summary: str
    gets: int = 10
    sets: int = 1
    value_size: int = 100
    keys: int = 10_000
    pipeline: int = 1
    multiget: int = 1

    def arguments(self) -> list[str]:
        """Return the load generator's options."""
        options = {
            "gets": self.gets,
            "sets": self.sets,
            "value-size": self.value_size,
            "keys": self.keys,
            "pipeline": self.pipeline,
            "multiget": self.multiget,
        }
        return [f"--{name}={value}" for name, value in options.items()]


_GATED: Final = "get-set"  # what --minimum looks at

SCENARIOS: Final = {
    _GATED: Scenario("10 gets to 1 set of 100 bytes, one request at a time"),
    "sets": Scenario("sets only", gets=0),
    "1k": Scenario("1 get to 1 set of 1 KiB", gets=1, value_size=1024),
    "pipeline-16": Scenario("10 gets to 1 set, 16 requests per write", pipeline=16),
    "multiget-10": Scenario("gets of 10 keys", sets=0, multiget=10),
    "multiget-100": Scenario("gets of 100 keys", sets=0, multiget=100),
    "large": Scenario("1 get to 1 set of 1 MB", gets=1, value_size=1_000_000, keys=50),
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one server did under load in one round.

    Attributes:
        scenario: name of the load.
        round: from 1.
        server: ``memcached`` or ``memlite``.
        cpu_seconds: the server process's, user and system.
        load: what the load generator printed.
    """

    scenario: str
    round: int
    server: str
    cpu_seconds: float
    load: dict[str, Any]

    @property
    def microseconds_per_operation(self) -> float:
        """The server's CPU time for one operation."""
        return 1e6 * self.cpu_seconds / float(self.load["operations"])

    @property
    def operations_per_second(self) -> float:
        """The throughput, which the load generator and the machine's other work limit too."""
        return float(self.load["operations"]) / float(self.load["seconds"])


# Processes


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Run on `core` inside the block; processes started there, and their threads, stay on it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def running(name: str, command: Sequence[str], core: int) -> Iterator[tuple[int, int]]:
    """Run a server on `core` for the length of the block; give its process id and port."""
    port = free_port()
    with tempfile.TemporaryFile() as output:
        with pinned(core):
            process = subprocess.Popen(
                [*command, "-p", str(port)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    said = output.read().decode(errors="replace").strip()
                    raise BenchError(f"{name} did not start: {said or 'it said nothing'}")
                time.sleep(0.01)
            yield process.pid, port
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind((_HOST, 0))
        return int(sock.getsockname()[1])


def listens(port: int) -> bool:
    """Tell whether a server accepts connections on the port."""
    try:
        socket.create_connection((_HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def cpu_seconds(pid: int) -> float:
    """Return the user and system time that a process has used, all threads together."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    # The second field, the name, may hold spaces; utime and stime are fields 14 and 15.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def program(name: str, advice: str) -> str:
    """Return the path of a program.

    Raises:
        BenchError: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise BenchError(f"{name} is not installed; {advice}")
    return path


def compile_loadgen(directory: Path) -> Path:
    """Compile the load generator into `directory`; return the program's path.

    Raises:
        BenchError: there is no compiler, or it fails.
    """
    compiler = program("cc", "the load generator is written in C")
    target = directory / "loadgen"
    source = Path(__file__).with_name("loadgen.c")
    result = subprocess.run(
        [compiler, "-O2", "-o", str(target), str(source)], capture_output=True, text=True
    )
    if result.returncode:
        raise BenchError(f"{source.name} does not compile:\n{result.stderr.strip()}")
    return target


def load(loadgen: Path, port: int, core: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Run the load generator on `core`; return what it printed.

    Raises:
        BenchError: it failed, most likely over a wrong reply.
    """
    with pinned(core):
        # run() kills the child when anything, Ctrl-C too, interrupts it.
        result = subprocess.run(
            [str(loadgen), f"--port={port}", *arguments], capture_output=True, text=True
        )
    if result.returncode:
        raise BenchError(result.stderr.strip() or f"loadgen: exit code {result.returncode}")
    printed: dict[str, Any] = json.loads(result.stdout)
    return printed


# Measuring


def measure(options: argparse.Namespace, loadgen: Path, name: str) -> list[Measurement]:
    """Run all rounds of a scenario, on fresh servers."""
    scenario = SCENARIOS[name]
    server_core, load_core = options.cores
    memory = ["-l", _HOST, "-U", "0", "-m", str(_MEMORY_MEGABYTES)]
    memcached = [options.memcached, "-t", "1", *memory]
    if os.geteuid() == 0:
        memcached += ["-u", "root"]  # it refuses to guess
    memlite = [sys.executable, "-m", "memlite", *memory]
    common = [f"--connections={options.connections}", *scenario.arguments()]
    measurements = []
    with (
        running("memcached", memcached, server_core) as peer,
        running("memlite", memlite, server_core) as ours,
    ):
        servers = {"memcached": peer, "memlite": ours}
        for _, port in servers.values():
            load(loadgen, port, load_core, [*common, "--prefill"])
        for turn in range(1, options.rounds + 1):
            progress(f"{name}: round {turn} of {options.rounds}")
            # Whoever is first differs from round to round, lest a trend favour one.
            for which in sorted(servers, reverse=turn % 2 == 0):
                pid, port = servers[which]
                arguments = [*common, f"--seconds={options.seconds}", f"--seed={turn}"]
                before = cpu_seconds(pid)
                printed = load(loadgen, port, load_core, arguments)
                used = cpu_seconds(pid) - before
                measurements.append(Measurement(name, turn, which, used, printed))
    return measurements


def progress(text: str) -> None:
    """Show what is under way, to who watches."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


# Reporting


@dataclass(frozen=True, slots=True)
class Summary:
    """A scenario's medians over its rounds.

    Attributes:
        scenario: its name.
        memcached_us: microseconds of CPU per operation.
        memlite_us: microseconds of CPU per operation.
        efficiency: memcached's CPU per operation divided by memlite's, within a round.
        memcached_rate: operations per second.
        memlite_rate: operations per second.
    """

    scenario: str
    memcached_us: float
    memlite_us: float
    efficiency: float
    memcached_rate: float
    memlite_rate: float


def summarize(name: str, measurements: Sequence[Measurement]) -> Summary:
    """Return the medians over the rounds of one scenario."""
    costs: dict[str, list[float]] = {"memcached": [], "memlite": []}
    rates: dict[str, list[float]] = {"memcached": [], "memlite": []}
    for one in sorted(measurements, key=lambda one: one.round):
        costs[one.server].append(one.microseconds_per_operation)
        rates[one.server].append(one.operations_per_second)
    ratios = [
        theirs / ours for theirs, ours in zip(costs["memcached"], costs["memlite"], strict=True)
    ]
    return Summary(
        name,
        statistics.median(costs["memcached"]),
        statistics.median(costs["memlite"]),
        statistics.median(ratios),
        statistics.median(rates["memcached"]),
        statistics.median(rates["memlite"]),
    )


def describe_machine(memcached: str) -> dict[str, str]:
    """Return what the figures depend on: processor, cores, versions."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    try:
        uvloop = importlib.metadata.version("uvloop")
    except importlib.metadata.PackageNotFoundError:
        uvloop = "none"
    said = subprocess.run([memcached, "-V"], capture_output=True, text=True).stdout.split()
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "uvloop": uvloop,
        "memcached": said[-1] if said else "unknown",
    }


_HEADING: Final = """\
                CPU per operation, µs               operations per second
scenario        memcached     memlite  efficiency   memcached     memlite"""


def table_row(row: Summary) -> str:
    """Return a scenario's line of the table."""
    return (
        f"{row.scenario:<13}{row.memcached_us:>12.2f}{row.memlite_us:>12.2f}"
        f"{row.efficiency:>12.2f}{row.memcached_rate:>12,.0f}{row.memlite_rate:>12,.0f}"
    )


def write_json(
    file: Path, machine: dict[str, str], options: argparse.Namespace, rounds: Sequence[Measurement]
) -> None:
    """Write every measurement to a file."""
    settings = {name: getattr(options, name) for name in ("rounds", "seconds", "connections")}
    measured = [
        asdict(one)
        | {
            "microseconds_per_operation": one.microseconds_per_operation,
            "operations_per_second": one.operations_per_second,
        }
        for one in rounds
    ]
    content = {"machine": machine, "settings": settings, "measurements": measured}
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# The command line


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    listing = "\n".join(f"  {name:<14}{one.summary}" for name, one in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"scenarios:\n{listing}\n\nefficiency: memcached's CPU time per operation divided by"
        "\nmemlite's, the median over rounds; 1.00 means as cheap as memcached.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--scenario",
        action="append",
        choices=SCENARIOS,
        help="only this one (repeatable; default: all)",
        metavar="NAME",
    )
    parser.add_argument("--rounds", type=int, default=5, help="per scenario (default: 5)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="per server and round (default: 2)"
    )
    parser.add_argument("--connections", type=int, default=50, help="(default: 50)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements there")
    parser.add_argument(
        "--minimum",
        type=float,
        metavar="RATIO",
        help=f"exit with 1 when the efficiency in {_GATED} is below this",
    )
    options = parser.parse_args(arguments)
    options.scenario = list(dict.fromkeys(options.scenario or SCENARIOS))
    if options.rounds < 1 or options.seconds <= 0 or options.connections < 1:
        parser.error("--rounds, --seconds and --connections must be positive")
    if options.minimum is not None and _GATED not in options.scenario:
        parser.error(f"--minimum needs the scenario {_GATED}")
    return options


def bench(options: argparse.Namespace) -> int:
    """Measure and print; return the exit code.

    Raises:
        BenchError: something that it needs is missing, or a server failed.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("needs two cores, one for the server and one for the load")
    options.cores = cores[0], cores[1]
    options.memcached = program("memcached", "it is what memlite is compared with")
    machine = describe_machine(options.memcached)
    rounds: list[Measurement] = []
    with tempfile.TemporaryDirectory(prefix="memlite-bench-") as directory:
        loadgen = compile_loadgen(Path(directory))
        print("{cpu}, {cores} cores".format_map(machine))
        print(
            "Python {python}, uvloop {uvloop}; memcached {memcached} -t 1".format_map(machine),
            f"{options.connections} connections, medians of {options.rounds} rounds"
            f" of {options.seconds:g} s",
            "",
            _HEADING,
            sep="\n",
            flush=True,
        )
        for name in options.scenario:
            measured = measure(options, loadgen, name)
            rounds += measured
            progress("")
            summary = summarize(name, measured)
            print(table_row(summary), flush=True)
            if name == _GATED:
                gated = summary.efficiency
    if options.json is not None:
        write_json(options.json, machine, options, rounds)
    if options.minimum is not None and gated < options.minimum:
        print(f"\nefficiency {gated:.3f} in {_GATED} is below {options.minimum:g}")
        return 1
    return 0


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code: 0, 1 below ``--minimum``, 2 when it cannot run."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)  # so that the servers are ended then too
    try:
        return bench(options)
    except BenchError as error:
        progress("")
        sys.stderr.write(f"bench_server: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
