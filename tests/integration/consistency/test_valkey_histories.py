"""Histories of three servers on one failing Valkey or Redis are linearizable.

The variables of `tests.integration.consistency.test_histories` apply. No replica takes over here:
for a moment, the old master may still answer reads of keys that the new one has changed. See
`tests.integration.valkey.test_valkey_failover` for that case.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import pytest

from tests.support.linearizability import check_each
from tests.support.linearizability.clients import Recording, Target, record
from tests.support.servers import RunningServer
from tests.support.stores import Store, cluster, move_slot, store

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

from redis.crc import key_slot

SECONDS = float(os.environ.get("MEMLITE_TEST_HISTORY_SECONDS", "6"))
SEED_VARIABLE = "MEMLITE_TEST_SEED"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * SECONDS + 300)]

KEYS = [b"a", b"b", b"c", b"n1", b"n2"]
MIX = {
    "get": 4, "gets": 4, "set": 4, "add": 3, "replace": 1, "append": 1, "prepend": 1, "cas": 4,
    "incr": 2, "delete": 3, "touch": 1, "gat": 1,
}  # fmt: skip


Serve = Callable[..., RunningServer]


async def pause_now_and_then(stores: Sequence[Store], rng: random.Random) -> None:
    """Pause a server for longer than memlite waits for a reply."""
    while True:
        await asyncio.sleep(rng.uniform(0.2, 1))
        one = rng.choice(stores)
        one.pause()
        try:
            await asyncio.sleep(rng.uniform(0.4, 0.9))
        finally:
            one.resume()


async def cut_now_and_then(stores: Sequence[Store], rng: random.Random) -> None:
    """Close all connections to a server."""
    while True:
        await asyncio.sleep(rng.uniform(0.01, 0.2))
        await asyncio.to_thread(rng.choice(stores).ask, "CLIENT", "KILL", "TYPE", "normal")


async def move_slots(stores: Sequence[Store], rng: random.Random) -> None:
    """Move the slots of the keys between servers."""
    slots = [key_slot(b"p:" + key) for key in KEYS]
    owners = {slot: stores[slot * len(stores) // 16384] for slot in slots}
    while True:
        await asyncio.sleep(rng.uniform(0.01, 0.2))
        slot = rng.choice(slots)
        source, target = owners[slot], rng.choice(stores)
        if source is not target:
            await asyncio.to_thread(move_slot, stores, slot, source, target)
            owners[slot] = target


@contextlib.asynccontextmanager
async def going_on(trouble: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    causing = asyncio.ensure_future(trouble)
    try:
        yield
        assert not causing.done() or causing.result()
    finally:
        causing.cancel()
        await asyncio.wait([causing])


async def recorded(servers: Sequence[RunningServer], seed: str) -> Recording:
    targets = [
        Target(f"s{at}", lambda port=server.port: port, KEYS, MIX, 2)
        for at, server in enumerate(servers)
    ]
    return await record(targets, seed, SECONDS)


async def three(start: Serve, one: Store, options: str) -> list[RunningServer]:
    """Start three servers at once."""
    url = f"valkey://127.0.0.1:{one.port}/p?{options}"
    return await asyncio.gather(*(asyncio.to_thread(start, "--backend", url) for _ in range(3)))


def total(servers: Sequence[RunningServer], name: str) -> int:
    return sum(int(server.stats("backend")[name]) for server in servers)


@pytest.fixture
def seed() -> str:
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(10**9))
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    return seed


def verify(recording: Recording) -> None:
    assert not recording.bugs
    assert not check_each(recording.history)
    assert len(recording.history) > 30


@pytest.mark.parametrize("trouble", [pause_now_and_then, cut_now_and_then])
async def test_a_server_that_is_paused_or_cut_off(start: Serve, seed: str, trouble: Any) -> None:
    with store() as one:
        servers = await three(start, one, "timeout=0.3&deadline=2")
        async with going_on(trouble([one], random.Random(seed))):
            recording = await recorded(servers, seed)
        assert total(servers, "failures"), "no reply was lost"
    verify(recording)


async def test_a_cluster_whose_slots_move(start: Serve, seed: str) -> None:
    with cluster() as stores:
        servers = await three(start, stores[0], "timeout=2&deadline=20")
        async with going_on(move_slots(stores, random.Random(seed))):
            recording = await recorded(servers, seed)
        assert total(servers, "redirections")
    verify(recording)


@pytest.mark.parametrize("near", [(), ("--near-cache", "8m")], ids=["direct", "near"])
async def test_workers_of_one_server_that_are_cut_off(
    start: Serve, seed: str, near: tuple[str, ...]
) -> None:
    """Each of several connections reaches a different worker; they share one near cache."""
    with store() as one:
        url = f"valkey://127.0.0.1:{one.port}/p?timeout=0.3&deadline=2"
        server = await asyncio.to_thread(start, "--backend", url, "-t", "3", *near)
        async with going_on(cut_now_and_then([one], random.Random(seed))):
            targets = [Target("s", lambda: server.port, KEYS, {**MIX, "flush_all": 1}, 6)]
            recording = await record(targets, seed, SECONDS)
    verify(recording)
