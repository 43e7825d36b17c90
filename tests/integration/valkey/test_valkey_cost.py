"""What a command costs beyond what the client library takes by itself, in calls of functions.

Calls do not depend on how busy the machine is. Processor time is compared by
scripts/benchmarks/bench_valkey_client.py.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator

import pytest

pytest.importorskip("redis", reason="needs memlite-cache[valkey]")

import redis.asyncio

from memlite.backends import Record
from memlite.backends.registry import Context, parse_url
from memlite.backends.valkey import make
from tests.support.stores import store

AT_ONCE = 64
ROUNDS = 5
# The library's calls that a command may take.
SHARE = 1.3
KEYS = [b"key-%d" % number for number in range(AT_ONCE)]
VALUE = b"v" * 100


class Calls:
    """Counts calls of functions, of those in C as well."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: object, event: str, argument: object) -> None:
        self.count += event in ("call", "c_call")

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)


async def calls(work: Callable[[], Awaitable[object]]) -> int:
    """Return how many calls it takes, at the least of several attempts: timers add some."""
    await work()
    counts = []
    for _ in range(ROUNDS):
        counter = Calls()
        with counter.counting():
            await work()
        counts.append(counter.count)
    return min(counts)


@pytest.mark.parametrize("operation", ["get", "set"])
async def test_a_command_takes_hardly_more_than_in_a_pipeline_of_the_library(
    operation: str,
) -> None:
    with store() as one:
        client = redis.asyncio.Redis(port=one.port)
        backend = make(parse_url(f"valkey://127.0.0.1:{one.port}/p"), Context())
        await backend.open()

        async def by_library() -> None:
            async with client.pipeline(transaction=False) as pipeline:
                for key in KEYS:
                    if operation == "get":
                        pipeline.get(key)
                    else:
                        pipeline.set(key, VALUE)
                await pipeline.execute()

        async def by_memlite() -> None:
            if operation == "get":
                await asyncio.gather(*(backend.get(key) for key in KEYS))
            else:
                await asyncio.gather(*(backend.put(Record(key, VALUE)) for key in KEYS))

        try:
            for key in KEYS:
                await backend.put(Record(key, VALUE))
                await client.set(key, VALUE)
            ours, theirs = await calls(by_memlite), await calls(by_library)
            assert ours <= SHARE * theirs, (ours / AT_ONCE, theirs / AT_ONCE)
        finally:
            await backend.close()
            await client.aclose()
