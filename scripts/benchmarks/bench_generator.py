"""Measure the load tester's own cost: processor time per operation, next to a generator in C.

    python scripts/benchmarks/bench_generator.py

memlite runs on one core and is driven from the other, by `memlite bench` and by loadgen.c in turn.
Prints the microseconds of processor time the generator spends on an operation: the median of
interleaved rounds and the minimum. Needs Linux, two cores, a C compiler and
``memlite-cache[bench]``.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from memlite.loadtest.files import load
from memlite.loadtest.targets import LaunchedServer, LaunchSettings

LOADGEN = Path(__file__).with_name("loadgen.c")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("bench_generator: no C compiler")
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        other = folder / "loadgen"
        subprocess.run(
            [compiler, "-O2", "-o", other, LOADGEN, "-lpthread", "-lm"],
            check=True,
        )
        os.sched_setaffinity(0, cores[:1])
        with LaunchedServer("memory", "memory", LaunchSettings(folder)) as server:
            os.sched_setaffinity(0, cores[1:2])
            port = str(server.address[1])
            costs: dict[tuple[str, int], list[float]] = {}
            for _ in range(options.rounds):
                for pipeline in (1, 16):
                    costs.setdefault(("memlite bench", pipeline), []).append(
                        ours(port, pipeline, options.seconds, folder)
                    )
                    costs.setdefault(("loadgen.c", pipeline), []).append(
                        theirs(other, port, pipeline, options.seconds)
                    )
    print("| generator | pipeline | CPU µs per operation: median (min) |\n| --- | --- | --- |")
    for (name, pipeline), found in costs.items():
        print(f"| {name} | {pipeline} | {statistics.median(found):.2f} ({min(found):.2f}) |")


def ours(port: str, pipeline: int, seconds: float, folder: Path) -> float:
    """Return the cost of an operation with memlite bench."""
    subprocess.run(
        [sys.executable, "-m", "memlite", "bench", "run", f"127.0.0.1:{port}", "--clients", "50",
         "--pipeline", str(pipeline), "--duration", f"{seconds}s", "--repetitions", "1",
         "--workers", "1", "--out", folder, "--no-report", "-q"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (point,) = load(folder).points
    return point.repetitions[0].generator_cpu


def theirs(generator: Path, port: str, pipeline: int, seconds: float) -> float:
    """Return the cost of an operation with the generator in C."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [generator, "--port", port, "--connections", "50", "--gets", "10", "--sets", "1", "--keys",
         "10000", "--value-size", "100", "--pipeline", str(pipeline), "--seconds", f"{seconds:g}"],
        check=True, capture_output=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / float(json.loads(done.stdout)["operations"]) * 1e6


if __name__ == "__main__":
    main()
