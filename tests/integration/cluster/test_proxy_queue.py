"""A proxy with `--in-flight`, which limits the requests sent to the nodes but not answered."""

import contextlib
import csv
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.packets import packet
from tests.support.proxies import node_stat, proxy
from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

FRAMINGS = [pytest.param({}, id="c"), pytest.param({"MEMLITE_NO_EXTENSIONS": "1"}, id="python")]
"""Environments that use the C extensions, if they were compiled, and that do not."""


def proxy_stats(front: RunningServer) -> dict[str, str]:
    return front.stats("proxy")


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[RunningServer, ...]]:
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(running("memlite")) for _ in range(2))


@pytest.fixture(scope="module")
def front(nodes: tuple[RunningServer, ...]) -> Iterator[RunningServer]:
    with proxy(nodes, "--in-flight", "1", "--deadline", "30") as front:
        assert wait_until(lambda: all(node_stat(front, n, "state") == "up" for n in nodes))
        yield front


def test_pipelines_of_several_clients_are_answered_in_order(front: RunningServer) -> None:
    with contextlib.ExitStack() as stack:
        wires: list[Wire] = [stack.enter_context(front.connect()) for _ in range(4)]
        for number, wire in enumerate(wires):
            sets = b"".join(b"set p%d:%d 0 0 1\r\nx\r\n" % (number, n) for n in range(100))
            gets = b"get %b\r\n" % b" ".join(b"p%d:%d" % (number, n) for n in range(100))
            quiet = b"delete p%d:0 noreply\r\n" % number
            wire.send(sets + gets + quiet + b"mg p%d:0 v\r\nversion\r\n" % number)
        for number, wire in enumerate(wires):
            assert wire.exactly(800) == b"STORED\r\n" * 100
            values = b"".join(b"VALUE p%d:%d 0 1\r\nx\r\n" % (number, n) for n in range(100))
            assert wire.exactly(len(values) + 5) == values + b"END\r\n"
            assert wire.line() == b"EN\r\n"
            assert wire.line().startswith(b"VERSION ")
    found = proxy_stats(front)
    assert found["in_flight_limit"] == "1"
    assert int(found["queue_length_max"]) > 0
    assert found["queue_length"] == "0"
    assert found["arrivals"] == found["queue_count"] == found["service_count"]
    assert float(found["queue_us_p50"]) <= float(found["queue_us_max"])


@pytest.mark.parametrize("environment", FRAMINGS)
@pytest.mark.parametrize("traced", [False, True])
def test_times_are_measured_without_a_limit(
    nodes: tuple[RunningServer, ...], tmp_path: Path, environment: dict[str, str], traced: bool
) -> None:
    arguments = ("--trace", str(tmp_path / "t"), "--trace-sample", "1/3") if traced else ()
    with (
        proxy(nodes, "--deadline", "30", *arguments, environment=environment) as front,
        front.connect() as wire,
        front.connect() as binary,
    ):
        assert wait_until(lambda: all(node_stat(front, n, "state") == "up" for n in nodes))
        for request in (b"get a\r\n", b"get a\r\nget b\r\nget c\r\n", b"get a b c d e f g h\r\n"):
            ends = request.count(b"get")
            assert wire.ask(b"stats reset\r\n") == b"RESET\r\n"

            def measured(request: bytes = request, ends: int = ends) -> bool:
                wire.send(request)
                assert wire.exactly(5 * ends) == b"END\r\n" * ends
                found = proxy_stats(front)
                return all(
                    int(found[f"{name}_count"]) > 3 for name in ("queue", "service", "think")
                )

            assert wait_until(measured)
        assert wire.ask(b"stats reset\r\n") == b"RESET\r\n"

        def asked_in_binary() -> bool:
            binary.send(packet(0, b"a"))
            assert len(binary.exactly(24 + len(b"Not found"))) == 33
            return int(proxy_stats(front)["think_count"]) > 3

        assert wait_until(asked_in_binary)
        found = proxy_stats(front)
        assert found["in_flight_limit"] == "none"
        assert found["queue_length"] == found["in_flight"] == "0"
        assert int(found["queue_length_max"]) >= float(found["queue_length_mean"]) >= 1
        assert int(found["arrivals"]) > 3
        for name in ("queue", "service", "think"):
            assert 0 < float(found[f"{name}_us_p50"]) <= float(found[f"{name}_us_max"]) < 30e6


@pytest.mark.parametrize("environment", FRAMINGS)
def test_requests_waiting_for_a_node_that_does_not_read_count_as_queued(
    nodes: tuple[RunningServer, ...], environment: dict[str, str]
) -> None:
    node, value = nodes[0], b"x" * 1_000_000
    with (
        proxy([node], "--deadline", "30", environment=environment) as front,
        contextlib.ExitStack() as stack,
    ):
        assert wait_until(lambda: node_stat(front, node, "state") == "up")
        wires = [stack.enter_context(front.connect()) for _ in range(20)]
        node.pause()
        try:
            # Requests that arrive together are sent together; later ones wait for them.
            for wire in wires[:10]:
                wire.send(b"set big 0 0 %d\r\n%b\r\n" % (len(value), value))
            assert wait_until(lambda: int(proxy_stats(front)["in_flight"]) > 0)
            for wire in wires[10:]:
                wire.send(b"set big 0 0 %d\r\n%b\r\n" % (len(value), value))
            assert wait_until(lambda: int(proxy_stats(front)["queue_length"]) > 0)
            assert int(proxy_stats(front)["in_flight"]) > 0
        finally:
            node.process.send_signal(signal.SIGCONT)
        for wire in wires:
            assert wire.line() == b"STORED\r\n"
        found = proxy_stats(front)
        assert found["queue_length"] == found["in_flight"] == "0"


