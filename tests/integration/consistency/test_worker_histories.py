"""Histories through several workers (``-t``), some of which are killed, are linearizable.

``MEMLITE_TEST_HISTORY_SECONDS`` sets the length of each recording; ``MEMLITE_TEST_SEED`` repeats
the choices of clients and faults, but not their timing.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.linearizability import check_each
from tests.support.linearizability.clients import Recording, Target, record
from tests.support.servers import RunningServer, running

SECONDS = float(os.environ.get("MEMLITE_TEST_HISTORY_SECONDS", "5"))
SEED_VARIABLE = "MEMLITE_TEST_SEED"
WORKERS = 3
COMMON = {
    "get": 4, "set": 4, "add": 3, "replace": 1, "append": 1, "prepend": 1, "incr": 3, "delete": 2,
}  # fmt: skip
# In memory, touch leaves the cas unique unchanged, as in memcached. The model of an item allows it
# to change, as backends may do, so no key is used with both touch and cas.
KEYS_AND_MIXES = [
    ([b"a", b"n1"], COMMON | {"gets": 4, "cas": 4}),
    ([b"b", b"n2"], COMMON | {"touch": 2, "gat": 2}),
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(6 * SECONDS + 300),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has several workers"),
]


@pytest.fixture
def seed() -> str:
    """Return the run's seed; it is printed, so pytest shows it if the test fails."""
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(10**9))
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    return seed


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running("memlite", "-t", str(WORKERS)) as server:
        yield server


def workers(server: RunningServer) -> list[int]:
    """Return the process IDs of the workers."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


async def kill_workers(server: RunningServer, rng: random.Random, recording: asyncio.Task) -> int:
    """Kill workers occasionally, but not so often that the server gives up; return their number."""
    kills = 0
    while not recording.done():
        await asyncio.wait([recording], timeout=rng.uniform(0.35, 0.8))
        alive = workers(server)
        if len(alive) == WORKERS:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(alive), signal.SIGKILL)
            kills += 1
    return kills


def verify(recording: Recording) -> None:
    assert not recording.bugs
    assert not recording.errors
    violations = check_each(recording.history)
    assert not violations, "\n\n".join(map(str, violations))
    assert any(one.result is not None and one.result.word == "HIT" for one in recording.history)
    assert len(recording.history) > 100
    print(f"{len(recording.history)} operations, {recording.unknown} unknown")  # noqa: T201


def targets(server: RunningServer, **more: int) -> list[Target]:
    return [
        Target(f"s{at}", lambda: server.port, keys, mix | more, clients=4)
        for at, (keys, mix) in enumerate(KEYS_AND_MIXES)
    ]


async def test_a_history_through_several_workers(server: RunningServer, seed: str) -> None:
    verify(await record(targets(server, flush_all=1), seed, SECONDS / 2))
    assert len(workers(server)) == WORKERS


async def test_a_history_while_workers_are_killed(server: RunningServer, seed: str) -> None:
    recording = asyncio.ensure_future(record(targets(server), seed, SECONDS))
    kills = await kill_workers(server, random.Random(seed), recording)
    verify(await recording)
    assert kills > SECONDS / 3
