"""The slow log of several workers (``-t``) is one."""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

WORKERS = 2
VALUE = bytes(50_000)
"""A value that takes longer to store than the least that ``--slow-log`` can tell, which is 1 us."""


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running("memlite", "-t", str(WORKERS), "--slow-log", "1us") as server:
        yield server


@pytest.fixture
def wires(server: RunningServer) -> Iterator[list[Wire]]:
    """A connection to each worker, in the order of their numbers."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(server.connect()) for _ in range(WORKERS)]
        wires = sorted(found, key=lambda wire: wire.stats("workers")["answering"])
        assert wires[0].ask(b"stats reset\r\n") == b"RESET\r\n"
        yield wires


def sets(stats: dict[str, str]) -> list[str]:
    """Return the keys of the sets that are listed, the newest first."""
    ranks = range(1, 1 + sum(name.endswith(":command") for name in stats))
    return [stats[f"slow:{rank}:key"] for rank in ranks if stats[f"slow:{rank}:command"] == "set"]


def store(wire: Wire, key: bytes) -> None:
    assert wire.ask(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(VALUE), VALUE)) == b"STORED\r\n"


def test_slow_commands_of_all_workers_are_listed_in_their_order(wires: list[Wire]) -> None:
    for number in range(6):
        store(wires[number % WORKERS], b"k%d" % number)
    for wire in wires:
        assert sets(wire.stats("slow")) == [f"k{number}" for number in reversed(range(6))]
    counts = [int(wire.stats("slow")["slow:count"]) for wire in wires]
    assert counts[1] - counts[0] == 1, "only the first of the two commands was in between"
    assert wires[1].ask(b"stats reset\r\n") == b"RESET\r\n"
    stats = wires[0].stats("slow")
    assert (sets(stats), stats["slow:count"]) == ([], "1")


def test_the_last_commands_are_listed_whichever_worker_ran_them(wires: list[Wire]) -> None:
    for number in range(200):
        store(wires[number % WORKERS], b"k%d" % number)
    expected = [f"k{number}" for number in reversed(range(200))]
    for wire in wires:
        listed = sets(wire.stats("slow"))
        assert listed == expected[: len(listed)]
        assert len(listed) > 100


def test_a_watcher_is_sent_the_slow_commands_of_all_workers(wires: list[Wire]) -> None:
    watcher, second = wires
    assert watcher.ask(b"watch slow\r\n") == b"OK\r\n"
    store(second, b"elsewhere")
    line = watcher.line()
    while b"cmd=set" not in line:  # the line of ``watch`` itself comes first
        line = watcher.line()
    assert b" key=elsewhere " in line


def test_counts_outlive_the_worker_that_counted(wires: list[Wire]) -> None:
    first, second = wires
    for number in range(20):
        store(second, b"k%d" % number)
    before = first.stats("workers")["1:pid"]
    count = int(first.stats("slow")["slow:count"])
    assert count >= 20
    os.kill(int(before), signal.SIGKILL)
    assert second.rest() == b""
    assert wait_until(lambda: first.stats("workers").get("1:pid", before) != before)
    assert int(first.stats("slow")["slow:count"]) >= count
