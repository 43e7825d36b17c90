"""Measure the processor time of several clients of Valkey and Redis, on a real server.

    python scripts/benchmarks/bench_valkey_client.py

Each client sets and gets the same keys (100-byte values), several at a time; the server is a
separate process, which this script starts. Prints the CPU time per operation of this process and
all its threads (user and system), its ratio to that of redis-py's pipelines in the same round, and
operations per second: medians of interleaved rounds, so that other load on the machine affects all
clients. Needs ``memlite-cache[valkey]`` and valkey-server or redis-server; rows of clients that
are not installed are skipped, with a message.

With ``--through``, it measures a memlite server in front of the store instead, with as many clients
of its own protocol, and redis-py as a client of the store: operations for each second of CPU time
of memlite's process and of redis-py's. Needs Linux and a C compiler.
"""

import argparse
import asyncio
import contextlib
import importlib
import itertools
import logging
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import uvloop
from harness.processes import compile_loadgen, cpu_seconds, load, running

from memlite.backends import Record
from memlite.backends.registry import Context, make_backend, parse_url

KEYS: Final = [b"key-%d" % number for number in range(1000)]
VALUE: Final = b"v" * 100
OPERATIONS: Final = ("set", "get")
PEER: Final = "redis-py, pipelines of"
CLIENT: Final = "redis.asyncio:Redis"


class Way(ABC):
    """One client.

    Attributes:
        title: the title of its rows.
        needs: the module that must be importable.
    """

    title: str
    needs = "redis"

    def __init__(self, port: int, at_once: int) -> None:
        self.port = port
        self.at_once = at_once

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Connect, and close on exit."""
        yield

    @abstractmethod
    def get(self, key: bytes) -> Awaitable[object]:
        """Get a key."""

    @abstractmethod
    def set(self, key: bytes) -> Awaitable[object]:
        """Set a key."""

    async def run(self, operation: str, count: int) -> None:
        """Carry out an operation `count` times, `at_once` at a time."""
        one: Callable[[bytes], Awaitable[object]] = getattr(self, operation)
        keys = itertools.islice(itertools.cycle(KEYS), count)

        async def work() -> None:
            for key in keys:
                await one(key)

        await asyncio.gather(*(work() for _ in range(self.at_once)))


class Memlite(Way):
    """The complete backend: turns, deadline, circuit breaker, header, record."""

    title = "memlite: `ValkeyBackend`"

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Open the backend."""
        url = parse_url(f"valkey://127.0.0.1:{self.port}/bench")
        self._backend = make_backend(url, Context())
        await self._backend.open()
        yield
        await self._backend.close()

    def get(self, key: bytes) -> Awaitable[object]:
        """Get an item."""
        return self._backend.get(key)

    def set(self, key: bytes) -> Awaitable[object]:
        """Store an item."""
        return self._backend.put(Record(key, VALUE))


class RedisPy(Way):
    """redis-py, or a fork of it: a connection for each command in progress."""

    client = "redis.asyncio:Redis"

    def __init__(self, port: int, at_once: int, needs: str, client: str, title: str) -> None:
        super().__init__(port, at_once)
        self.needs, self.client, self.title = needs, client, title

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Make a client."""
        module, _, name = self.client.partition(":")
        kind = getattr(importlib.import_module(module), name)
        self._client: Any = kind(host="127.0.0.1", port=self.port, max_connections=self.at_once)
        yield
        await self._client.aclose()

    async def get(self, key: bytes) -> object:
        """Get a key."""
        return await self._client.get(key)

    async def set(self, key: bytes) -> object:
        """Set a key."""
        return await self._client.set(key, VALUE)


class Pipelines(RedisPy):
    """redis-py, with `at_once` commands in each pipeline."""

    async def run(self, operation: str, count: int) -> None:
        """Carry out an operation `count` times."""
        keys = itertools.cycle(KEYS)
        for _ in range(count // self.at_once):
            async with self._client.pipeline(transaction=False) as pipeline:
                for key in itertools.islice(keys, self.at_once):
                    if operation == "get":
                        pipeline.get(key)
                    else:
                        pipeline.set(key, VALUE)
                await pipeline.execute()


class Coredis(Way):
    """coredis."""

    title = "coredis"
    needs = "coredis"

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Make a client."""
        kind: Any = importlib.import_module("coredis").Redis
        async with kind(host="127.0.0.1", port=self.port) as self._client:
            yield

    async def get(self, key: bytes) -> object:
        """Get a key."""
        return await self._client.get(key)

    async def set(self, key: bytes) -> object:
        """Set a key."""
        return await self._client.set(key, VALUE)


