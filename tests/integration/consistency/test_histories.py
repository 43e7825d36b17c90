"""Histories of real servers, recorded by concurrent clients, are linearizable.

``MEMLITE_TEST_HISTORY_SECONDS`` sets the length of each recording; ``MEMLITE_TEST_SEED`` repeats
the choices of clients and faults, but not their timing.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.fake_gcs_server import fake_gcs_server, make_bucket
from tests.support.linearizability import Operation, Result, Violation, check_each
from tests.support.linearizability.clients import Recording, Target, record
from tests.support.linearizability.counting import outdated
from tests.support.servers import RunningServer, running

pytest.importorskip("aiohttp", reason="the bucket backend needs memlite-cache[gcs]")
pytest.importorskip("google.cloud.storage", reason="the bucket backend needs memlite-cache[gcs]")

from memlite.testing.gcs_emulator import GcsEmulator, emulator_thread

SECONDS = float(os.environ.get("MEMLITE_TEST_HISTORY_SECONDS", "5"))
SEED_VARIABLE = "MEMLITE_TEST_SEED"
BUCKET = "bucket"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * SECONDS + 300)]

KEYS = [b"a", b"b", b"c", b"n1", b"n2"]
ALL = {
    "get": 4, "gets": 4, "set": 4, "add": 3, "replace": 1, "append": 1, "prepend": 1, "cas": 4,
    "incr": 2, "delete": 3, "touch": 1, "gat": 1,
}  # fmt: skip

READS = ("get", "gets")


@pytest.fixture
def seed() -> str:
    """Return the run's seed; it is printed, so pytest shows it if the test fails."""
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(10**9))
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    return seed


@pytest.fixture
def emulator(seed: str) -> Iterator[GcsEmulator]:
    with emulator_thread([BUCKET]) as emulator:
        emulator.faults.reseed(int(seed))
        yield emulator


Serve = Callable[..., RunningServer]


@pytest.fixture
def serve(start: Callable[..., RunningServer], emulator: GcsEmulator) -> Serve:
    """Return a function that starts a server on the emulator's bucket."""
    url = f"gs://{BUCKET}/p?endpoint={emulator.url}&timeout=0.3&deadline=2"
    return lambda *arguments: start("--backend", url, *arguments)


async def several(start: Serve, *arguments: str) -> list[RunningServer]:
    """Start three servers at once."""
    return await asyncio.gather(*(asyncio.to_thread(start, *arguments) for _ in range(3)))


def target(server: RunningServer, name: str, mix=ALL, keys=KEYS, clients=2) -> Target:
    return Target(name, lambda: server.port, keys, mix, clients)


def lines(found: Sequence[object]) -> str:
    return "\n\n".join(map(str, found))


def shown(refused: list[Operation], violation: Violation) -> str:
    """Return the refused changes of the key, which no client should have seen."""
    changes = (
        one for one in refused if one.key == violation.operation.key and one.name not in READS
    )
    return "".join(f"\n  {one}" for one in changes)


def verify(recording: Recording, history: list[Operation] | None = None, least: int = 100) -> None:
    """Check a history (by default, the whole recording), and that enough has happened in it."""
    assert not recording.bugs
    violations = check_each(recording.history if history is None else history)
    assert not violations, "\n\n".join(
        f"{one}\nrefused: {shown(recording.refused, one)}" for one in violations
    )
    assert any(one.result is not None and one.result.word == "HIT" for one in recording.history)
    assert len(recording.history) > least
    text = f"{len(recording.history)} operations, {recording.unknown} with unknown outcomes"
    print(text, dict(recording.errors.most_common(8)))  # noqa: T201


@contextlib.asynccontextmanager
async def outages(emulator: GcsEmulator, seed: str) -> AsyncIterator[None]:
    """Let all requests hang occasionally, for longer than servers wait for an answer."""
    rng = random.Random(seed)

    async def cause() -> None:
        while True:
            await asyncio.sleep(rng.uniform(0.5, 3))
            emulator.faults.begin_outage("hang", rng.uniform(0.1, 0.8))

    causing = asyncio.ensure_future(cause())
    try:
        yield
    finally:
        causing.cancel()
        emulator.faults.end_outage()


FAULTS = {
    "error_rates": {503: 0.05, 429: 0.02},
    "reset_rate": 0.03,
    "lost_ack_rate": 0.06,
    "lost_ack": "mixed",
    "latency": "uniform:0ms-8ms",
}
LATE = {"late_rate": 0.1, "late_delay": "uniform:50ms-1500ms"}
"""Writes that arrive after the server has given them up."""


# Exact guarantees


@pytest.mark.parametrize("late", [False, True], ids=["lost", "late"])
async def test_three_servers_on_an_unreliable_bucket(
    emulator: GcsEmulator, serve: Serve, seed: str, late: bool
) -> None:
    """Requests are refused, reset or lost; or they hang, and arrive after the server gave up."""
    servers = await several(serve)
    emulator.faults.set(**FAULTS)
    if late:
        emulator.faults.set(**LATE)
    async with outages(emulator, seed) if not late else contextlib.nullcontext():
        recording = await record(
            [target(one, f"s{at}") for at, one in enumerate(servers)], seed, SECONDS
        )
    verify(recording)
    assert emulator.faults.counts["late" if late else "hang"]
    assert all(emulator.faults.counts[fault] for fault in ("lose-reset", "error-503", "reset"))


