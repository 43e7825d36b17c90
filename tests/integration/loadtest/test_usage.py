"""The use of the machine during a measurement, with real processes."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

pytest.importorskip("hdrh", reason="the load tester needs memlite-cache[bench]")

import psutil

from memlite.loadtest.files import load
from memlite.loadtest.usage import Reading
from tests.support.bench import bench
from tests.support.servers import RunningServer
from tests.support.waiting import wait_until

SPINNING = "while True: pass"
# It releases the interpreter's lock, so that both threads are busy at once.
TWO_THREADS = """
import hashlib, threading
def work():
    while True:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)
threading.Thread(target=work).start()
work()
"""


@contextlib.contextmanager
def running(program):
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


def used(process):
    times = process.cpu_times()
    return times.user + times.system


def test_a_program_counts_as_other_load_unless_it_takes_part():
    with running(SPINNING) as spinning:
        counters = [((), ()), ((), [spinning]), ([spinning], ())]
        began, at_first = time.perf_counter(), used(spinning)
        before = [Reading(*processes) for processes in counters]
        apart = time.perf_counter() - began
        assert wait_until(lambda: used(spinning) > at_first + 0.6, 200)
        ended = time.perf_counter()
        after = [Reading(*processes) for processes in counters]
        seconds = time.perf_counter() - began
        apart += time.perf_counter() - ended
        uses = [new.machine_use(old, seconds) for new, old in zip(after, before, strict=True)]
        if any(use is None for use in uses):
            pytest.skip("this system does not report how busy its processors are")
        stranger, helper, server = uses
        # The program used 0.6 s of the time of all cores; others used part of a core.
        share = 0.6 / (seconds * psutil.cpu_count())
        # The readings are not simultaneous, and the machine may do anything in between.
        error = apart / seconds
        assert stranger.other > 0.5 * share
        assert helper.other == pytest.approx(stranger.other - share, abs=0.5 * share + error)
        assert server.other == pytest.approx(helper.other, abs=0.1 * share + error)
        use = after[2].server_use(before[2], seconds)
        assert use.cpu_seconds == pytest.approx(0.6, abs=0.2)
        assert use.thread_share == pytest.approx(use.cpu_share, abs=0.1 * use.cpu_share + error)
        assert use.memory_bytes > 1_000_000
        assert after[0].server_use(before[0], seconds) is None


def test_the_busiest_thread_is_measured_apart_from_the_process():
    with running(TWO_THREADS) as process:
        assert wait_until(lambda: process.num_threads() == 2, 60)
        before, began = Reading([process]), time.perf_counter()
        at_first = used(process)
        assert wait_until(lambda: used(process) > at_first + 1, 200)
        use = Reading([process]).server_use(before, time.perf_counter() - began)
        assert 0.4 * use.cpu_share < use.thread_share < 0.8 * use.cpu_share


def test_the_use_of_an_ended_server_is_unknown():
    with running(SPINNING) as process:
        before = Reading([process])
    after = Reading([process])
    assert after.server_use(before, 1.0) is None
    assert after.machine_use(before, 0.4) is None  # too short to measure shares


@pytest.mark.slow
def test_on_a_busy_machine_the_verdict_says_that_it_cannot_tell(memlite: RunningServer, tmp_path):
    with contextlib.ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            stack.enter_context(running(SPINNING))
        done = bench(
            *("compare", "--backends", "memory"),
            *("--target", f"127.0.0.1:{memlite.port}=other", "--clients", "1,2"),
            *("--duration", "600ms", "--warm-up", "0s", "--repetitions", "2"),
            *("--keys", "100", "--out", tmp_path, "--no-report", "-q"),
        )
    assert done.returncode == 0, done.stderr
    for point in load(tmp_path).points:
        assert all(one.machine.other > 0.1 for one in point.repetitions)
    told = " ".join(done.stdout.split())
    assert "cannot tell whether that is where it saturates: other programs used up to" in told
    assert "but it is unclear which is faster: other programs used up to" in told
    assert "of the machine's processors: on a quiet machine the figures may differ." in told