class Glide(Coredis):
    """valkey-glide, a client in Rust."""

    title = "valkey-glide"
    needs = "glide"

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Make a client."""
        glide: Any = importlib.import_module("glide")
        where = [glide.NodeAddress("127.0.0.1", self.port)]
        self._client = await glide.GlideClient.create(glide.GlideClientConfiguration(where))
        yield
        await self._client.close()


def ways(port: int, at_once: int) -> list[Way]:
    """Return the clients whose package is installed, and report the others."""
    found: list[Way] = []
    redis, valkey = CLIENT, "valkey.asyncio:Valkey"
    for way in (
        Memlite(port, at_once),
        Pipelines(port, at_once, "redis", redis, f"{PEER} {at_once}"),
        RedisPy(port, at_once, "redis", redis, "redis-py, single commands"),
        RedisPy(port, at_once, "valkey", valkey, "valkey-py"),
        Coredis(port, at_once),
        Glide(port, at_once),
    ):
        try:
            importlib.import_module(way.needs)
            found.append(way)
        except ImportError:
            print(f"skipped, {way.needs} is not installed: {way.title}", file=sys.stderr)
    return found


async def measure(port: int, rounds: int, count: int, at_once: int) -> None:
    """Print the table."""
    costs: dict[tuple[str, str], list[float]] = {}
    rates: dict[tuple[str, str], list[float]] = {}
    async with contextlib.AsyncExitStack() as stack:
        clients = ways(port, at_once)
        for way in clients:
            await stack.enter_async_context(way.ready())
            await way.run("set", len(KEYS) + at_once)
        for turn in range(rounds):
            for way in reversed(clients) if turn % 2 else clients:
                for operation in OPERATIONS:
                    cost, rate = await once(way, operation, count)
                    costs.setdefault((way.title, operation), []).append(cost)
                    rates.setdefault((way.title, operation), []).append(rate)
    print(
        "| | CPU time per operation, µs: median (min) | ratio | operations per second: median "
        "(max) |\n| --- | --- | --- | --- |"
    )
    for (title, operation), found in sorted(costs.items(), key=lambda row: row[0][1]):
        peer = costs[f"{PEER} {at_once}", operation]
        ratio = statistics.median(one / other for one, other in zip(found, peer, strict=True))
        speed = rates[title, operation]
        print(
            f"| {title}, {operation} | {statistics.median(found):.1f} ({min(found):.1f}) "
            f"| {ratio:.2f} | {statistics.median(speed):,.0f} ({max(speed):,.0f}) |"
        )


async def once(way: Way, operation: str, count: int) -> tuple[float, float]:
    """Repeat an operation; return its CPU time in microseconds, and operations per second."""
    cpu, started = time.process_time(), time.perf_counter()
    await way.run(operation, count)
    cost = (time.process_time() - cpu) / count * 1e6
    return cost, count / (time.perf_counter() - started)


def measure_through(port: int, rounds: int, count: int, at_once: int) -> None:
    """Print the table of a server in front of the store, next to the client under the same load."""
    rates: dict[tuple[str, str], list[float]] = {}

    async def directly(way: Way, operation: str) -> float:
        async with way.ready():
            await way.run("set", len(KEYS) + at_once)
            return 1e6 / (await once(way, operation, count))[0]

    by_library = {
        "pipelines": Pipelines(port, at_once, "redis", CLIENT, f"{PEER} {at_once}"),
        "connections": RedisPy(port, at_once, "redis", CLIENT, "redis-py, single commands"),
    }
    by_memlite = {
        "pipelines": (f"memlite, pipelines of {at_once}", ["--connections=1"]),
        "connections": (f"memlite, {at_once} connections", [f"--connections={at_once}"]),
    }
    by_memlite["pipelines"][1].append(f"--pipeline={at_once}")
    command = [sys.executable, "-m", "memlite", "--backend", f"valkey://127.0.0.1:{port}/bench"]
    with tempfile.TemporaryDirectory() as folder, running("memlite", command, 0) as (pid, own):
        loadgen = compile_loadgen(Path(folder))
        common = [f"--keys={len(KEYS)}", f"--operations={count}"]
        load(loadgen, own, 0, [*common, "--gets=0", "--sets=1"])
        for _, operation, kind in itertools.product(range(rounds), OPERATIONS, by_library):
            way = by_library[kind]
            direct = uvloop.run(directly(way, operation))
            title, options = by_memlite[kind]
            mix = [f"--gets={operation == 'get':d}", f"--sets={operation == 'set':d}"]
            before = cpu_seconds(pid)
            done = load(loadgen, own, 0, [*common, *options, *mix])["operations"]
            used = cpu_seconds(pid).since(before).total
            rates.setdefault((way.title, operation), []).append(direct)
            rates.setdefault((title, operation), []).append(done / used)
    print("| | operations per second of CPU: median | relative to the client alone |")
    print("| --- | --- | --- |")
    for operation, kind in itertools.product(OPERATIONS, by_library):
        direct_rates = rates[by_library[kind].title, operation]
        rates_through = rates[by_memlite[kind][0], operation]
        shares = [one / other for one, other in zip(rates_through, direct_rates, strict=True)]
        print(
            f"| {by_library[kind].title}, {operation} | {statistics.median(direct_rates):,.0f} | |"
            f"\n| {by_memlite[kind][0]}, {operation} | {statistics.median(rates_through):,.0f} "
            f"| {statistics.median(shares):.0%} |"
        )


@contextlib.contextmanager
def server() -> Iterator[int]:
    """Run a server without persistence, and yield its port."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        sys.exit("neither valkey-server nor redis-server is installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [program, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while True:
            if process.poll() is not None:
                sys.exit("the server has exited")
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Run the server and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=6400, help="operations of each kind per round")
    parser.add_argument("--at-once", type=int, default=64, help="operations in flight")
    parser.add_argument(
        "--through", action="store_true", help="measure memlite in front of the store"
    )
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with server() as port:
        if options.through:
            measure_through(port, options.rounds, options.count, options.at_once)
        else:
            uvloop.run(measure(port, options.rounds, options.count, options.at_once))


if __name__ == "__main__":
    main()
