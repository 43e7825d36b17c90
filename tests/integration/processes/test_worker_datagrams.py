"""Several workers (``-t``) read the datagrams of one socket (``-U``)."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.datagrams import Datagrams
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

WORKERS = 2


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running("memlite", "-t", str(WORKERS), "-U", "-1") as server:
        yield server


@pytest.fixture
def wires(server: RunningServer) -> Iterator[list[Wire]]:
    """A connection to each worker, in the order of their numbers."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(server.connect()) for _ in range(WORKERS)]
        yield sorted(found, key=lambda wire: wire.stats("workers")["answering"])


def test_datagrams_and_connections_see_one_server(server: RunningServer, wires: list[Wire]) -> None:
    with Datagrams(server) as client:
        for number in range(50):
            assert client.ask(b"set k 0 0 2\r\n%02d\r\n" % number) == b"STORED\r\n"
            wire = wires[number % WORKERS]
            wire.send(b"get k\r\n")
            assert wire.until(b"END\r\n") == b"VALUE k 0 2\r\n%02d\r\nEND\r\n" % number
            assert wire.ask(b"set k 0 0 1\r\nx\r\n") == b"STORED\r\n"
            assert client.ask(b"get k\r\n") == b"VALUE k 0 1\r\nx\r\nEND\r\n"
        assert client.ask(b"incr n 1\r\n") == b"NOT_FOUND\r\n"


def test_statistics_count_each_datagram_and_the_socket_once(
    server: RunningServer, wires: list[Wire]
) -> None:
    with running("memlite", "-t", "1", "-U", "-1") as one, one.connect() as wire:
        opened = int(wire.stats()["total_connections"])
    counts = [int(wire.stats()["total_connections"]) for wire in wires]
    assert counts == [opened - 1 + WORKERS] * WORKERS
    with Datagrams(server) as client:
        for _ in range(100):
            assert client.ask(b"set u 0 0 1\r\nx\r\n") == b"STORED\r\n"
        client.sock.send(b"short")  # no frame
        client.send(b"get u\r\n", total=2)
        assert client.ask(b"get u\r\n") == b"VALUE u 0 1\r\nx\r\nEND\r\n"
    for wire in wires:
        assert wire.stats("udp")["refused"] == "2"
        assert wire.stats()["cmd_set"] == "100"
        sockets = wire.stats("conns")
        assert [name for name in sockets.values() if name.startswith("udp:")] == [
            f"udp:127.0.0.1:{server.udp_port}"
        ]
        assert wire.stats("udp")["requests_under_way"] == "0"


def test_datagrams_are_served_while_a_worker_is_replaced_or_stuck(
    server: RunningServer, wires: list[Wire]
) -> None:
    pids = [int(wires[0].stats("workers")[f"{number}:pid"]) for number in range(WORKERS)]
    with Datagrams(server) as client:
        os.kill(pids[1], signal.SIGKILL)
        assert client.works()
        assert wait_until(lambda: int(wires[0].stats("workers")["1:pid"]) not in (0, pids[1]))
        total = wires[0].stats()["total_connections"]
        other = int(wires[0].stats("workers")["1:pid"])
        os.kill(other, signal.SIGSTOP)
        assert wait_until(lambda: ") T" in Path(f"/proc/{other}/stat").read_text())
        for number in range(20):
            assert client.ask(b"set s 0 0 2\r\n%02d\r\n" % number) == b"STORED\r\n"
        os.kill(other, signal.SIGCONT)
        assert wires[0].stats()["total_connections"] == total, "its socket was counted before"


def test_a_stop_ends_all_that_read_the_socket(server: RunningServer) -> None:
    with Datagrams(server) as client:
        assert client.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    assert server.stop() == 0