async def test_three_servers_on_an_independent_emulator(
    start: Callable[..., RunningServer], seed: str
) -> None:
    with fake_gcs_server() as url:
        backend = f"gs://{make_bucket(url)}/p?endpoint={url}"
        servers = await several(start, "--backend", backend)
        recording = await record(
            [target(one, f"s{at}") for at, one in enumerate(servers)], seed, SECONDS / 2
        )
    verify(recording)


CLOSED_PORT = 1


async def test_a_file_whose_server_is_killed(tmp_path: Path, seed: str) -> None:
    port = CLOSED_PORT
    url = f"file://{tmp_path}/cache.json?compact=20000"
    clients = Target("s", lambda: port, KEYS, {**ALL, "flush_all": 0}, clients=6, final=True)
    rng = random.Random(seed)
    recording = asyncio.ensure_future(record([clients], seed, SECONDS))
    kills = 0
    while not recording.done():
        with running("memlite", "--backend", url) as server:
            port = server.port
            await asyncio.wait([recording], timeout=rng.uniform(0.05, 1))
            port = CLOSED_PORT
            server.process.kill()
            kills += 1
    verify(await recording)
    assert kills > SECONDS / 10


# Guarantees of near caches and write-back


@pytest.mark.parametrize("near", [(), ("--near-cache", "8m")], ids=["direct", "near"])
async def test_workers_of_one_server_on_an_unreliable_bucket(
    emulator: GcsEmulator, serve: Serve, seed: str, near: tuple[str, ...]
) -> None:
    """Each of several connections reaches a different worker; occasionally, one is killed."""
    server = serve("-t", "3", *near)
    emulator.faults.set(**FAULTS)
    rng = random.Random(seed)
    recording = asyncio.ensure_future(record([target(server, "s", clients=6)], seed, SECONDS))
    kills = 0
    while not recording.done():
        await asyncio.wait([recording], timeout=rng.uniform(0.5, 1.5))
        stats = await asyncio.to_thread(server.stats, "workers")
        victim = int(stats.get(f"{rng.randrange(3)}:pid", 0))
        if victim:
            os.kill(victim, signal.SIGKILL)
            kills += 1
    verify(await recording)
    assert kills > SECONDS / 10


COUNTING = {"get": 8, "gets": 4, "incr": 2, "gat": 1, "touch": 1}
NEAR = ("--near-cache", "8m")


async def test_near_caches_show_changes_of_their_own_server(
    emulator: GcsEmulator, serve: Serve, seed: str
) -> None:
    """Each key is changed through one server, which never shows an outdated copy of it."""
    servers = await several(serve, *NEAR)
    emulator.faults.set(**FAULTS, **LATE)
    recording = await record(
        [target(one, f"s{at}", keys=KEYS[at::3], clients=4) for at, one in enumerate(servers)],
        seed,
        SECONDS / 2,
    )
    verify(recording)


async def test_reads_through_a_near_cache_are_in_order_and_recent(
    emulator: GcsEmulator, serve: Serve, seed: str
) -> None:
    """Counters, which only grow, are changed through three servers."""
    ttl = 1.0
    servers = await several(serve, *NEAR, "--near-cache-ttl", f"{ttl}")
    keys = [b"n%d" % number for number in range(3)]
    stored = []
    for key in keys:
        assert servers[0].ask(b"set %b 0 0 1\r\n0\r\nquit\r\n" % key) == b"STORED\r\n"
        stored.append(Operation("", "set", key, -2, -1, Result("STORED"), b"0"))
    emulator.faults.set(latency="uniform:0ms-15ms", lost_ack_rate=0.05, lost_ack="mixed")
    recording = await record(
        [target(one, f"s{at}", COUNTING, keys, 3) for at, one in enumerate(servers)],
        seed,
        SECONDS / 2,
    )
    current = [one for one in recording.history if one.name != "get"]
    assert len(current) < len(recording.history)
    verify(recording, [*stored, *current])
    for key in keys:
        history = [one for one in recording.history if one.key == key]
        for at in range(len(servers)):
            on_one = [one for one in history if one.client.startswith(f"s{at}/")]
            assert not lines(outdated(on_one))
        assert not lines(outdated(history, ttl))


async def test_write_back_loses_nothing_when_a_server_is_stopped(
    emulator: GcsEmulator, serve: Serve, seed: str
) -> None:
    """All keys are changed through one server, which stores its pending changes when it stops."""
    home = serve(*NEAR, "--write-back")
    emulator.faults.set(**FAULTS, **LATE)
    recording = await record([target(home, "s", ALL, clients=4)], seed, SECONDS / 2)
    emulator.faults.clear()
    assert home.stop() == 0
    after = serve()
    for key in KEYS:
        reply = after.ask(b"get %b\r\nquit\r\n" % key)
        found = reply.split(b"\r\n")[1] if reply.startswith(b"VALUE") else None
        result = Result("MISS") if found is None else Result("HIT", found)
        recording.history.append(Operation("after", "get", key, 1e6, 1e6 + 1, result))
    verify(recording)
