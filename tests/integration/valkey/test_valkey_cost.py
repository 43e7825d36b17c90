"""The cost of a command in function calls, compared with the client library alone.

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
from memlite.config import Config
from memlite.server.connections.listeners import listen_tcp
from memlite.server.server import Server
from tests.support.stores import store

AT_ONCE = 64
ROUNDS = 5
# The library's calls that a command may take.
SHARE = 1.3
KEYS = [b"key-%d" % number for number in range(AT_ONCE)]
VALUE = b"v" * 100


class Calls:
    """Counts function calls, including those in C."""

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
    """Return the number of calls, the lowest of several attempts, because timers add some."""
    await work()
    counts = []
    for _ in range(ROUNDS):
        counter = Calls()
        with counter.counting():
            await work()
        counts.append(counter.count)
    return min(counts)


async def by_library(client: redis.asyncio.Redis, operation: str) -> None:
    async with client.pipeline(transaction=False) as pipeline:
        for key in KEYS:
            if operation == "get":
                pipeline.get(key)
            else:
                pipeline.set(key, VALUE)
        await pipeline.execute()


@pytest.mark.parametrize("operation", ["get", "set"])
async def test_a_command_takes_hardly_more_calls_than_in_a_pipeline_of_the_library(
    operation: str,
) -> None:
    with store() as one:
        client = redis.asyncio.Redis(port=one.port)
        backend = make(parse_url(f"valkey://127.0.0.1:{one.port}/p"), Context())
        await backend.open()

        async def by_memlite() -> None:
            if operation == "get":
                await asyncio.gather(*(backend.get(key) for key in KEYS))
            else:
                await asyncio.gather(*(backend.put(Record(key, VALUE)) for key in KEYS))

        try:
            for key in KEYS:
                await backend.put(Record(key, VALUE))
                await client.set(key, VALUE)
            ours = await calls(by_memlite)
            theirs = await calls(lambda: by_library(client, operation))
            assert ours <= SHARE * theirs, (ours / AT_ONCE, theirs / AT_ONCE)
        finally:
            await backend.close()
            await client.aclose()


REQUESTS = {
    "get": b"".join(b"get %b\r\n" % key for key in KEYS),
    "set": b"".join(b"set %b 0 0 %d\r\n%b\r\n" % (key, len(VALUE), VALUE) for key in KEYS),
}
REPLIES = {
    "get": b"".join(b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (key, len(VALUE), VALUE) for key in KEYS),
    "set": b"STORED\r\n" * AT_ONCE,
}


@pytest.mark.parametrize(("operation", "share"), [("get", 1.0), ("set", 1.2)])
async def test_a_command_in_a_pipeline_through_a_server(operation: str, share: float) -> None:
    """Count everything, protocol included, in proportion to the library alone."""
    with store() as one:
        client = redis.asyncio.Redis(port=one.port)
        listeners = listen_tcp(["127.0.0.1"], 0, 100)
        server = Server(Config(backend=f"valkey://127.0.0.1:{one.port}/p"), listeners)
        ready = asyncio.Event()
        serving = asyncio.ensure_future(server.run(ready.set))
        await ready.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", listeners[0].port)

        async def ask(operation: str) -> None:
            writer.write(REQUESTS[operation])
            replies = REPLIES[operation]
            assert await reader.readexactly(len(replies)) == replies

        try:
            await ask("set")
            ours = await calls(lambda: ask(operation))
            theirs = await calls(lambda: by_library(client, operation))
            assert ours <= share * theirs, (ours / AT_ONCE, theirs / AT_ONCE)
        finally:
            writer.close()
            server.request_stop()
            await serving
            await client.aclose()
