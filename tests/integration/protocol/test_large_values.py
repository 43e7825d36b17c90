"""Large values, which the server reads directly into the memory of the new item."""

import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from memlite.protocol.packets import Opcode, Status
from tests.support.packets import HEADER, NOOP, Reply, packet, replies, store
from tests.support.patience import patiently
from tests.support.servers import RunningServer, Wire
from tests.support.waiting import wait_until

Start = Callable[..., RunningServer]
KILOBYTE = 1024
MEGABYTE = 1024 * 1024
ANY_BYTES = random.Random(7).randbytes(MEGABYTE)
BOTH_LOOPS = pytest.mark.parametrize("kind", ["memlite", "memlite-asyncio"])


def set_line(key: bytes, size: int) -> bytes:
    return b"set %b 5 0 %d\r\n" % (key, size)


def block(key: bytes, value: bytes) -> bytes:
    return b"VALUE %b 5 %d\r\n%b\r\n" % (key, len(value), value)


def send_in_pieces(wire: Wire, data: bytes, ends: list[int]) -> None:
    """Send pieces with a pause after each, so that the server reads them separately."""
    begin = 0
    for end in [*ends, len(data)]:
        wire.send(data[begin:end])
        begin = end
        time.sleep(0.02)


@pytest.mark.parametrize("size", [63 * KILOBYTE, 64 * KILOBYTE, 300 * KILOBYTE, 1_000_000])
@pytest.mark.parametrize("pieces", range(6))
def test_a_value_is_stored_however_it_is_split(
    server: RunningServer, size: int, pieces: int
) -> None:
    value = ANY_BYTES[:size]
    request = set_line(b"large", size) + value + b"\r\nget large\r\n"
    begin, end = request.index(b"\n") + 1, request.index(b"\n") + 1 + size
    ends = [
        [],
        [begin],  # the line alone
        [begin + 1, end - 1],  # all but the last byte
        [begin + 1000, end],  # all but the line end
        [begin, end + 1],  # half of the line end
        sorted(random.Random(size).choices(range(1, len(request)), k=10)),
    ][pieces]
    with server.connect() as wire:
        send_in_pieces(wire, request, ends)
        reply = b"STORED\r\n" + block(b"large", value) + b"END\r\n"
        assert wire.exactly(len(reply)) == reply


OTHER_WAYS = {
    "add": (lambda size: b"add large 5 0 %d\r\n" % size, b"STORED\r\n"),
    "ms": (lambda size: b"ms large %d F5 k\r\n" % size, b"HD klarge\r\n"),
}


@pytest.mark.parametrize("size", [64 * KILOBYTE, 300 * KILOBYTE])
@pytest.mark.parametrize("command", OTHER_WAYS)
def test_so_are_those_of_other_commands(server: RunningServer, command: str, size: int) -> None:
    value = ANY_BYTES[:size]
    line, stored = OTHER_WAYS[command]
    with server.connect() as wire:
        wire.ask(b"delete large\r\n")
        for pieces in range(5):
            start = line(size)
            request = start + value + b"\r\nget large\r\ndelete large\r\n"
            begin, end = len(start), len(start) + size
            ends = [[], [begin], [begin + 1, end - 1], [begin + 1000, end], [begin, end + 1]]
            send_in_pieces(wire, request, ends[pieces])
            reply = stored + block(b"large", value) + b"END\r\nDELETED\r\n"
            assert wire.exactly(len(reply)) == reply
            # The connection still finds a bad ending, and what follows it.
            request = start + value + b"xy" + b"get large\r\n"
            send_in_pieces(wire, request, ends[pieces])
            reply = b"CLIENT_ERROR bad data chunk\r\nEND\r\n"
            assert wire.exactly(len(reply)) == reply


@pytest.mark.parametrize("size", [64 * KILOBYTE, 300 * KILOBYTE])
@pytest.mark.parametrize("opcode", [Opcode.SET, Opcode.ADDQ, Opcode.APPEND])
def test_so_are_those_of_packets(server: RunningServer, opcode: Opcode, size: int) -> None:
    value = ANY_BYTES[:size]
    with server.connect() as wire:
        for pieces in range(5):
            if opcode is Opcode.APPEND:
                prepared = store(Opcode.SET, b"large", b"", flags=5)
                request = packet(opcode, b"large", value=value)
            else:
                prepared = packet(Opcode.DELETE, b"large")
                request = store(opcode, b"large", value, flags=5)
            wire.send(prepared + NOOP)
            received_to_noop(wire)
            begin, end = len(request) - size, len(request)
            ends = [[], [begin], [begin + 1, end - 1], [begin - 1, begin + 1000], [24, end - 2]]
            send_in_pieces(wire, request + packet(Opcode.GET, b"large") + NOOP, ends[pieces])
            found = received_to_noop(wire)
            assert [reply.status for reply in found] == [Status.SUCCESS] * len(found)
            assert len(found) == (2 if opcode is Opcode.ADDQ else 3)
            assert found[-2].value == value
            assert found[-2].extras == struct.pack(">I", 5)


