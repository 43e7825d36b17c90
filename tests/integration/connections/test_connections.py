"""Connections that pipeline, stall, vanish, come in thousands, or send invalid data."""

import contextlib
import re
import resource
import select
import selectors
import socket
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.patience import patiently
from tests.support.servers import RunningServer, Wire
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]
MEGABYTE = 1024 * 1024


def fill(wire: Wire, key: bytes, size: int) -> None:
    wire.send(b"set %b 0 0 %d\r\n" % (key, size) + b"v" * size + b"\r\n")
    assert wire.line() == b"STORED\r\n"


# Pipelining


def test_replies_of_one_packet_come_in_one_packet(memlite: RunningServer) -> None:
    with memlite.connect() as wire:
        wire.send(b"set a 0 0 1\r\n1\r\n" + b"get a\r\n" * 15)
        expected = b"STORED\r\n" + b"VALUE a 0 1\r\n1\r\nEND\r\n" * 15
        # A single recv: if replies were sent one by one, only the first would have arrived.
        select.select([wire.sock], [], [], 10)
        assert wire.sock.recv(65536) == expected


def test_thousands_of_pipelined_commands_are_answered_in_order(memlite: RunningServer) -> None:
    count = 20_000
    stream = b"".join(b"set k%d 0 0 5\r\n%05d\r\nget k%d\r\n" % (n, n, n) for n in range(count))
    with memlite.connect() as wire:
        wire.sock.settimeout(60)
        wire.sock.setblocking(False)
        received = bytearray()
        sent = 0
        deadline = time.monotonic() + 60
        while received.count(b"END\r\n", -200) == 0 or not received.endswith(
            b"VALUE k%d 0 5\r\n%05d\r\nEND\r\n" % (count - 1, count - 1)
        ):
            assert time.monotonic() < deadline
            readable, writable, _ = select.select(
                [wire.sock], [wire.sock] if sent < len(stream) else [], [], 10
            )
            if writable:
                sent += wire.sock.send(stream[sent : sent + 262_144])
            if readable:
                received += wire.sock.recv(1 << 20)
    lines = bytes(received).split(b"\r\n")
    assert len(lines) == count * 4 + 1
    for n in range(0, count, 997):
        assert lines[4 * n : 4 * n + 4] == [b"STORED", b"VALUE k%d 0 5" % n, b"%05d" % n, b"END"]


def test_all_commands_are_answered_after_the_client_half_closes(
    memlite: RunningServer,
) -> None:
    # The client sends more commands than one turn takes and then half-closes; none may be lost.
    assert memlite.ask(b"get nothing\r\n" * 1000) == b"END\r\n" * 1000


def test_yields_are_counted(start: Start) -> None:
    server = start("-R", "1")
    with server.connect() as wire:
        wire.send(b"set foobar 0 0 5\r\nBubba\r\n" * 6)
        assert wire.exactly(48) == b"STORED\r\n" * 6
        assert int(wire.stats()["conn_yields"]) == 5


@pytest.mark.alone
@patiently
def test_other_clients_are_served_while_one_pipelines(memlite: RunningServer) -> None:
    with memlite.connect() as greedy, memlite.connect() as modest:
        greedy.send(b"get nothing\r\n" * 15_000)
        start = time.monotonic()
        modest.send(b"get nothing\r\n")
        assert modest.line() == b"END\r\n"
        waited = time.monotonic() - start
        assert greedy.exactly(5 * 15_000) == b"END\r\n" * 15_000
        total = time.monotonic() - start
    assert waited < max(total / 2, 0.02)


# Too many connections


