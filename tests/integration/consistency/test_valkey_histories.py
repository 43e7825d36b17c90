"""Histories of three servers on one Valkey or Redis that is paused now and then are linearizable.

The variables of `tests.integration.consistency.test_histories` apply.
"""

import asyncio
import os
import random
from collections.abc import Callable

import pytest

from tests.support.linearizability import check_each
from tests.support.linearizability.clients import Target, record
from tests.support.servers import RunningServer
from tests.support.stores import Store, store

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

SECONDS = float(os.environ.get("MEMLITE_TEST_HISTORY_SECONDS", "6"))
SEED_VARIABLE = "MEMLITE_TEST_SEED"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * SECONDS + 300)]

KEYS = [b"a", b"b", b"c", b"n1", b"n2"]
MIX = {
    "get": 4, "gets": 4, "set": 4, "add": 3, "replace": 1, "append": 1, "prepend": 1, "cas": 4,
    "incr": 2, "delete": 3, "touch": 1, "gat": 1,
}  # fmt: skip


async def pause_now_and_then(one: Store, rng: random.Random) -> None:
    """Pause the store for longer than servers wait for a reply."""
    while True:
        await asyncio.sleep(rng.uniform(0.2, 1))
        one.pause()
        try:
            await asyncio.sleep(rng.uniform(0.4, 0.9))
        finally:
            one.resume()


async def test_three_servers_on_a_store_that_is_paused(
    start: Callable[..., RunningServer],
) -> None:
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(10**9))
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    with store() as one:
        url = f"valkey://127.0.0.1:{one.port}/p?timeout=0.3&deadline=2"
        starting = (asyncio.to_thread(start, "--backend", url) for _ in range(3))
        servers = await asyncio.gather(*starting)
        pausing = asyncio.ensure_future(pause_now_and_then(one, random.Random(seed)))
        try:
            targets = [
                Target(f"s{at}", lambda port=server.port: port, KEYS, MIX, 2)
                for at, server in enumerate(servers)
            ]
            recording = await record(targets, seed, SECONDS)
        finally:
            pausing.cancel()
            await asyncio.wait([pausing])
        failures = [int(server.stats("backend")["failures"]) for server in servers]
    assert not recording.bugs
    assert not check_each(recording.history)
    assert len(recording.history) > 30
    assert any(failures), "no reply was lost"