SEVERAL = b"get %b\r\n" % b" ".join(b"s%d" % number for number in range(20))
"""A get of keys that both nodes have."""


@pytest.mark.parametrize("request_", [b"get b\r\n", SEVERAL])
def test_queued_reads_of_clients_that_disconnect_are_not_sent(
    front: RunningServer, nodes: tuple[RunningServer, ...], request_: bytes
) -> None:
    dropped = int(proxy_stats(front)["queue_dropped"])
    for node in nodes:
        node.pause()
    try:
        with front.connect() as first, front.connect() as leaving:
            first.send(b"get a\r\n")
            assert wait_until(lambda: proxy_stats(front)["in_flight"] == "1")
            leaving.send(request_)
            assert wait_until(lambda: proxy_stats(front)["queue_length"] == "1")
            leaving.send(b"set kept 0 0 1\r\nx\r\n")
            assert wait_until(lambda: proxy_stats(front)["queue_length"] == "2")
            leaving.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            leaving.sock.close()  # by a reset
            assert wait_until(lambda: front.stats()["curr_connections"] == "2")
            for node in nodes:
                node.process.send_signal(signal.SIGCONT)
            assert first.line() == b"END\r\n"
    finally:
        for node in nodes:
            node.process.send_signal(signal.SIGCONT)
    with front.connect() as wire:
        assert wait_until(lambda: wire.ask(b"mg kept\r\n") == b"HD\r\n")
    assert wait_until(lambda: int(proxy_stats(front)["queue_dropped"]) == dropped + 1)


@pytest.mark.parametrize("environment", FRAMINGS)
def test_a_get_of_several_keys_waits_no_longer_than_the_deadline(
    nodes: tuple[RunningServer, ...], environment: dict[str, str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    options = ("--in-flight", "1", "--deadline", "2", "--trace", str(trace))
    with (
        proxy(nodes, *options, environment=environment) as front,
        front.connect() as first,
        front.connect() as second,
    ):
        assert wait_until(lambda: all(node_stat(front, n, "state") == "up" for n in nodes))
        for number in range(0, 20, 2):
            assert first.ask(b"set s%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
        values = b"".join(b"VALUE s%d 0 1\r\nx\r\n" % number for number in range(0, 20, 2))
        for wire in (first, second):
            wire.send(SEVERAL)
            assert wire.exactly(len(values) + 5) == values + b"END\r\n"
        for node in nodes:
            node.pause()
        try:
            for wire in (first, second):
                wire.send(SEVERAL)
            replies = [wire.line() for wire in (first, second)]
        finally:
            for node in nodes:
                node.process.send_signal(signal.SIGCONT)
        assert wait_until(lambda: all(node_stat(front, n, "state") == "up" for n in nodes))
        found = proxy_stats(front)
        assert (found["in_flight"], found["queue_length"]) == ("0", "0")
        # Which of the two deadlines passes first is a matter of milliseconds.
        expired = int(found["queue_expired"])
        assert all(reply.startswith(b"SERVER_ERROR ") for reply in replies)
        assert sum(b"not sent: no worker in 2 s" in reply for reply in replies) == expired <= 1
        second.send(SEVERAL)
        assert second.until(b"END\r\n").endswith(b"END\r\n")
    with trace.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["command"] == "get"]
    assert [row["keys"] for row in rows] == ["20"] * 5
    assert sum(row["received"] == "" for row in rows) == expired


def test_binary_requests_go_through_the_queue(front: RunningServer) -> None:
    before = int(proxy_stats(front)["arrivals"])
    with front.connect() as wire:
        wire.send(packet(0x08))  # flush: one request, whatever the number of nodes
        assert wire.exactly(24)[:2] == b"\x81\x08"
        wire.send(packet(0x10, b"proxy"))
        last = b"\x81\x10" + b"\0" * 10 + b"\xde\xad\xbe\xef" + b"\0" * 8
        assert b"in_flight_limit1" in wire.until(last)
    assert int(proxy_stats(front)["arrivals"]) == before + 1


def test_service_times_of_nodes_are_measured_without_a_limit(
    nodes: tuple[RunningServer, ...],
) -> None:
    with proxy(nodes) as front:
        with front.connect() as wire:
            wire.send(b"set a 0 0 1\r\nx\r\n" + b"get a\r\n" * 50)
            assert wire.exactly(8) == b"STORED\r\n"
            assert wire.exactly(50 * 21) == b"VALUE a 0 1\r\nx\r\nEND\r\n" * 50
        found = proxy_stats(front)
        assert found["in_flight_limit"] == "none"
        assert "queue_refused" not in found
        names = [f"node:127.0.0.1:{node.port}:service_count" for node in nodes]
        assert sum(int(found[name]) for name in names) >= 1
        assert sum(int(found[name.replace("service_count", "arrivals")]) for name in names) == 51
