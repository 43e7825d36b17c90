"""Workers (``-t``) that are killed, stuck, or end as soon as they start."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

WORKERS = 2


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running("memlite", "-t", str(WORKERS)) as server:
        yield server


@contextlib.contextmanager
def one_each(server: RunningServer) -> Iterator[list[Wire]]:
    """Connect to each worker, in the order of their numbers."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(WORKERS)]
        yield sorted(wires, key=lambda wire: wire.stats("workers")["answering"])


def pids(wire: Wire) -> list[str]:
    stats = wire.stats("workers")
    return [stats.get(f"{number}:pid", "") for number in range(WORKERS)]


def test_counts_outlive_the_worker_that_counted(server: RunningServer) -> None:
    with one_each(server) as (first, second):
        for wire in (first, second):
            assert wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert first.stats()["cmd_set"] == "2"
        before = pids(first)
        os.kill(int(before[1]), signal.SIGKILL)
        assert second.rest() == b""
        shown = []

        def replaced() -> bool:
            shown.append(pids(first)[1])
            return shown[-1] not in ("", before[1])

        assert wait_until(replaced)
        assert "0" not in shown, "one that does not serve yet is left out"
        assert pids(first)[0] == before[0]
        stats = first.stats()
        assert (stats["cmd_set"], stats["curr_connections"]) == ("2", "1")
        with server.connect() as other, server.connect() as another:
            for wire in (other, another):
                assert wire.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
            assert first.stats()["cmd_set"] == "4"
            # A client's changes are visible to later clients.
            assert first.ask(b"verbosity 2\r\n") == b"OK\r\n"
            assert [wire.stats("settings")["verbosity"] for wire in (other, another)] == ["2"] * 2


def test_a_worker_that_is_stuck_is_replaced(server: RunningServer) -> None:
    with one_each(server) as (first, _):
        assert first.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
        before = pids(first)
        os.kill(int(before[1]), signal.SIGSTOP)
        for _ in range(20):  # only the first request waits for it
            assert first.stats()["curr_items"] == "1"
        assert wait_until(lambda: pids(first)[1] not in ("", before[1]))
        assert pids(first)[0] == before[0]
        assert "has made no progress for" in server.log.read_text()
        with one_each(server) as wires:
            for wire in wires:
                wire.send(b"get a\r\n")
                assert wire.until(b"END\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


def test_connections_are_spread_evenly_though_they_come_and_go(server: RunningServer) -> None:
    """A worker with few connections left gets the next ones, even out of turn."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(40)]
        of = [wire.stats("workers")["answering"] for wire in wires]
        for wire, number in zip(wires, of, strict=True):
            if number == "0":
                wire.sock.close()
        left = wires[of.index("1")]
        assert wait_until(lambda: left.stats()["curr_connections"] == str(of.count("1")))
        for _ in range(20):
            stack.enter_context(server.connect())
        assert wait_until(lambda: left.stats()["curr_connections"] == "40")
        stats = left.stats("workers")
        assert abs(int(stats["0:curr_connections"]) - int(stats["1:curr_connections"])) <= 2


LOOP = """
import os, socket, time
from memlite.server.connections.listeners import Listener
from memlite.server.service import ServiceManager
from memlite.server.workers.board import Board, Cell
from memlite.server.workers.supervisor import Supervisor

board = Board(1)
again = os.memfd_create("")
def work(number, channel, ready):
    board.write(number, Cell.PID, os.getpid())
    board.write(number, Cell.BEAT, time.monotonic_ns())
    ready()
    if os.pread(again, 1, 0):
        os._exit(0)
    os.pwrite(again, b".", 0)
    while True:
        pass

sock = socket.create_server(("127.0.0.1", 0))
Supervisor(work, [Listener(sock, "here")], board, 10, ServiceManager({})).run(lambda: None)
"""


def test_a_worker_that_computes_for_ever_is_replaced() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOP], capture_output=True, text=True, timeout=60, check=True
    )
    # On a busy machine it takes seconds until it has computed for long enough to be certain.
    pattern = r"has made no progress for .*(busy without progress|not responding)\); killing"
    assert re.search(pattern, done.stderr)


CRASHES = """
import os, sys
from memlite.core.errors import StartError
from memlite.server.connections.listeners import Listener
from memlite.server.service import ServiceManager
from memlite.server.workers.board import Board
from memlite.server.workers.supervisor import Supervisor
import socket

all_ready, announce = os.pipe()
def work(number, channel, ready):
    if len(sys.argv) > 1:
        ready()
        os.read(all_ready, 1)  # only those of the start wait
    os._exit(3)

sock = socket.create_server(("127.0.0.1", 0))
supervisor = Supervisor(work, [Listener(sock, "here")], Board(2), 10, ServiceManager({}))
try:
    supervisor.run(lambda: os.write(announce, b"." * 100))
except StartError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a worker exited during startup"),
        (["ready"], "-t: 30 workers failed within 10 seconds"),
    ],
)
def test_workers_that_end_again_and_again_are_an_error(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHES, *arguments], capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == said
