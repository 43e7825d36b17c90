"""Servers that share one bucket on the emulator, with every kind of fault."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheServerError

from tests.support.servers import RunningServer, running

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

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


Connect = Callable[[RunningServer], Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Yield a function that connects to a server; the connections are closed at the end."""
    with contextlib.ExitStack() as stack:

        def connect(server: RunningServer) -> Client:
            client = Client(("127.0.0.1", server.port), timeout=30, default_noreply=False)
            stack.callback(client.close)
            return client

        yield connect


def work(client: Client, name: int, turns: int) -> list[bool]:
    """Change items that other clients change too; return for each turn if the add succeeded."""
    won = []
    for turn in range(turns):
        client.incr("count", 1)
        won.append(client.add(f"add{turn}", str(name)))
        assert client.append("list", f"<{name}.{turn}>")
        while True:
            value, unique = client.gets("sum")
            if client.cas("sum", str(int(value) + 1), unique):
                break
    return won


@pytest.mark.slow
@pytest.mark.parametrize(
    "near",
    [
        pytest.param((), id="plain"),
        pytest.param(("--near-cache", "8m"), id="near"),
    ],
)
def test_two_servers_lose_no_update_on_an_unreliable_bucket(
    emulator: GcsEmulator, connect: Connect, near: tuple[str, ...]
) -> None:
    turns = 12
    with serving(emulator, *near) as one, serving(emulator, *near) as two:
        first = connect(one)
        for key, value in (("count", "0"), ("sum", "0"), ("list", "")):
            assert first.set(key, value)
        emulator.faults.set(error_rates={503: 0.1}, lost_ack_rate=0.1, lost_ack="mixed")
        clients = [connect((one, two)[number % 2]) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(work, clients, range(8), [turns] * 8))
        emulator.faults.clear()
        for client in (connect(one), connect(two)):
            assert client.gets("count")[0] == b"%d" % (8 * turns)
            assert client.gets("sum")[0] == b"%d" % (8 * turns)
            words = re.findall(rb"<\d+\.\d+>", client.gets("list")[0])
            assert sorted(words) == sorted(
                b"<%d.%d>" % (name, turn) for name in range(8) for turn in range(turns)
            )
            for turn in range(turns):
                (winner,) = [name for name in range(8) if won[name][turn]]
                assert client.gets(f"add{turn}")[0] == b"%d" % winner


def test_one_of_many_clients_of_two_servers_wins_the_right_to_recache(
    emulator: GcsEmulator,
) -> None:
    """The meta protocol's protection against a thundering herd, on an unreliable bucket."""

    def ask(server: RunningServer, request: bytes) -> bytes:
        return server.ask(request + b"mn\r\n").removesuffix(b"MN\r\n")

    with serving(emulator) as one, serving(emulator) as two, ThreadPoolExecutor(8) as pool:
        assert ask(one, b"ms k 3 T600\r\nold\r\n") == b"HD\r\n"
        emulator.faults.set(error_rates={503: 0.1}, lost_ack_rate=0.2, lost_ack="mixed")
        for turn in range(10):
            absent = b"mg new%d N60 v\r\n" % turn
            for request in (b"mg k v c\r\n", absent):
                if request is not absent:
                    assert ask((one, two)[turn % 2], b"md k I T60\r\n") == b"HD\r\n"
                servers = [one, two] * 4
                answers = list(pool.map(ask, servers, [request] * 8))
                winners = [answer for answer in answers if b" W\r\n" in answer]
                others = [answer for answer in answers if b" Z" in answer]
                assert (len(winners), len(others)) == (1, 7), answers
                if request is not absent:
                    unique = winners[0].split()[2].removeprefix(b"c")
                    stored = ask(two, b"ms k 1 C%b\r\n%d\r\n" % (unique, turn))
                    assert stored == b"HD\r\n"
                    assert ask(one, b"mg k v\r\n") == b"VA 1\r\n%d\r\n" % turn


@pytest.mark.slow
def test_an_outage_of_ten_seconds(emulator: GcsEmulator, connect: Connect) -> None:
    acknowledged: dict[str, str] = {}
    longest = 0.0
    errors = 0
    stop = threading.Event()

    def write(server: RunningServer, name: int) -> None:
        nonlocal longest, errors
        client = connect(server)
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
        client = connect(server)
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
                assert time.monotonic() - back < 60, "the bucket does not become available again"
                time.sleep(0.05)
        finally:
            stop.set()
        for job in jobs:
            job.result()
        assert errors > 8
        assert longest < 15
        assert server.process.poll() is None
        for key, value in acknowledged.items():
            assert client.gets(key)[0] == value.encode()


def test_a_flush_on_one_server_reaches_the_other(emulator: GcsEmulator, connect: Connect) -> None:
    with serving(emulator) as one, serving(emulator) as two:
        assert connect(one).set("key", "value")
        assert connect(two).get("key") == b"value"
        assert connect(one).flush_all()
        assert connect(one).get("key") is None
        deadline = time.monotonic() + 60
        while connect(two).get("key") is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert connect(two).set("key", "new")
        assert connect(one).get("key") == b"new"


def test_prefixes_are_separate(emulator: GcsEmulator, connect: Connect) -> None:
    with serving(emulator, prefix="a") as one, serving(emulator, prefix="ab") as two:
        assert connect(one).set("key", "1")
        assert connect(two).get("key") is None
        assert connect(two).flush_all()
        assert connect(one).get("key") == b"1"


def test_write_back_coalesces_sets_and_stores_the_rest_at_the_end(
    emulator: GcsEmulator, connect: Connect
) -> None:
    with serving(emulator, "--near-cache", "8m", "--write-back") as server:
        client = connect(server)
        for number in range(500):
            assert client.set("hot", str(number))
            assert client.get("hot") == str(number).encode()
        assert server.stop() == 0
    with serving(emulator) as server:
        assert connect(server).get("hot") == b"499"
    assert sum(emulator.operations.values()) < 100
