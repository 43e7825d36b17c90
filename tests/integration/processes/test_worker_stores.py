"""Several workers (``-t``) on one store are one server, with near caches or without.

Each worker asks the store itself, and has a near cache of its own. The stores are real: an emulator
of a bucket with its own rules, and Valkey or Redis.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.program import run_forked
from tests.support.servers import RunningServer, Wire, running
from tests.support.stores import store
from tests.support.waiting import wait_until

WORKERS = 2
NEAR = ("--near-cache", "8m", "--near-cache-ttl", "3600")


@contextlib.contextmanager
def bucket() -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
    pytest.importorskip(
        "google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]"
    )
    from memlite.testing.gcs_emulator import emulator_thread

    with emulator_thread(["bucket"]) as emulator:
        yield f"gs://bucket/p?endpoint={emulator.url}"


@contextlib.contextmanager
def valkey() -> Iterator[str]:
    pytest.importorskip("redis", reason="needs memlite-cache[valkey]")
    with store() as one:
        yield f"valkey://127.0.0.1:{one.port}/p"


@pytest.fixture(scope="module", params=[valkey, bucket], ids=["valkey", "bucket"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.param() as url:
        yield url


@pytest.fixture(scope="module", params=[(), NEAR], ids=["direct", "near"])
def server(url: str, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    arguments = ("-t", str(WORKERS), "--backend", url, "--debug-commands", *request.param)
    with running("memlite", *arguments) as server:
        yield server


@contextlib.contextmanager
def one_each(server: RunningServer) -> Iterator[list[Wire]]:
    """Connect to each worker, in the order of their numbers."""
    with contextlib.ExitStack() as stack:
        found: dict[str, Wire] = {}
        while len(found) < WORKERS:
            wire = stack.enter_context(server.connect())
            found.setdefault(wire.stats("workers")["answering"], wire)
        yield [found[str(number)] for number in range(WORKERS)]


@pytest.fixture
def wires(server: RunningServer) -> Iterator[list[Wire]]:
    with one_each(server) as wires:
        assert wires[0].ask(b"flush_all\r\n") == b"OK\r\n"
        yield wires


def get(wire: Wire, key: bytes = b"k") -> bytes | None:
    wire.send(b"get %b\r\n" % key)
    reply = wire.until(b"END\r\n")
    return reply.split(b"\r\n")[1] if reply.startswith(b"VALUE") else None


def put(wire: Wire, value: bytes, key: bytes = b"k") -> None:
    assert wire.ask(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(value), value)) == b"STORED\r\n"


def pids(wire: Wire) -> list[int]:
    stats = wire.stats("workers")
    return [int(stats.get(f"{number}:pid", 0)) for number in range(WORKERS)]


CHANGES: dict[str, tuple[bytes, bytes, bytes | None]] = {
    "set": (b"set k 0 0 1\r\n6\r\n", b"STORED\r\n", b"6"),
    "replace": (b"replace k 0 0 1\r\n6\r\n", b"STORED\r\n", b"6"),
    "append": (b"append k 0 0 1\r\n6\r\n", b"STORED\r\n", b"56"),
    "incr": (b"incr k 2\r\n", b"7\r\n", b"7"),
    "delete": (b"delete k\r\n", b"DELETED\r\n", None),
    "touch": (b"touch k -1\r\n", b"TOUCHED\r\n", None),
    "flush_all": (b"flush_all\r\n", b"OK\r\n", None),
    "ms": (b"ms k 1 T9 F3\r\n6\r\n", b"HD\r\n", b"6"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_by_one_worker_are_visible_at_the_others(wires: list[Wire], name: str) -> None:
    request, reply, value = CHANGES[name]
    for writer, reader in (wires, wires[::-1]):
        for _ in range(3):
            put(writer, b"5")
            for wire in (reader, writer, reader):  # with a near cache, each has a copy then
                assert get(wire) == b"5"
            assert writer.ask(request) == reply
            assert get(reader) == value
            assert get(writer) == value
            put(reader, b"1")
            assert get(writer) == b"1"


def test_a_refused_change_means_that_no_copy_is_served_any_more(wires: list[Wire]) -> None:
    first, second = wires
    put(first, b"1")
    for wire in wires:
        assert get(wire) == b"1"
    first.send(b"gets k\r\n")
    unique = int(first.until(b"END\r\n").split()[4])
    assert second.ask(b"cas k 0 0 1 %d\r\n2\r\n" % unique) == b"STORED\r\n"
    assert first.ask(b"cas k 0 0 1 %d\r\n3\r\n" % unique) == b"EXISTS\r\n"
    assert [get(wire) for wire in wires] == [b"2", b"2"]


def test_a_delayed_flush_happens_at_its_time_for_all(wires: list[Wire]) -> None:
    first, second = wires
    put(first, b"1")
    assert second.ask(b"flush_all 100\r\n") == b"OK\r\n"
    assert [get(wire) for wire in wires] == [b"1", b"1"]
    assert first.ask(b"debugtime 101\r\n") == b"OK\r\n"
    assert [get(wire) for wire in wires] == [None, None]
    put(second, b"2")
    assert [get(wire) for wire in wires] == [b"2", b"2"]
    assert second.ask(b"debugtime -101\r\n") == b"OK\r\n"


def test_counters_are_exact_and_one_of_several_wins(wires: list[Wire]) -> None:
    turns = 25
    first = wires[0]
    put(first, b"0", b"n")
    for turn in range(turns):
        put(first, b"x", b"cas%d" % turn)
    first.send(b"".join(b"mg cas%d c\r\n" % turn for turn in range(turns)) + b"mn\r\n")
    uniques = [line[4:] for line in first.until(b"MN\r\n").split(b"\r\n")[:turns]]

    def work(wire: Wire) -> tuple[list[int], list[int], list[int]]:
        numbers, added, swapped = [], [], []
        for turn in range(turns):
            numbers.append(int(wire.ask(b"incr n 1\r\n")))
            if wire.ask(b"add won%d 0 0 1\r\nx\r\n" % turn) == b"STORED\r\n":
                added.append(turn)
            request = b"cas cas%d 0 0 1 %b\r\ny\r\n" % (turn, uniques[turn])
            if wire.ask(request) == b"STORED\r\n":
                swapped.append(turn)
            get(wire, b"n")
        return numbers, added, swapped

    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(work, wires))
    numbers, added, swapped = (sorted(found[0][at] + found[1][at]) for at in range(3))
    assert numbers == list(range(1, WORKERS * turns + 1))
    assert added == swapped == list(range(turns))
    assert [get(wire, b"n") for wire in wires] == [b"%d" % (WORKERS * turns)] * WORKERS


class Reading:
    """The highest value of an increasing number shown to any client, and violations."""

    def __init__(self) -> None:
        self.floor = 0
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def note(self, value: int, floor: int, who: str) -> None:
        with self._lock:
            if value < floor:
                self.wrong.append(f"{who} was shown {value}, after {floor} was known")
            self.floor = max(self.floor, value)

    def until(self, wire: Wire, stop: threading.Event, who: str) -> int:
        count = 0
        while not stop.is_set():
            floor = self.floor
            value = get(wire, b"n")
            assert value is not None
            self.note(int(value), floor, who)
            count += 1
        return count


def test_no_client_is_shown_an_older_value_after_a_newer_one(
    server: RunningServer, wires: list[Wire]
) -> None:
    reading, stop = Reading(), threading.Event()
    put(wires[0], b"0", b"n")

    def write(wire: Wire) -> None:
        for _ in range(60):
            floor = reading.floor
            reading.note(int(wire.ask(b"incr n 1\r\n")), floor + 1, "the writer")

    with one_each(server) as readers, ThreadPoolExecutor(2 * WORKERS) as pool:
        reads = [
            pool.submit(reading.until, wire, stop, f"worker {at}")
            for at, wire in enumerate(readers)
        ]
        for writing in [pool.submit(write, wire) for wire in wires]:
            writing.result()
        stop.set()
        assert all(read.result() > 0 for read in reads)
    assert not reading.wrong
    assert get(wires[0], b"n") == b"%d" % (60 * WORKERS)


def test_a_worker_is_killed_while_it_changes_items(server: RunningServer) -> None:
    """Each acknowledged change counts; an unacknowledged one may or may not count."""
    reading, stop = Reading(), threading.Event()
    known = unknown = 0
    with one_each(server) as (first, _):
        put(first, b"0", b"n")
        with server.connect() as own, ThreadPoolExecutor(1) as pool:
            while own.stats("workers")["answering"] != "0":
                own.sock.close()
                own = server.connect()
            read = pool.submit(reading.until, own, stop, "the reader")
            for _ in range(3):
                with one_each(server) as (_, second):
                    victim = pids(first)[1]
                    for turn in range(15):
                        if turn == 10:
                            os.kill(victim, signal.SIGKILL)
                        floor = reading.floor
                        try:
                            reply = second.ask(b"incr n 1\r\n")
                        except OSError:
                            reply = b""
                        if not reply:
                            unknown += 1
                            break
                        reading.note(int(reply), floor + 1, "the writer")
                        known += 1
                assert wait_until(lambda gone=victim: pids(first)[1] not in (0, gone))
            stop.set()
            assert read.result() > 0
            own.sock.close()
        assert not reading.wrong
        assert known >= 30
        with one_each(server) as wires:
            values = {get(wire, b"n") for wire in wires}
        assert len(values) == 1
        assert known <= int(values.pop() or 0) <= known + unknown


def test_statistics_are_of_all_workers(wires: list[Wire]) -> None:
    assert wires[0].ask(b"stats reset\r\n") == b"RESET\r\n"
    before = wires[0].stats("backend")
    for number, wire in enumerate(wires):
        assert get(wire, b"absent") is None
        put(wire, b"x", b"s%d" % number)
    for wire in wires:
        stats = wire.stats()
        assert (stats["cmd_set"], stats["get_misses"], stats["threads"]) == ("2", "2", "2")
        backend = wire.stats("backend")
        assert backend["state"] == "available"
        asked = "commands" if "commands" in backend else "class_b_operations"
        assert int(backend[asked]) >= int(before[asked]) + WORKERS
        if "near_limit" in backend:
            assert 7 << 20 < int(backend["near_limit"]) <= 8 << 20
        if "near_limit" in backend and asked != "commands":  # Valkey reports these changes, too
            assert (stats["curr_items"], backend["near_items"]) == ("2", "2")
    wires[1].send(b"lru_crawler metadump all\r\n")
    dump = wires[1].until(b"END\r\n")
    assert {b"key=s0", b"key=s1"} <= {line.split()[0] for line in dump.splitlines()}


def test_a_store_that_is_not_there_is_an_error_at_start() -> None:
    pytest.importorskip("redis", reason="needs memlite-cache[valkey]")
    url = "valkey://127.0.0.1:1/p?timeout=0.2&deadline=0.5"
    alone = run_forked("-t", "1", "-p", "0", "--backend", url)
    several = run_forked("-t", "2", "-p", "0", "--backend", url)
    assert several.returncode == alone.returncode != 0
    assert several.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]
    assert "Traceback" not in several.stderr


def test_a_worker_that_is_replaced_waits_for_the_store() -> None:
    pytest.importorskip("redis", reason="needs memlite-cache[valkey]")
    with store() as one:
        url = f"valkey://127.0.0.1:{one.port}/p?timeout=0.2&deadline=0.5"
        with running("memlite", "-t", "2", "--backend", url) as server, one_each(server) as wires:
            first, second = wires
            put(first, b"1")
            one.kill()
            victim = pids(first)[1]
            os.kill(victim, signal.SIGKILL)
            assert second.rest() == b""
            assert wait_until(lambda: "waiting for the store" in server.log.read_text())
            assert first.ask(b"set k 0 0 1\r\nx\r\n").startswith(b"SERVER_ERROR")
            one.restart()
            assert wait_until(lambda: pids(first)[1] not in (0, victim))
            with one_each(server) as (_, other):
                assert wait_until(lambda: other.ask(b"set k 0 0 1\r\n2\r\n") == b"STORED\r\n")
                assert wait_until(lambda: get(first) == b"2")


def test_a_worker_that_waits_for_the_store_does_not_hold_up_a_stop() -> None:
    pytest.importorskip("redis", reason="needs memlite-cache[valkey]")
    with store() as one:
        url = f"valkey://127.0.0.1:{one.port}/p?timeout=0.2&deadline=0.5"
        with running("memlite", "-t", "2", "--backend", url) as server:
            with one_each(server) as (first, _):
                one.kill()
                os.kill(pids(first)[1], signal.SIGKILL)
                assert wait_until(lambda: "waiting for the store" in server.log.read_text())
            assert server.stop() == 0
