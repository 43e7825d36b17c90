"""The load tester's results compared with those of a load generator in C, on a real memcached.

memcached is slowed down to be the bottleneck. Otherwise the generator would be the bottleneck (on
two cores, at least the one in Python), and the test would compare the generators.
"""

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from memlite.loadtest.files import load
from tests.support.paths import ROOT
from tests.support.servers import needs_memcached

# The share of all cores used by other processes above which `memlite bench` itself has doubts.
BUSY = 0.1
COMPILER = shutil.which("cc") or shutil.which("gcc")

SLOW_READ = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

/* Each read takes 150 more microseconds of processor time, as if the server did more work. */
ssize_t read(int descriptor, void *data, size_t size) {
    static ssize_t (*real)(int, void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "read");
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += 150000;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - end.tv_sec) * 1000000000L + now.tv_nsec - end.tv_nsec < 0);
    return real(descriptor, data, size);
}
"""


def compiled(source: Path, target: Path, *options: str) -> Path:
    subprocess.run([COMPILER, "-O2", "-o", target, source, *options], check=True)
    return target


@pytest.mark.slow
@pytest.mark.alone
@needs_memcached
@pytest.mark.skipif(COMPILER is None, reason="no C compiler for the other generator")
def test_throughput_and_median_agree_with_a_generator_in_c(start, tmp_path):
    (tmp_path / "slow.c").write_text(SLOW_READ)
    slow = compiled(tmp_path / "slow.c", tmp_path / "slow.so", "-shared", "-fPIC", "-ldl")
    source = ROOT / "scripts" / "benchmarks" / "loadgen.c"
    generator = compiled(source, tmp_path / "loadgen", "-lpthread", "-lm")
    server = start("-t", "1", kind="memcached", environment={"LD_PRELOAD": str(slow)})
    port = str(server.port)
    rounds: list[tuple[float, float]] = []
    limited = 0
    busy: list[float] = []  # with other processes, in shares of all cores
    for number in range(1, 11):
        done = subprocess.run(
            [generator, "--port", port, "--connections", "50", "--gets", "10", "--sets", "1",
             "--keys", "1000", "--value-size", "100", "--seconds", "1"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        theirs = json.loads(done.stdout)
        subprocess.run(
            [sys.executable, "-m", "memlite", "bench", "run", f"127.0.0.1:{port}", "--clients",
             "50", "--keys", "1000", "--duration", "1s", "--repetitions", "1", "--out", tmp_path,
             "-q", "--no-report"],
            check=True, timeout=60, capture_output=True,
        )  # fmt: skip
        (point,) = load(tmp_path).points
        limited += point.generator_limited
        busy.append(max(one.machine.other if one.machine else 0.0 for one in point.repetitions))
        throughput = theirs["operations"] / theirs["seconds"]
        rounds.append((point.throughput.mean / throughput, point.p50.mean / theirs["p50_us"]))
        medians = [statistics.median(ratios) for ratios in zip(*rounds, strict=True)]
        # On a busy machine three rounds are too few, because other processes disturb one generator
        # more than the other.
        if number >= 3 and limited < number / 2 and medians == pytest.approx([1, 1], abs=0.15):
            return
    if statistics.median(busy) > BUSY:
        pytest.skip(f"cannot tell: other processes took {statistics.median(busy):.0%} of all cores")
    pytest.fail(
        f"our throughput and median relative to the C generator's: {rounds}; "
        f"{limited} were limited by our generator"
    )
