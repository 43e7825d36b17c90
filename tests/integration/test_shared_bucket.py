"""Servers on one bucket, which fails in every way it can; on the emulator."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheServerError

from tests.integration.servers import RunningServer, running

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite[gcs]")

from memlite.testing.gcs_emulator import GcsEmulator, emulator_thread

BUCKET = "shared"


@pytest.fixture
def emulator() -> Iterator[GcsEmulator]:
    with emulator_thread([BUCKET]) as emulator:
        yield emulator


@contextlib.contextmanager
def serving(emulator: GcsEmulator, *arguments: str, prefix: str = "p") -> Iterator[RunningServer]:
    url = f"gs://{BUCKET}/{prefix}?endpoint={emulator.url}"
    with running("memlite", "--backend", url, *arguments) as server:
        yield server


def client_of(server: RunningServer) -> Client:
    return Client(("127.0.0.1", server.port), timeout=30, default_noreply=False)


class Worker:
    """A client that changes what the others change, and says what it was told."""

    def __init__(self, server: RunningServer, name: int) -> None:
        self.client = client_of(server)
        self.name = name
        self.counted = self.summed = 0
        self.won: list[int] = []
        self.appended: list[bytes] = []
        self.uncertain = 0

    def work(self, turns: int) -> None:
        for turn in range(turns):
            self.attempt(self.count)
            self.attempt(self.add, turn)
            self.attempt(self.append, turn)
            self.attempt(self.sum)

    def attempt(self, deed, *arguments) -> None:
        try:
            deed(*arguments)
        except MemcacheServerError:
            # Neither done nor not done, for all that is known; the bounds below allow for it.
            self.uncertain += 1

    def count(self) -> None:
        assert self.client.incr("count", 1) is not None
        self.counted += 1

    def add(self, turn: int) -> None:
        if self.client.add(f"add{turn}", f"{self.name}"):
            self.won.append(turn)

    def append(self, turn: int) -> None:
        word = b"<%d.%d>" % (self.name, turn)
        assert self.client.append("list", word)
        self.appended.append(word)

    def sum(self) -> None:
        while True:
            value, unique = self.client.gets("sum")
            if self.client.cas("sum", str(int(value) + 1), unique):
                self.summed += 1
                return


@pytest.mark.parametrize("near", [(), ("--near-cache", "8m")], ids=["plain", "near"])
def test_two_servers_lose_no_update_on_a_bucket_that_fails(
    emulator: GcsEmulator, near: tuple[str, ...]
) -> None:
    turns = 12
    with serving(emulator, *near) as one, serving(emulator, *near) as two:
        first = client_of(one)
        for key, value in (("count", "0"), ("sum", "0"), ("list", "")):
            assert first.set(key, value)
        emulator.faults.set(error_rates={503: 0.1}, lost_ack_rate=0.1, lost_ack="mixed")
        workers = [Worker((one, two)[number % 2], number) for number in range(8)]
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda worker: worker.work(turns), workers))
        emulator.faults.clear()
        uncertain = sum(worker.uncertain for worker in workers)
        assert uncertain <= len(workers) * turns * 4 // 20, "retries are there to hide most of it"
        # Exact, but for what was answered by an error.
        counted = sum(worker.counted for worker in workers)
        assert counted <= int(client_of(two).gets("count")[0]) <= counted + uncertain
        summed = sum(worker.summed for worker in workers)
        assert summed <= int(client_of(two).gets("sum")[0]) <= summed + uncertain
        listed = client_of(one).gets("list")[0]
        for worker in workers:
            for word in worker.appended:
                assert listed.count(word) == 1
        for turn in range(turns):
            winners = [worker.name for worker in workers if turn in worker.won]
            assert len(winners) <= 1
            if winners:
                assert client_of(one).gets(f"add{turn}")[0] == b"%d" % winners[0]
            else:
                assert uncertain


def test_the_bucket_goes_away_for_ten_seconds(emulator: GcsEmulator) -> None:
    acknowledged: dict[str, str] = {}
    longest = 0.0
    errors = 0
    stop = threading.Event()

    def write(server: RunningServer, name: int) -> None:
        nonlocal longest, errors
        client = client_of(server)
        number = 0
        while not stop.is_set():
            key, number = f"w{name}.{number}", number + 1
            started = time.monotonic()
            try:
                assert client.set(key, key)
                acknowledged[key] = key
            except MemcacheServerError:
                errors += 1
            longest = max(longest, time.monotonic() - started)
            time.sleep(0.005)

    with serving(emulator, "--near-cache", "8m") as server, ThreadPoolExecutor(8) as pool:
        client = client_of(server)
        assert client.set("near", "by")
        jobs = [pool.submit(write, server, name) for name in range(8)]
        try:
            time.sleep(1)
            emulator.faults.begin_outage("hang")
            before = len(acknowledged)
            end = time.monotonic() + 10
            while time.monotonic() < end:
                assert client.get("near") == b"by"
                time.sleep(0.05)
            during = len(acknowledged) - before
            emulator.faults.end_outage()
            back = time.monotonic()
            while len(acknowledged) - before - during < 50:
                assert time.monotonic() - back < 10, "it does not come back"
                time.sleep(0.05)
        finally:
            stop.set()
        for job in jobs:
            job.result()
        assert errors > 8
        assert longest < 10
        assert server.process.poll() is None
        for key, value in acknowledged.items():
            assert client.gets(key)[0] == value.encode()


def test_what_one_server_flushes_the_other_stops_showing(emulator: GcsEmulator) -> None:
    with serving(emulator) as one, serving(emulator) as two:
        assert client_of(one).set("key", "value")
        assert client_of(two).get("key") == b"value"
        assert client_of(one).flush_all()
        assert client_of(one).get("key") is None
        deadline = time.monotonic() + 5
        while client_of(two).get("key") is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client_of(two).set("key", "new")
        assert client_of(one).get("key") == b"new"


def test_prefixes_do_not_meet(emulator: GcsEmulator) -> None:
    with serving(emulator, prefix="a") as one, serving(emulator, prefix="ab") as two:
        assert client_of(one).set("key", "1")
        assert client_of(two).get("key") is None
        assert client_of(two).flush_all()
        assert client_of(one).get("key") == b"1"


def test_write_back_coalesces_and_stores_what_is_left_at_the_end(emulator: GcsEmulator) -> None:
    with serving(emulator, "--near-cache", "8m", "--write-back") as server:
        client = client_of(server)
        for number in range(500):
            assert client.set("hot", str(number))
            assert client.get("hot") == str(number).encode()
        assert server.stop() == 0
    with serving(emulator) as server:
        assert client_of(server).get("hot") == b"499"
    assert sum(emulator.operations.values()) < 100
