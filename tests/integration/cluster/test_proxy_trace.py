"""The trace of a proxy, and the laws of queueing on its columns."""

import contextlib
import csv
import itertools
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, running
from tests.support.waiting import wait_until

CLIENTS, REQUESTS = 12, 40


class Row:
    """A row, with its times as numbers of microseconds."""

    def __init__(self, row: dict[str, str]) -> None:
        self.row = row
        self.client, self.command, self.worker = row["client"], row["command"], row["worker"]
        self.ahead = int(row["queue_length"])
        times = [
            row[name] for name in ("arrival", "enqueued", "dequeued", "sent", "received", "replied")
        ]
        self.times = [int(time) for time in times]
        self.arrival, self.enqueued, self.dequeued, _, self.received, self.replied = self.times


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[RunningServer, ...]]:
    kind = "memcached" if shutil.which("memcached") else "memlite"
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(running(kind)) for _ in range(2))


@contextlib.contextmanager
def started(nodes: Sequence[RunningServer], *arguments: str) -> Iterator[RunningServer]:
    with proxy(nodes, *arguments) as front:
        assert wait_until(lambda: all(node_stat(front, n, "state") == "up" for n in nodes))
        yield front


def converse(front: RunningServer, number: int) -> None:
    """One request after the other, each when the last one is answered."""
    with front.connect() as wire:
        for n in range(REQUESTS):
            assert wire.ask(b"set %d:%d 0 0 1\r\nx\r\n" % (number, n)) == b"STORED\r\n"
            wire.send(b"get %d:%d other%d\r\n" % (number, n, n))
            assert wire.until(b"END\r\n").startswith(b"VALUE ")


@pytest.mark.parametrize("in_flight", [1, 8, 32])
def test_the_laws_of_queueing_hold(
    nodes: tuple[RunningServer, ...], tmp_path: Path, in_flight: int
) -> None:
    path = tmp_path / "trace.csv"
    arguments = ("--in-flight", str(in_flight), "--deadline", "30", "--trace", str(path))
    with started(nodes, *arguments) as front:
        threads = [threading.Thread(target=converse, args=(front, n)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = [Row(row) for row in read(path)]
    assert len(rows) == CLIENTS * REQUESTS * 2
    for row in rows:
        assert row.times == sorted(row.times)
    # Every worker has one request at a time.
    by_worker: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_worker[row.worker].append(row)
    assert len(by_worker) <= in_flight
    for taken in by_worker.values():
        taken.sort(key=lambda row: (row.dequeued, row.received))
        for one, next_one in itertools.pairwise(taken):
            assert one.received <= next_one.dequeued
    # First come, first served.
    in_order = sorted(rows, key=lambda row: (row.enqueued, row.dequeued))
    assert [row.dequeued for row in in_order] == sorted(row.dequeued for row in rows)
    # Little's law: what the queue, and the workers, hold on average is arrival rate x mean time.
    for begins, ends in (("enqueued", "dequeued"), ("dequeued", "received")):
        spans = [(getattr(row, begins), getattr(row, ends)) for row in rows]
        assert area(spans) == sum(end - begin for begin, end in spans)
    # The interactive law, per client: requests x (response + think time) = its whole time.
    by_client: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_client[row.client].append(row)
    assert len(by_client) == CLIENTS
    for asked in by_client.values():
        asked.sort(key=lambda row: row.arrival)
        thinking = [then.arrival - row.replied for row, then in itertools.pairwise(asked)]
        assert min(thinking) >= 0
        response = sum(row.replied - row.arrival for row in asked)
        assert response + sum(thinking) == asked[-1].replied - asked[0].arrival
    assert max(row.ahead for row in rows) <= CLIENTS


def area(spans: list[tuple[int, int]]) -> int:
    """Return the integral of the number that are there, walked from event to event."""
    events = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    total = there = last = 0
    for moment, change in events:
        total += there * (moment - last)
        last = moment
        there += change
    assert there == 0
    return total


def test_one_in_so_many_is_traced_and_the_file_can_be_rotated(
    nodes: tuple[RunningServer, ...], tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    with started(nodes, "--trace", str(path), "--trace-sample", "1/10", "--trace-keys") as front:
        with front.connect() as wire:
            wire.send(b"get a\r\n" * 60)
            assert wire.exactly(300) == b"END\r\n" * 60
            for _ in range(40):
                assert wire.ask(b"get a\r\n") == b"END\r\n"
        assert wait_until(lambda: front.stats("proxy")["trace_written"] == "10")
        path.rename(tmp_path / "old.csv")
        front.process.send_signal(signal.SIGHUP)
        assert wait_until(path.exists)
        with front.connect() as wire:
            for _ in range(10):
                assert wire.ask(b"get b\r\n") == b"END\r\n"
    old = read(tmp_path / "old.csv")
    assert [(row["command"], row["keys"], row["result"]) for row in old] == [
        ("get", "a", "END")
    ] * 10
    assert [row["keys"] for row in read(path)] == ["b"]


def test_failed_requests_are_traced(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    with (
        running("memlite") as node,
        started([node], "--trace", str(path), "--trace-sample", "failed") as front,
        front.connect() as wire,
    ):
        assert wire.ask(b"get a\r\n") == b"END\r\n"
        node.process.kill()
        node.process.wait()
        assert wait_until(lambda: wire.ask(b"get a\r\n").startswith(b"SERVER_ERROR"))
    found = read(path)
    assert found
    assert {row["result"] for row in found} == {"SERVER_ERROR"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--in-flight", "0"], "argument --in-flight: must be 1 to 16384, not '0'"),
        (["--trace-keys"], "--trace-keys needs --trace FILE"),
        (["--trace-sample", "all"], "--trace-sample needs --trace FILE"),
        (
            ["--trace", "t", "--trace-sample", "x"],
            "must be all, failed, slow:10ms or 1/100, not 'x'",
        ),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "memlite", "proxy", "--nodes", "a", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_example_reads_a_trace(nodes: tuple[RunningServer, ...], tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/run-a-proxy.md").read_text()
    (example,) = re.findall(r"```python\n(import csv\n.*?)```", page, re.DOTALL)
    with started(nodes, "--trace", str(tmp_path / "trace.csv")) as front:
        converse(front, 0)
    command = [sys.executable, "-c", example]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.fullmatch(
        r"queue: mean \d+ us, p99 \d+ us\nnodes: mean \d+ us, p99 \d+ us\n", done.stdout
    )