def received_to_noop(wire: Wire) -> list[Reply]:
    """Read replies up to that of a noop."""
    data = bytearray()
    while True:
        head = wire.exactly(HEADER.size)
        data += head + wire.exactly(HEADER.unpack(head)[6])
        if head[1] == Opcode.NOOP:
            return replies(bytes(data))


@BOTH_LOOPS
def test_small_commands_between_large_sets(start: Start, kind: str) -> None:
    server = start(kind=kind)
    before = int(server.stats()["bytes_read"])
    requests, replies = [], []
    for number in range(25):
        key, value = b"key%d" % number, ANY_BYTES[: 40 * KILOBYTE * number]
        requests += [
            set_line(key, len(value)) + value + b"\r\n",
            b"get %b\r\nset small 0 0 1 noreply\r\nx\r\ntouch small 0\r\n" % key,
        ]
        replies += [b"STORED\r\n", block(key, value), b"END\r\nTOUCHED\r\n"]
    sent, expected = b"".join(requests), b"".join(replies)
    with server.connect() as wire:
        # A thread reads the replies. Otherwise, each side would wait for the other to read.
        sender = threading.Thread(target=wire.send, args=(sent,))
        sender.start()
        assert wire.exactly(len(expected)) == expected
        sender.join()
    assert int(server.stats()["bytes_read"]) - before == len(sent) + len(b"stats\r\n")


@pytest.mark.parametrize("ending", [b"xy", b"\rx", b"x\n"])
def test_a_value_without_its_line_end_is_refused(server: RunningServer, ending: bytes) -> None:
    value = ANY_BYTES[:500_000]
    with server.connect() as wire:
        wire.send(set_line(b"bad", len(value)) + value + b"\r\n")
        assert wire.line() == b"STORED\r\n"
        request = set_line(b"bad", len(value)) + value[::-1] + ending
        send_in_pieces(wire, request, [100_000, len(request) - 2])
        assert wire.line() == b"CLIENT_ERROR bad data chunk\r\n"
        reply = block(b"bad", value) + b"END\r\n"
        wire.send(b"get bad\r\n")
        assert wire.exactly(len(reply)) == reply


@BOTH_LOOPS
def test_noreply(start: Start, kind: str) -> None:
    with start(kind=kind).connect() as wire:
        value = ANY_BYTES[:500_000]
        request = b"set quiet 5 0 500000 noreply\r\n" + value + b"\r\n"
        send_in_pieces(wire, request, [100_000, 400_000])
        assert wire.ask(b"get quiet\r\n") == block(b"quiet", value)[:22]


@BOTH_LOOPS
def test_replies_to_earlier_commands_wait_until_the_client_reads(start: Start, kind: str) -> None:
    value = ANY_BYTES[:1_000_000]
    with start(kind=kind).connect() as wire:
        wire.send(set_line(b"large", len(value)) + value + b"\r\n")
        assert wire.line() == b"STORED\r\n"
        other = value[::-1]
        request = b"get large\r\n" * 20 + set_line(b"other", len(other)) + other + b"\r\n"
        sender = threading.Thread(target=wire.send, args=(request,))
        sender.start()
        time.sleep(0.3)  # meanwhile the server has more to send than the kernel accepts
        expected = (block(b"large", value) + b"END\r\n") * 20 + b"STORED\r\n"
        assert wire.exactly(len(expected)) == expected
        sender.join()
        wire.send(b"get other\r\n")
        expected = block(b"other", other) + b"END\r\n"
        assert wire.exactly(len(expected)) == expected


@patiently
def test_a_client_that_sends_slowly_is_not_idle(start: Start) -> None:
    server = start("-o", "idle_timeout=2")
    value = ANY_BYTES[:500_000]
    with server.connect() as wire:
        wire.send(set_line(b"slow", len(value)))
        for begin in range(0, len(value), 20_000):
            time.sleep(0.2)
            wire.send(value[begin : begin + 20_000])
        wire.send(b"\r\n")
        assert wire.line() == b"STORED\r\n"


@BOTH_LOOPS
def test_a_client_that_stops_in_the_middle_is_idle(start: Start, kind: str) -> None:
    server = start("-o", "idle_timeout=1", kind=kind)
    with server.connect() as wire:
        wire.send(set_line(b"half", 500_000) + ANY_BYTES[:1000])
        assert wire.rest() == b""
    assert server.stats()["idle_kicks"] == "1"


