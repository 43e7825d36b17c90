"""Several workers behind one port (``-t``): they share items, and are replaced when they end."""

import contextlib
import os
import random
import signal
import zlib
from collections.abc import Iterator

import pytest

from tests.support.servers import RunningServer, Wire, running
from tests.support.waiting import wait_until

WORKERS = 3


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running("memlite", "-t", str(WORKERS), "-m", "64") as server:
        yield server


@contextlib.contextmanager
def one_each(server: RunningServer) -> Iterator[dict[int, Wire]]:
    """Connect to each worker; workers get connections in turn."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(WORKERS)]
        yield {pid_behind(wire): wire for wire in wires}


def pid_behind(wire: Wire) -> int:
    """Return the process that serves a connection."""
    stats = wire.stats("workers")
    return int(stats[f"{stats['answering']}:pid"])


def is_replaced(server: RunningServer, victim: int) -> bool:
    """Return whether there are as many workers as before, with a new one in place of `victim`."""
    with contextlib.suppress(OSError, AssertionError), one_each(server) as wires:
        return len(wires) == WORKERS and victim not in wires
    return False  # the victim got one of the connections before its end was noticed


def test_each_worker_gets_connections_and_serves_what_others_stored(server: RunningServer) -> None:
    with one_each(server) as wires:
        assert len(wires) == WORKERS
        for pid, wire in wires.items():
            assert wire.ask(b"set %d 5 0 3\r\nabc\r\n" % pid) == b"STORED\r\n"
        for wire in wires.values():
            for pid in wires:
                wire.send(b"get %d\r\n" % pid)
                assert wire.until(b"END\r\n") == b"VALUE %d 5 3\r\nabc\r\nEND\r\n" % pid
            assert wire.stats()["curr_items"] == str(WORKERS)


def test_commands_that_read_before_they_write_are_atomic(server: RunningServer) -> None:
    count = 200
    with one_each(server) as wires:
        first = next(iter(wires.values()))
        first.ask(b"set number 0 0 1\r\n0\r\n")
        first.ask(b"set list 0 0 0\r\n\r\n")
        for wire in wires.values():
            wire.send(b"incr number 1\r\nappend list 0 0 2\r\n.,\r\n" * count)
        numbers = set()
        for wire in wires.values():
            for _ in range(count):
                numbers.add(int(wire.line()))
                assert wire.line() == b"STORED\r\n"
        assert numbers == set(range(1, WORKERS * count + 1)), "each is seen once"
        first.send(b"get number\r\n")
        assert first.until(b"END\r\n").split(b"\r\n")[1] == b"%d" % (WORKERS * count)
        first.send(b"get list\r\n")
        assert first.until(b"END\r\n").split(b"\r\n")[1] == b".," * WORKERS * count


def test_a_flush_is_seen_by_all(server: RunningServer) -> None:
    with one_each(server) as wires:
        for number, wire in enumerate(wires.values()):
            assert wire.ask(b"set key%d 0 0 1\r\nx\r\n" % number) == b"STORED\r\n"
        assert next(iter(wires.values())).ask(b"flush_all\r\n") == b"OK\r\n"
        for wire in wires.values():
            for number in range(WORKERS):
                assert wire.ask(b"get key%d\r\n" % number) == b"END\r\n"


def test_a_worker_that_is_killed_is_replaced_and_no_item_is_lost(server: RunningServer) -> None:
    with one_each(server) as wires:
        victim, *others = wires
        assert wires[victim].ask(b"set key 0 0 1\r\nx\r\n") == b"STORED\r\n"
        os.kill(victim, signal.SIGKILL)
        assert wires[victim].line() == b""
        for pid in others:
            wires[pid].send(b"get key\r\n")
            assert wires[pid].until(b"END\r\n") == b"VALUE key 0 1\r\nx\r\nEND\r\n"

    assert wait_until(lambda: is_replaced(server, victim))


def value(key: int, number: int, length: int) -> bytes:
    body = b"%d-%d-" % (key, number) * length
    return b"%08x%b" % (zlib.crc32(body), body)


def test_values_are_whole_whenever_workers_are_killed(server: RunningServer) -> None:
    chance = random.Random(1)
    for turn in range(12):
        with one_each(server) as wires:
            for wire in wires.values():
                sets = []
                for _ in range(200):
                    key = chance.randrange(20)
                    new = value(key, turn, chance.randrange(1, 200))
                    sets.append(b"set k%d 0 0 %d noreply\r\n%b\r\n" % (key, len(new), new))
                wire.send(b"".join(sets))
            victim = chance.choice(list(wires))
            os.kill(victim, signal.SIGKILL)
            for pid, wire in wires.items():
                if pid == victim:
                    continue
                for key in range(20):
                    wire.send(b"get k%d\r\n" % key)
                    reply = wire.until(b"END\r\n")
                    if reply != b"END\r\n":
                        _, new, *_ = reply.split(b"\r\n")
                        assert new[:8] == b"%08x" % zlib.crc32(new[8:])
                        assert new[8:].startswith(b"%d-" % key)

        assert wait_until(lambda gone=victim: is_replaced(server, gone))


def test_a_signal_stops_all(server: RunningServer) -> None:
    with one_each(server) as wires:
        assert server.stop() == 0
        for pid, wire in wires.items():
            assert wire.line() == b""
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_shutdown_by_a_client_stops_all() -> None:
    with running("memlite", "-t", "2", "-A") as server:
        with server.connect() as wire:
            wire.send(b"shutdown\r\n")
            assert wire.line() == b""
        assert server.process.wait(20) == 0


def test_nothing_is_evicted_where_that_is_an_error() -> None:
    with (
        running("memlite", "-t", "2", "-m", "10", "-M") as server,
        server.connect() as wire,
        server.connect() as other,
    ):
        assert wire.stats("settings")["evictions"] == "off"
        body = bytes(100_000)
        stored = 0
        while (
            reply := wire.ask(b"set k%d 0 0 100000\r\n%b\r\n" % (stored, body))
        ) == b"STORED\r\n":
            stored += 1
        assert reply == b"SERVER_ERROR out of memory storing object\r\n"
        assert stored > 50
        for number in range(stored):
            assert other.ask(b"mg k%d s\r\n" % number) == b"HD s100000\r\n"
        for number in range(0, stored, 2):
            assert other.ask(b"delete k%d\r\n" % number) == b"DELETED\r\n"
        for number in range(0, stored // 2, 2):
            assert wire.ask(b"set k%d 0 0 100000\r\n%b\r\n" % (number, body)) == b"STORED\r\n"
        assert wire.stats()["evictions"] == "0"


def test_the_limit_is_lowered_and_raised_again(server: RunningServer) -> None:
    with one_each(server) as wires:
        first, second, *_ = wires.values()
        body = bytes(100_000)
        for number in range(400):
            assert first.ask(b"set k%d 0 0 100000\r\n%b\r\n" % (number, body)) == b"STORED\r\n"
        before = int(second.stats()["curr_items"])
        assert first.ask(b"cache_memlimit 16\r\n") == b"OK\r\n"
        assert second.stats()["limit_maxbytes"] == str(16 << 20)
        assert second.stats("settings")["maxbytes"] == str(16 << 20)
        assert wait_until(lambda: int(second.stats()["curr_items"]) < before // 3)
        for number in range(400):
            assert second.ask(b"set n%d 0 0 100000\r\n%b\r\n" % (number, body)) == b"STORED\r\n"
        assert 50 < int(first.stats()["curr_items"]) < 160
        assert first.ask(b"cache_memlimit 64\r\n") == b"OK\r\n"
        for number in range(400):
            assert first.ask(b"set m%d 0 0 100000\r\n%b\r\n" % (number, body)) == b"STORED\r\n"
        assert int(second.stats()["curr_items"]) > 350
        for wrong in (b"65", b"8"):  # more than at the start, but too little for three workers
            reply = first.ask(b"cache_memlimit " + wrong + b"\r\n")
            assert reply.startswith(b"MEMLIMIT_ADJUST_FAILED")