def connect_at_once(port: int, count: int, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Open connections faster than the server accepts them."""
    clients = []
    for _ in range(count):
        client = stack.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        clients.append(client)
    for client in clients:
        client.settimeout(60)
    return clients


def readable(clients: list[socket.socket]) -> list[socket.socket]:
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(0)]  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["memlite", "memlite-asyncio"])
def test_connections_over_the_limit_are_refused_without_log_messages(
    kind: str, start: Start
) -> None:
    server = start("-c", "10", "-b", "1024", kind=kind)
    soft, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    # This is the minimum that raise_file_limit would have ensured.
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (10 + 192, soft))
    with contextlib.ExitStack() as stack:
        clients = connect_at_once(server.port, 600, stack)
        assert wait_until(lambda: len(readable(clients)) == 590)
        refused = readable(clients)
        assert {client.recv(100) for client in refused} == {b"ERROR Too many open connections\r\n"}
        for client in set(clients) - set(refused):
            client.sendall(b"get a\r\n")
            assert client.recv(100) == b"END\r\n"
    assert server.stop() == 0
    assert server.log.read_text() == ""


def test_running_out_of_file_descriptors_is_logged_at_a_limited_rate(start: Start) -> None:
    server = start(kind="memlite-asyncio")
    limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (30, limits[1]))
    with contextlib.ExitStack() as stack:
        clients = connect_at_once(server.port, 100, stack)
        assert wait_until(lambda: "cannot accept" in server.log.read_text())
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
        clients[-1].sendall(b"get a\r\n")
        assert clients[-1].recv(100) == b"END\r\n"
    assert server.log.read_text() == (
        "memlite: warning: temporarily cannot accept connections: Too many open files\n"
    )


# Time


def test_debugtime_moves_the_clock_both_ways(start: Start) -> None:
    server = start("--debug-commands")
    with server.connect() as wire:
        before = int(wire.stats()["time"])
        assert wire.ask(b"debugtime 1000\r\n") == b"OK\r\n"
        assert 1000 <= int(wire.stats()["time"]) - before < 1010
        assert wire.ask(b"debugtime -500\r\n") == b"OK\r\n"
        assert 500 <= int(wire.stats()["time"]) - before < 510
        assert wire.ask(b"debugtime -99999999999999999999\r\n") == b"ERROR\r\n"


# Large values


def processor_seconds(server: RunningServer) -> float:
    stats = server.stats()
    return float(stats["rusage_user"]) + float(stats["rusage_system"])


def test_large_values_take_linear_time(start: Start) -> None:
    server = start("-I", "128m", "-m", "1024")
    small, large = 4 * MEGABYTE, 64 * MEGABYTE
    seconds: dict[int, list[float]] = {small: [], large: []}
    with server.connect(60) as wire:
        for size in (small, large) * 3:
            # The server's processor time hardly depends on other processes. Both sizes alternate,
            # with the same number of bytes.
            before = processor_seconds(server)
            for _ in range(large // size):
                fill(wire, b"big", size)
                wire.send(b"get big\r\n")
                assert wire.line() == b"VALUE big 0 %d\r\n" % size
                assert len(wire.exactly(size + 7)) == size + 7
            seconds[size].append(processor_seconds(server) - before)
    # If the buffer were sliced or joined as it grows, the same bytes would take ten times as long.
    assert statistics.median(seconds[large]) < statistics.median(seconds[small]) * 5


def test_the_item_size_limit_can_be_raised(start: Start) -> None:
    server = start("-I", "8m")
    with server.connect() as wire:
        fill(wire, b"big", 8 * MEGABYTE - 100)
        wire.send(b"set big 0 0 %d\r\n" % (8 * MEGABYTE) + b"v" * 8 * MEGABYTE + b"\r\n")
        assert wire.line() == b"SERVER_ERROR object too large for cache\r\n"


# Slow and vanishing clients


def test_a_slow_reader_does_not_increase_memory(start: Start) -> None:
    server = start("-R", "1000")
    with server.connect() as slow, server.connect() as other:
        fill(slow, b"big", 1_000_000)
        before = server.resident_kib()
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        # The client requests two gigabytes of replies and reads none.
        request = b"get big\r\n" * 100
        slow.sock.settimeout(1)
        with contextlib.suppress(TimeoutError):
            for _ in range(20):
                slow.send(request)
        fill(other, b"small", 10)  # other clients are served meanwhile
        assert server.resident_kib() - before < 64 * 1024
        # Once the client reads, it gets the replies.
        slow.sock.settimeout(60)
        for _ in range(100):
            assert slow.line() == b"VALUE big 0 1000000\r\n"
            assert len(slow.exactly(1_000_007)) == 1_000_007


@pytest.mark.parametrize("kind", ["memlite", "memlite-asyncio"])
@pytest.mark.parametrize("command", [b"get", b"gets", b"gat 0", b"gats 0"])
def test_many_large_values_are_not_copied_for_a_client_that_does_not_read(
    start: Start, kind: str, command: bytes
) -> None:
    server = start(kind=kind)
    with server.connect() as wire, server.connect() as other:
        fill(wire, b"big", 1_000_000)
        before = server.resident_kib()
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        wire.send(command + b" big" * 2000 + b"\r\nquit\r\n")
        fill(other, b"small", 10)
        assert server.resident_kib() - before < 64 * 1024
        # A client that reads gets all replies, with or without quit; a part is enough here.
        for _ in range(50):
            assert wire.line().startswith(b"VALUE big 0 1000000")
            assert wire.exactly(1_000_002).endswith(b"vv\r\n")


def test_quit_after_large_replies_waits_until_they_are_sent(server: RunningServer) -> None:
    with server.connect() as wire:
        fill(wire, b"big", 1_000_000)
        wire.send(b"get" + b" big" * 20 + b"\r\nquit\r\n")
        data = wire.rest()
    assert data == (b"VALUE big 0 1000000\r\n" + b"v" * 1_000_000 + b"\r\n") * 20 + b"END\r\n"


def test_a_partly_read_reply_is_not_changed_by_other_clients(memlite: RunningServer) -> None:
    with memlite.connect() as slow, memlite.connect() as other:
        fill(other, b"shared", 1_000_000)
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.send(b"get shared shared shared shared shared\r\n")
        assert slow.line() == b"VALUE shared 0 1000000\r\n"
        other.send(b"set shared 0 0 1000000\r\n" + b"w" * 1_000_000 + b"\r\ndelete shared\r\n")
        assert other.exactly(17) == b"STORED\r\nDELETED\r\n"
        data = slow.until(b"END\r\n")
        assert data.count(b"v" * 1_000_000) == 5
        assert b"w" not in data


def test_a_client_that_vanishes_leaves_no_connection_behind(memlite: RunningServer) -> None:
    beginnings = [
        b"", b"get", b"set half 0 0 100\r\n", b"set half 0 0 100\r\nhalf of it", b"get a\r\nge",
    ]  # fmt: skip
    before = int(memlite.stats()["curr_connections"])
    for number in range(100):
        wire = memlite.connect()
        wire.send(beginnings[number % len(beginnings)])
        if number % 2:
            # The client sends a reset.
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.sock.close()
    assert wait_until(lambda: int(memlite.stats()["curr_connections"]) == before)
    assert memlite.ask(b"get half\r\n") == b"END\r\n"


def test_half_a_large_value_is_freed_with_its_connection(start: Start) -> None:
    server = start("-I", "1g", "-m", "2048")
    before = server.resident_kib()
    for number in range(4):
        with server.connect() as wire, server.connect() as other:
            wire.send(b"set half 0 0 1000000000\r\n" + b"v" * 100 * MEGABYTE)
            # In the heap, this item comes after the part of the value that has been read.
            fill(other, b"pin%d" % number, 500_000)
        assert wait_until(lambda: server.stats()["curr_connections"] == "1")
    assert wait_until(lambda: server.resident_kib() - before < 32 * 1024)


def test_a_client_disconnects_during_a_large_reply(memlite: RunningServer) -> None:
    with memlite.connect() as wire:
        fill(wire, b"big", 1_000_000)
    for _ in range(20):
        wire = memlite.connect()
        wire.send(b"get" + b" big" * 100 + b"\r\n")
        wire.sock.recv(10)
        wire.sock.close()
    with memlite.connect() as wire:
        assert wire.ask(b"get nothing\r\n") == b"END\r\n"
    assert "Traceback" not in memlite.log.read_text()


# Invalid data


# Created by the test, as some are large and every worker imports this module.
GARBAGE: dict[str, Callable[[], bytes]] = {
    "no line end": lambda: b"A" * 100 * MEGABYTE,
    "an endless get": lambda: b"get " + b"k" * 100 * MEGABYTE,
    "spaces": lambda: b" " * 100 * MEGABYTE,
    "any bytes": lambda: bytes(range(256)) * 40_000,
    "the binary protocol": lambda: b"\x80" + b"\0" * 1000,
    "only line ends": lambda: b"\n" * 3 * MEGABYTE,
    "a huge value": lambda: b"set k 0 0 2000000000\r\n" + b"v" * 100 * MEGABYTE,
    "malformed commands": lambda: b"set k 0 0 x\r\n" * 100_000,
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_answered_or_disconnected_and_takes_no_memory(
    start: Start, garbage: str
) -> None:
    server = start()
    server.ask(b"get a\r\n" * 100)
    before = server.resident_kib()
    peak = before
    with server.connect(60) as wire:
        wire.sock.setblocking(False)
        sent = 0
        deadline = time.monotonic() + 60
        view = memoryview(GARBAGE[garbage]())
        while sent < len(view):
            assert time.monotonic() < deadline, "neither disconnected nor read"
            readable, writable, _ = select.select([wire.sock], [wire.sock], [], 10)
            try:
                if readable and not wire.sock.recv(1 << 20):
                    break
                if writable:
                    sent += wire.sock.send(view[sent : sent + MEGABYTE])
            except (ConnectionResetError, BrokenPipeError):
                break
            peak = max(peak, server.resident_kib())
    assert peak - before < 48 * 1024
    assert wait_until(lambda: server.resident_kib() - before < 16 * 1024)
    assert server.ask(b"get nothing\r\n") == b"END\r\n"
    assert "Traceback" not in server.log.read_text()


# Many connections


def test_more_connections_than_allowed(start: Start) -> None:
    server = start("-c", "20")
    assert wait_until(lambda: server.stats()["curr_connections"] == "1")
    wires = [server.connect() for _ in range(20)]
    for wire in wires:
        assert wire.ask(b"get nothing\r\n") == b"END\r\n"
    for _ in range(3):
        with server.connect() as rejected:
            assert rejected.rest() == b"ERROR Too many open connections\r\n"
    assert wires[0].stats()["rejected_connections"] == "3"
    assert wires[0].stats()["curr_connections"] == "20"
    for wire in wires[1:]:
        wire.sock.close()
    assert wait_until(lambda: wires[0].stats()["curr_connections"] == "1")
    assert server.ask(b"get nothing\r\n") == b"END\r\n"
    wires[0].sock.close()


def test_five_thousand_connections(start: Start) -> None:
    wanted = 5000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted + 200:
        pytest.skip(f"this machine allows {hard} open files, but the test needs {wanted + 200}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 200), hard))
    server = start("-c", str(wanted + 10), "-b", "4096")
    wires = []
    try:
        wires.extend(server.connect() for _ in range(wanted))
        # All connections at once: every request is sent before the first reply is read.
        for number, wire in enumerate(wires):
            wire.send(b"set c%d 0 0 4\r\n%04d\r\nget c%d\r\n" % (number, number, number))
        for number, wire in enumerate(wires):
            expected = b"STORED\r\nVALUE c%d 0 4\r\n%04d\r\nEND\r\n" % (number, number)
            assert wire.exactly(len(expected)) == expected
        assert server.stats()["curr_connections"] == str(wanted + 1)
    finally:
        for wire in wires:
            wire.sock.close()
    assert wait_until(lambda: server.stats()["curr_connections"] == "1")


def test_idle_connections_are_closed(start: Start) -> None:
    server = start("-o", "idle_timeout=2", "--debug-commands")
    with server.connect() as idle, server.connect() as busy:
        assert idle.ask(b"get nothing\r\n") == b"END\r\n"
        deadline = time.monotonic() + 60
        while not select.select([idle.sock], [], [], 0.3)[0]:
            assert time.monotonic() < deadline
            assert busy.ask(b"get nothing\r\n") == b"END\r\n"
        assert idle.rest() == b""
        assert busy.stats()["idle_kicks"] == "1"


def test_an_idle_client_that_does_not_read_is_closed(start: Start) -> None:
    server = start("-o", "idle_timeout=2")
    with server.connect() as deaf, server.connect() as busy:
        fill(deaf, b"big", 1_000_000)
        deaf.send(b"get" + b" big" * 20 + b"\r\n")

        def kicked() -> bool:
            return busy.stats()["curr_connections"] == "1"

        assert wait_until(kicked)
        assert busy.stats()["idle_kicks"] == "1"


def test_a_delayed_flush_is_on_time(start: Start) -> None:
    server = start()
    with server.connect() as wire:
        assert wire.ask(b"set before 0 0 1\r\n1\r\n") == b"STORED\r\n"
        begun = time.monotonic()
        assert wire.ask(b"flush_all 1\r\n") == b"OK\r\n"
        assert wait_until(lambda: wire.ask(b"touch before 0\r\n") == b"NOT_FOUND\r\n")
        assert 0.9 < time.monotonic() - begun < 6
        assert wire.ask(b"set after 0 0 1\r\n1\r\n") == b"STORED\r\n"
        time.sleep(1.2)  # after the tick that a coarser clock would have waited for
        assert wire.ask(b"touch after 0\r\n") == b"TOUCHED\r\n"


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "file"])
def test_a_get_a_second_after_flush_all_1_misses(
    start: Start, tmp_path: Path, *, stored: bool
) -> None:
    server = start(*(["--backend", f"file://{tmp_path}/items"] if stored else []))
    with server.connect() as wire:
        assert wire.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        assert wire.ask(b"flush_all 1\r\n") == b"OK\r\n"
        due = time.monotonic() + 1
        while time.monotonic() < due:
            pass  # a sleep would be longer
        wire.send(b"get a\r\n")
        assert wire.line() == b"END\r\n"


def test_tests_can_advance_the_clock(memlite: RunningServer) -> None:
    with memlite.connect() as wire:
        wire.ask(b"set brief 0 5 1\r\n1\r\n")
        wire.ask(b"set lasting 0 0 1\r\n1\r\n")
        assert wire.ask(b"debugtime 6\r\n") == b"OK\r\n"
        wire.send(b"get brief lasting\r\n")
        assert wire.until(b"END\r\n") == b"VALUE lasting 0 1\r\n1\r\nEND\r\n"
        assert wire.ask(b"flush_all 10\r\n") == b"OK\r\n"
        wire.send(b"get lasting\r\n")
        assert wire.until(b"END\r\n") == b"VALUE lasting 0 1\r\n1\r\nEND\r\n"
        assert wire.ask(b"debugtime 11\r\n") == b"OK\r\n"
        assert wire.ask(b"get lasting\r\n") == b"END\r\n"


def test_connection_states_in_stats(start: Start) -> None:
    server = start()
    with server.connect() as half, server.connect() as asking:
        half.send(b"set foo 0 0 6\r\n")
        assert wait_until(
            lambda: "conn_nread" in asking.stats("conns").values(),
        )
        states = asking.stats("conns")
        found = re.compile(rf"tcp:127\.0\.0\.1:{server.port}")
        numbers = {name.split(":")[0] for name in states}
        assert len(numbers) == 3
        for number in numbers:
            assert int(states[f"{number}:secs_since_last_cmd"]) >= 0
            if states[f"{number}:state"] == "conn_listening":
                assert found.fullmatch(states[f"{number}:addr"])
            else:
                assert found.fullmatch(states[f"{number}:listen_addr"])
                assert re.fullmatch(r"tcp:127\.0\.0\.1:\d+", states[f"{number}:addr"])
        values = sorted(value for name, value in states.items() if name.endswith(":state"))
        assert values == ["conn_listening", "conn_nread", "conn_parse_cmd"]
