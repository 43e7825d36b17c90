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
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

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


FRAMINGS = [pytest.param({}, id="c"), pytest.param({"MEMLITE_NO_EXTENSIONS": "1"}, id="python")]
"""Environments that use the module in C, if it was compiled, and that use Python only."""


@contextlib.contextmanager
def started(
    nodes: Sequence[RunningServer], *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[RunningServer]:
    with proxy(nodes, *arguments, environment=environment) as front:
        assert wait_until(lambda: all(node_stat(front, n, "state") == "up" for n in nodes))
        yield front


def converse(front: RunningServer, number: int) -> None:
    """Send requests one after another, each when the last one is answered."""
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
    # Little's law, for the queue and for the workers: mean number = arrival rate x mean time.
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
    """Return the integral of the number of requests present, summed from event to event."""
    events = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    total = there = last = 0
    for moment, change in events:
        total += there * (moment - last)
        last = moment
        there += change
    assert there == 0
    return total


def test_one_in_ten_requests_is_traced_and_the_file_can_be_rotated(
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


def asked_of(number: int, key: bytes) -> tuple[bytes, bytes, str]:
    """Return a request, its reply and its command in the trace; the commands take turns."""
    value = b"VALUE %b 7 3\r\nabc\r\n" % key
    kinds = [
        (b"set %b 7 0 3\r\nabc\r\n" % key, b"STORED\r\n", "set"),
        (b"get %b\r\n" % key, value + b"END\r\n", "get"),
        (b"get missing %b\r\n" % key, value + b"END\r\n", "get"),
        (b"mg %b v\r\n" % key, b"VA 3\r\nabc\r\n", "mg"),
        (b"get %b\r\n" % key, value + b"END\r\n", "get"),
        (b"touch %b 100\r\n" % key, b"TOUCHED\r\n", "touch"),
        (b"get %b\r\n" % key, value + b"END\r\n", "get"),
        (b"set %b 7 0 3 noreply\r\nabc\r\n" % key, b"", "set"),
        (b"get %b\r\n" % key, value + b"END\r\n", "get"),
        (b"delete %b\r\n" % key, b"DELETED\r\n", "delete"),
    ]
    return kinds[number % len(kinds)]


@pytest.mark.parametrize("environment", FRAMINGS)
@pytest.mark.parametrize("every", [2, 5, 16, 100])
@pytest.mark.parametrize("options", [(), ("--trace-keys",), ("--http", "0")])
def test_requests_that_are_traced_are_answered_as_others(
    nodes: tuple[RunningServer, ...],
    tmp_path: Path,
    every: int,
    environment: dict[str, str],
    options: tuple[str, ...],
) -> None:
    path = tmp_path / "trace.csv"
    arguments = ("--trace", str(path), "--trace-sample", f"1/{every}", *options)
    asked = [asked_of(n, b"k%d-%d" % (every, n // 10)) for n in range(600)]
    asked += [(b"get a%d\r\n" % (n % 7), b"END\r\n", "get") for n in range(1000)]
    asked += [asked_of(n % 2, b"p%d" % n) for n in range(0, 400, 2)]
    asked += [asked_of(1, b"p%d" % n) for n in range(0, 400, 2)]
    random, traced = Random(every), asked[::every]
    with started(nodes, *arguments, environment=environment) as front, front.connect() as wire:
        while asked:
            count = random.choice((1, 1, 3, 16, 64, 150))
            some, asked = asked[:count], asked[count:]
            data = b"".join(request for request, _, _ in some)
            cut = random.choice((0, len(data) // 2))
            wire.send(data[:cut])
            wire.send(data[cut:])
            replies = b"".join(reply for _, reply, _ in some)
            assert wire.exactly(len(replies)) == replies
        assert wait_until(lambda: front.stats("proxy")["trace_written"] == str(len(traced)))
    found = read(path)
    for row in found:
        if row["result"]:
            assert Row({**row, "worker": ""}).times == sorted(Row(row).times)
    named = options == ("--trace-keys",)
    assert Counter((row["command"], row["keys"]) for row in found) == Counter(
        (command, b" ".join(keys).decode() if named else str(len(keys)))
        for request, _, command in traced
        for keys in [keys_in(request)]
    )
    assert Counter((row["result"], row["bytes"]) for row in found) == Counter(
        (reply.split(None, 1)[0].decode() if reply else "", str(len(reply)))
        for _, reply, _ in traced
    )


def keys_in(request: bytes) -> list[bytes]:
    words = request.split(b"\r\n")[0].split(b" ")
    return words[1:] if words[0] == b"get" else words[1:2]


@pytest.mark.parametrize("environment", FRAMINGS)
def test_requests_are_traced_when_nodes_fail_and_clients_leave(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "trace.csv"
    arguments = ("--trace", str(path), "--trace-sample", "1/2")
    with (
        running("memlite") as node,
        started([node], *arguments, environment=environment) as front,
    ):
        for number in range(4):  # known from now on
            with front.connect() as wire:
                assert wire.ask(b"set k%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
                assert wire.ask(b"get k%d\r\n" % number).startswith(b"VALUE")
                assert wire.until(b"END\r\n").endswith(b"END\r\n")
        node.pause()
        wires = [front.connect() for _ in range(3)]
        with contextlib.ExitStack() as stack:
            for wire in wires[1:]:
                stack.enter_context(wire)
            with wires[0] as leaving:
                leaving.send(b"get k0\r\nget k1\r\nget k2\r\nget k3\r\n")
                assert wait_until(lambda: node_stat(front, node, "pending") == "4")
            wires[1].send(b"get k0\r\n")
            assert wait_until(lambda: node_stat(front, node, "pending") == "5")
            wires[2].send(b"get k0\r\nset k1 0 0 1\r\nx\r\nget k2\r\nget k3\r\nget k0\r\n")
            assert wait_until(lambda: node_stat(front, node, "pending") == "10")
            node.process.kill()
            node.process.wait()
            for wire, count in ((wires[1], 1), (wires[2], 5)):
                for _ in range(count):
                    assert wire.line().startswith(b"SERVER_ERROR node")
        # Two of them for each of the four clients before, and half of the ten.
        assert wait_until(lambda: front.stats("proxy")["trace_written"] == "9")
    found = read(path)
    assert [row["result"] for row in found].count("SERVER_ERROR") == 5
    for row in found:
        assert row["sent"]
        assert Row(row).times == sorted(Row(row).times)


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
        (["--in-flight", "0"], "argument --in-flight: must be from 1 to 16384, not '0'"),
        (["--trace-keys"], "--trace-keys requires --trace FILE"),
        (["--trace-sample", "all"], "--trace-sample requires --trace FILE"),
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


@pytest.mark.parametrize("environment", FRAMINGS)
def test_requests_served_by_the_gutter_are_not_sent_to_a_returning_node(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    path, topology = tmp_path / "trace.csv", tmp_path / "cluster.toml"
    with running("memlite") as node, running("memlite") as spare:
        topology.write_text(
            f'[[nodes]]\naddress = "127.0.0.1:{node.port}"\n'
            f'[gutter]\nnodes = ["127.0.0.1:{spare.port}"]\n'
        )
        arguments = ("--trace", str(path), "--trace-sample", "1/2", "--deadline", "1")
        with proxy(topology, *arguments, environment=environment) as front, front.connect() as wire:
            assert wait_until(lambda: node_stat(front, node, "state") == "up")
            node.pause()
            try:
                assert wait_until(lambda: wire.ask(b"mg k\r\n") in (b"EN\r\n", b"HD\r\n"))
                for _ in range(20):
                    assert wire.ask(b"set k 0 0 1\r\nx\r\n") == b"STORED\r\n"
            finally:
                node.process.send_signal(signal.SIGCONT)
            assert wait_until(lambda: node_stat(front, node, "state") == "up")
            assert wire.ask(b"set k 0 0 1\r\nx\r\n") == b"STORED\r\n"
        rows = [row for row in read(path) if row["sent"] and row["received"]]
        assert rows
        assert all(int(row["sent"]) <= int(row["received"]) for row in rows)
