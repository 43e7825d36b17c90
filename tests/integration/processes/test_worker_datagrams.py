"""Several workers (``-t``) read the datagrams of one socket (``-U``)."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlite.server.workers.pace import AT_ONCE
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
        client.sock.send(b"short")  # too short for a frame header
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
        was = str(pids[1])
        os.kill(pids[1], signal.SIGKILL)
        assert client.works()
        assert wait_until(lambda: wires[0].stats("workers").get("1:pid", was) != was)
        total = wires[0].stats()["total_connections"]
        other = int(wires[0].stats("workers")["1:pid"])
        os.kill(other, signal.SIGSTOP)
        assert wait_until(lambda: ") T" in Path(f"/proc/{other}/stat").read_text())
        for number in range(20):
            assert client.ask(b"set s 0 0 2\r\n%02d\r\n" % number) == b"STORED\r\n"
        os.kill(other, signal.SIGCONT)
        assert wires[0].stats()["total_connections"] == total, "its socket was counted before"


BINARY_STAT = b"\x80\x10" + bytes(22)
BINARY_FLUSH = b"\x80\x08" + bytes(22)
FLOODS = {
    "stats": b"stats\r\n",
    "stats, many in each": b"stats\r\n" * 100,
    "items": b"stats items\r\n",
    "conns": b"stats conns\r\n",
    "flush_all": b"flush_all\r\n",
    "verbosity": b"verbosity 0\r\n",
    "binary stat": BINARY_STAT,
    "binary flush": BINARY_FLUSH,
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_requests_that_involve_all_workers_is_dropped(
    server: RunningServer, wires: list[Wire], flood: str
) -> None:
    count = 2000
    with Datagrams(server) as client:
        for number in range(count):
            client.send(FLOODS[flood])
            if number % 100 == 0:
                wire = wires[number // 100 % WORKERS]
                assert wire.ask(b"set k 0 0 1\r\nx\r\n") == b"STORED\r\n"
        assert wait_until(lambda: wires[0].stats("udp")["requests_under_way"] == "0")
        udp = wires[0].stats("udp")
        assert int(udp["dropped"]) > 0
        assert client.works(), "other requests are served all the while"


def test_a_few_administrative_datagrams_are_served(server: RunningServer) -> None:
    with Datagrams(server) as client:
        for _ in range(AT_ONCE - 1):
            assert client.ask(b"stats udp\r\n").startswith(b"STAT ")
        for _ in range(3 * AT_ONCE):  # cheap, so not limited
            assert client.ask(b"version\r\n").startswith(b"VERSION ")


def test_a_stop_ends_all_readers_of_the_socket(server: RunningServer) -> None:
    with Datagrams(server) as client:
        assert client.ask(b"set a 0 0 1\r\nx\r\n") == b"STORED\r\n"
    assert server.stop() == 0
