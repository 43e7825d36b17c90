"""Measure the processor time of several ways to read and write objects, on the emulator.

    python scripts/benchmarks/bench_gcs_client.py

Each way reads or writes the same objects (100-byte values with memlite's header), several at a
time; the emulator is a separate process. Prints this process's CPU time per object, user and
system, and objects per second: medians of interleaved rounds, so that other load on the machine
affects all of them. Needs ``memlite-cache[gcs]``; rows for gcloud-aio-storage and obstore are
skipped, with a message, if these are not installed.
"""

import argparse
import asyncio
import contextlib
import importlib
import logging
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import aiohttp
import uvloop

from memlite.backends import Record
from memlite.backends.gcs import GcsBackend, Options
from memlite.backends.gcs.codec import name_of
from memlite.backends.registry import Context
from memlite.testing.gcs_emulator import emulator_process

BUCKET: Final = "bench"
PREFIX: Final = "p/"
KEYS: Final = [b"key-%d" % number for number in range(1000)]
NAMES: Final = [PREFIX + name_of(key) for key in KEYS]


class Way(ABC):
    """One way to read objects.

    Attributes:
        title: the title of the row.
        needs: the module that must be importable.
    """

    title: str
    needs = "aiohttp"

    def __init__(self, url: str) -> None:
        self.url = url

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Connect, and close on exit."""
        yield

    @abstractmethod
    async def read(self, number: int) -> None:
        """Read the content of an object, and its generation."""

    async def read_all(self, count: int, at_once: int) -> None:
        """Read `count` objects, `at_once` at a time."""
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                await self.read(number % len(KEYS))

        await asyncio.gather(*(work() for _ in range(at_once)))


class Memlite(Way):
    """The complete backend: turns, deadline, circuit breaker, header, item."""

    title = "memlite: `GcsBackend.get`"

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Open the backend."""
        self._backend = GcsBackend(Options(BUCKET, PREFIX, self.url), Context())
        await self._backend.open()
        yield
        await self._backend.close()

    async def read(self, number: int) -> None:
        """Get an item."""
        assert await self._backend.get(KEYS[number])


class MemlitePut(Memlite):
    """The same for a set."""

    title = "memlite: `GcsBackend.put`"

    async def read(self, number: int) -> None:
        """Store an item."""
        key = KEYS[number]
        await self._backend.put(Record(key, b"v" * 100))


class Aiohttp(Way):
    """A bare request and its body."""

    title = "aiohttp, bare"

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Open a session."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._session:
            yield

    async def read(self, number: int) -> None:
        """Read an object through the JSON API."""
        name = NAMES[number].replace("/", "%2F")
        url = f"{self.url}/storage/v1/b/{BUCKET}/o/{name}?alt=media"
        async with self._session.get(url) as response:
            assert await response.read()
            assert response.headers["X-Goog-Generation"]


class AiohttpUpload(Aiohttp):
    """A bare upload without attributes; the response is not parsed."""

    title = "aiohttp, bare, upload"

    async def read(self, number: int) -> None:
        """Write an object through the JSON API."""
        name = NAMES[number].replace("/", "%2F")
        url = f"{self.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}"
        async with self._session.post(url, data=b"v" * 154) as response:
            assert await response.read()


class GcloudAio(Way):
    """gcloud-aio-storage; its `download` returns no headers, and so no generation."""

    title = "gcloud-aio-storage `download` (no generation)"
    needs = "gcloud.aio.storage"

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Open its session."""
        from gcloud.aio.storage import Storage

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            self._storage = Storage(session=session, api_root=self.url)
            yield

    async def read(self, number: int) -> None:
        """Download an object."""
        assert await self._storage.download(BUCKET, NAMES[number])


class Obstore(Way):
    """Rust's object_store; it has no conditional delete."""

    title = "obstore `get_async` (no conditional delete)"
    needs = "obstore"

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Create its store."""
        from obstore.store import GCSStore

        self._store = GCSStore(
            BUCKET,
            client_options={"allow_http": True},
            base_url=self.url,
            skip_signature=True,
        )
        yield

    async def read(self, number: int) -> None:
        """Read an object through the XML API."""
        import obstore

        result = await obstore.get_async(self._store, NAMES[number])
        assert result.meta["version"]
        assert len(await result.bytes_async())


class Synchronous(Way):
    """google-cloud-storage in threads."""

    title = "google-cloud-storage `download_as_bytes`, {} threads"
    needs = "google.cloud.storage"

    def __init__(self, url: str, threads: int) -> None:
        super().__init__(url)
        self.title = self.title.format(threads)
        self._threads = threads

    @contextlib.asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Create its client, with a connection per thread."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage
        from requests.adapters import HTTPAdapter

        client = storage.Client(
            project="p",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.url},
        )
        client._http.mount("http://", HTTPAdapter(pool_maxsize=self._threads))
        self._bucket = client.bucket(BUCKET)
        with ThreadPoolExecutor(self._threads) as self._pool:
            yield
        client.close()

    async def read(self, number: int) -> None:
        """Download an object in a thread."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._read, number)

    def _read(self, number: int) -> None:
        blob = self._bucket.blob(NAMES[number])
        assert blob.download_as_bytes()
        assert blob.generation


def available(ways: Sequence[Way]) -> list[Way]:
    """Return the ways whose package is installed, and report the others."""
    found = []
    for way in ways:
        try:
            importlib.import_module(way.needs)
            found.append(way)
        except ImportError:
            print(f"skipped, {way.needs} is not installed: {way.title}", file=sys.stderr)
    return found


async def measure(url: str, rounds: int, count: int, at_once: int) -> None:
    """Print the table."""
    writer = MemlitePut(url)
    ways = available(
        [Memlite(url), Aiohttp(url), GcloudAio(url), Obstore(url), Synchronous(url, 8),
         Synchronous(url, 64), AiohttpUpload(url), writer]
    )  # fmt: skip
    costs: dict[str, list[float]] = {way.title: [] for way in ways}
    rates: dict[str, list[float]] = {way.title: [] for way in ways}
    async with contextlib.AsyncExitStack() as stack:
        for way in ways:
            await stack.enter_async_context(way.ready())
        await writer.read_all(len(KEYS), at_once)
        for way in ways:
            await way.read_all(at_once, at_once)  # connects
        for _ in range(rounds):
            # The writer comes last, so that the readers find items.
            for way in ways:
                share = count // 5 if isinstance(way, Synchronous) else count
                cpu, started = time.process_time(), time.perf_counter()
                await way.read_all(share, at_once)
                costs[way.title].append((time.process_time() - cpu) / share * 1e6)
                rates[way.title].append(share / (time.perf_counter() - started))
    print("| | CPU, µs: median (min) | per second: median (max) |\n| --- | --- | --- |")
    for way in ways:
        cost, rate = costs[way.title], rates[way.title]
        print(
            f"| {way.title} | {statistics.median(cost):.0f} ({min(cost):.0f}) "
            f"| {statistics.median(rate):,.0f} ({max(rate):,.0f}) |"
        )


def main() -> None:
    """Run the emulator and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=5000, help="gets a round")
    parser.add_argument("--at-once", type=int, default=64, help="gets in flight")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with emulator_process("--bucket", BUCKET) as url:
        uvloop.run(measure(url, options.rounds, options.count, options.at_once))


if __name__ == "__main__":
    main()