@pytest.mark.parametrize("kind", ["memlite", "memlite-asyncio", "memlite-file"])
@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_disconnects_in_the_middle_leaves_nothing_behind(
    start: Start, kind: str, reset: bool
) -> None:
    server = start(kind=kind)
    grown = []
    for _ in range(3):
        for _ in range(100):
            with server.connect() as wire:
                wire.send(set_line(b"half", 1_000_000) + ANY_BYTES[:300_000])
                if reset:
                    linger = struct.pack("ii", 1, 0)
                    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        deadline = time.monotonic() + 60
        while server.stats()["curr_connections"] != "1" and time.monotonic() < deadline:
            time.sleep(0.02)
        grown.append(server.resident_kib())
    # Half of the memory that the last two hundred values would take.
    assert grown[-1] - grown[0] < 100 * KILOBYTE
    assert server.ask(b"get half\r\n") == b"END\r\n"
    assert "Traceback" not in server.log.read_text()


def test_memory_for_announced_values_is_bounded(start: Start) -> None:
    server = start("-c", "1000")
    value = ANY_BYTES[:1_000_000]
    before = server.resident_kib()
    crowd = [server.connect() for _ in range(500)]
    try:
        for wire in crowd:
            wire.send(set_line(b"promised", len(value)))
        # Other clients are served as usual, and so are the clients over the bound.
        with server.connect() as wire:
            wire.send(set_line(b"kept", len(value)) + value + b"\r\n")
            assert wire.line() == b"STORED\r\n"
        assert server.resident_kib() - before < 80 * KILOBYTE
        for wire in crowd[::100]:
            wire.send(value + b"\r\n")
            assert wire.line() == b"STORED\r\n"
        expected = block(b"promised", value) + b"END\r\n"
        crowd[0].send(b"get promised\r\n")
        assert crowd[0].exactly(len(expected)) == expected
    finally:
        for wire in crowd:
            wire.sock.close()
    # All announced values have been freed: the next large set is read like the first.
    with server.connect() as wire:
        wire.send(set_line(b"kept", len(value)) + value + b"\r\n")
        assert wire.line() == b"STORED\r\n"


SMALL = 30_000
LIMIT = 16


def fill(wire: Wire, uses: int) -> None:
    """Fill a cache of `LIMIT` MB with small items, and read the items that were kept."""
    for begin in range(0, SMALL, 1000):
        numbers = range(begin, begin + 1000)
        lines = (b"set small%d 0 0 100 noreply\r\n%b\r\n" % (n, b"x" * 100) for n in numbers)
        wire.send(b"".join(lines) + b"mn\r\n")
        assert wire.line() == b"MN\r\n"
    for _ in range(uses):
        wire.send(b"".join(b"mg small%d k q\r\n" % n for n in range(SMALL)) + b"mn\r\n")
        while wire.line() != b"MN\r\n":
            pass


# Each loop and each policy once: they are independent of each other.
@pytest.mark.parametrize(
    ("kind", "policy"),
    [("memlite", "s3fifo"), pytest.param("memlite-asyncio", "lru", marks=pytest.mark.slow)],
)
def test_large_values_displace_small_ones_in_use(start: Start, kind: str, policy: str) -> None:
    """Each large value waits until there is room for it, on any number of connections."""
    server = start("-m", str(LIMIT), "--eviction", policy, kind=kind)
    with server.connect() as wire:
        fill(wire, 3)
        assert int(wire.stats()["evictions"]) == 0
    crowd = [server.connect() for _ in range(8)]
    try:
        for number, wire in enumerate(crowd):
            for turn in range(2):
                value = ANY_BYTES[: 700_000 + number]
                wire.send(set_line(b"large%d.%d" % (number, turn), len(value)) + value + b"\r\n")
        for wire in crowd:
            assert wire.exactly(16) == b"STORED\r\n" * 2
        # A connection that closes while it waits frees its memory.
        with server.connect() as gone:
            gone.send(set_line(b"gone", len(ANY_BYTES)) + ANY_BYTES)
        value = ANY_BYTES[:700_000]
        crowd[0].send(set_line(b"last", len(value)) + value + b"\r\nget last\r\n")
        expected = b"STORED\r\n" + block(b"last", value) + b"END\r\n"
        assert crowd[0].exactly(len(expected)) == expected
    finally:
        for wire in crowd:
            wire.sock.close()
    stats = server.stats()
    assert int(stats["evictions"]) > 10
    assert int(stats["bytes"]) <= LIMIT * MEGABYTE
    assert "Traceback" not in server.log.read_text()


def test_a_graceful_stop_waits_for_the_rest(start: Start) -> None:
    end_in_the_middle(start(), signal.SIGUSR1)


@patiently  # the rest has a second to arrive
def test_a_normal_stop_waits_for_the_rest_too(start: Start) -> None:
    end_in_the_middle(start(), signal.SIGTERM)


def end_in_the_middle(server: RunningServer, number: int) -> None:
    with server.connect() as wire:
        wire.send(set_line(b"large", 500_000) + ANY_BYTES[:300_000])
        assert wait_until(lambda: "conn_nread" in server.stats("conns").values())
        server.process.send_signal(number)
        time.sleep(0.1)
        wire.send(ANY_BYTES[300_000:500_000] + b"\r\n")
        assert wire.line() == b"STORED\r\n"
        assert wire.rest() == b""
    assert server.process.wait(60) == 0
