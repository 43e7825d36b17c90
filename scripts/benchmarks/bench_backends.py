"""Measure durable sets per second of the JSON file, compared with two other ways to store items.

Each is a backend of the same server, on the same disk, with the same clients: ``file://`` with its
journal; SQLite (WAL, synchronous=FULL, one transaction per set; the backend of
docs/how-to/write-a-backend.md); and the naive design, which rewrites the whole file under a lock.
Rounds are interleaved, and medians are printed. With ``--gcs`` it measures the cost of a get from a
bucket through the server, compared with google-cloud-storage called directly, on the emulator.
Needs Linux, two cores and a C compiler; see ``--help``.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from harness.processes import (
    BenchError,
    compile_loadgen,
    cpu_seconds,
    listens,
    load,
    pinned,
    progress,
    running,
)

from memlite.backends import ANY, Anything, Backend, Record, Versioned
from memlite.backends.jsonfile import FileBackend
from memlite.backends.registry import Context
from memlite.config import Config
from memlite.core.errors import VersionConflict
from memlite.server.connections.listeners import listen_tcp
from memlite.server.server import Server

ROOT: Final = Path(__file__).resolve().parents[2]
VALUE: Final = b"v" * 100


class NaiveBackend(Backend):
    """A dict; each change writes all of it to a JSON file, under a lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[bytes, Record] = {}
        self._lock = asyncio.Lock()
        self._version = 0

    async def get(self, key: bytes) -> Record | None:
        """Return the record in the dict."""
        return self.records.get(key)

    async def put(self, record: Record, replacing: Versioned | Anything | None = ANY) -> int:
        """Change the dict, and write the file."""
        async with self._lock:
            current = self.records.get(record.key)
            if replacing is not ANY and (current and current.version) != (
                replacing and replacing.version
            ):
                raise VersionConflict
            self._version += 1
            self.records[record.key] = record._replace(version=self._version)
            await asyncio.to_thread(self._write)
            return self._version

    async def delete(self, key: bytes, replacing: Versioned | Anything = ANY) -> None:
        """Change the dict, and write the file."""
        async with self._lock:
            self.records.pop(key, None)
            await asyncio.to_thread(self._write)

    def _write(self) -> None:
        content = {
            key.decode(): record.value.decode("latin-1") for key, record in self.records.items()
        }
        partial = self.path.with_suffix(".tmp")
        with partial.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)

    async def flush(self, at: float = 0.0) -> None:
        """Empty the dict."""
        self.records.clear()

    async def scan(self) -> AsyncIterator[Record]:
        """Yield the records in the dict."""
        for record in self.records.values():
            yield record


# Serving, in a process of its own


def make(kind: str, folder: Path) -> Callable[[Context], Backend]:
    """Return a factory for a kind of backend."""
    if kind == "file":
        return lambda context: FileBackend(folder / "cache.json", context)
    if kind == "naive":
        return lambda context: NaiveBackend(folder / "naive.json")
    sys.path.insert(0, str(ROOT / "tests" / "support" / "package_with_backend"))
    from memlite_sqlite import SQLiteBackend  # type: ignore[import-not-found]

    def sqlite(context: Context) -> Backend:
        backend: Backend = SQLiteBackend(str(folder / "cache.db"), context)
        return backend

    return sqlite


async def fill(backend: Backend, count: int) -> None:
    """Store `count` items under the load generator's keys, in the backend's fastest way."""
    keys = [b"key-%08d" % number for number in range(count)]
    if isinstance(backend, NaiveBackend):
        backend.records = {key: Record(key, VALUE, version=1) for key in keys}
    elif isinstance(backend, FileBackend):
        await asyncio.wait([backend.put(Record(key, VALUE)) for key in keys])
    else:
        # In bulk: one transaction per item would take minutes.
        rows = [(key, VALUE, 0, 0.0, 1) for key in keys]
        insert = "INSERT INTO items (key, value, flags, expires, version) VALUES (?, ?, ?, ?, ?)"

        def work() -> None:
            with backend._database as transaction:  # type: ignore[attr-defined]
                transaction.executemany(insert, rows)

        await backend._do(work)  # type: ignore[attr-defined]


def serve(kind: str, port: int, count: int) -> None:
    """Serve until a signal stops the process."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        config = Config(memory_limit=4096, port=port)
        listeners = listen_tcp(["127.0.0.1"], port, 1024)
        server = Server(config, listeners, backend=make(kind, Path(folder)))

        async def run() -> None:
            backend = server.backend
            assert backend is not None  # given above
            opened = backend.open

            async def open_filled() -> None:
                await opened()
                await fill(backend, count)

            backend.open = open_filled  # type: ignore[method-assign]
            await server.run()

        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())


# Measuring


def compare(options: argparse.Namespace, loadgen: Path, count: int) -> None:
    """Measure every kind with `count` items stored, and print a row for each."""
    kinds = [kind for kind in ("file", "sqlite", "naive") if kind not in options.without]
    results: dict[tuple[str, int], list[float]] = {}
    script = str(Path(__file__).resolve())
    with contextlib.ExitStack() as stack:
        ports = {}
        for kind in kinds:
            command = [sys.executable, script, "--serve", kind, "--items", str(count)]
            ports[kind] = stack.enter_context(running(kind, command, 0))
        for turn in range(options.rounds):
            for clients in options.clients:
                for kind in sorted(kinds, reverse=bool(turn % 2)):
                    progress(f"{count} items: {kind}, {clients} clients")
                    arguments = [
                        "--gets=0", "--sets=1", f"--connections={clients}", f"--keys={count}",
                        f"--seconds={options.seconds}", f"--seed={turn}",
                    ]  # fmt: skip
                    printed = load(loadgen, ports[kind][1], 1, arguments)
                    rate = printed["operations"] / printed["seconds"]
                    results.setdefault((kind, clients), []).append(rate)
    for kind in kinds:
        rates = [statistics.median(results[kind, clients]) for clients in options.clients]
        cells = "".join(f" {rate:>10,.0f} |" for rate in rates)
        print(f"| {count:>7,} | {kind:<7} |{cells} {rates[-1] / rates[0]:>5.1f} |", flush=True)


def bench_files(options: argparse.Namespace) -> None:
    """Compare the ways to store items on disk."""
    with tempfile.TemporaryDirectory() as folder:
        loadgen = compile_loadgen(Path(folder))
        heads = "".join(f" {f'{clients} clients':>10} |" for clients in options.clients)
        print("Durable sets per second, 100-byte values; medians of", options.rounds, "rounds.\n")
        print(f"|   items | backend |{heads} ratio |")
        print(f"| ------: | :------ |{' ---------: |' * len(options.clients)} ----: |", flush=True)
        for count in options.items:
            compare(options, loadgen, count)


def bench_gcs(options: argparse.Namespace) -> None:
    """Compare a get through the server with a direct call of the library, on the emulator."""
    with tempfile.TemporaryDirectory() as folder, emulator() as url:
        loadgen = compile_loadgen(Path(folder))
        command = [
            sys.executable, "-m", "memlite", "--backend", f"gs://bench/cache?endpoint={url}",
        ]  # fmt: skip
        print("Gets of 100-byte values, 64 at a time; the emulator runs on the other core.\n")
        print("| through                     |    gets/s | CPU µs per get |")
        print("| :-------------------------- | --------: | -------------: |")
        with running("memlite", command, 1) as (pid, port):
            common = ["--keys=1000", "--connections=64"]
            load(loadgen, port, 0, [*common, "--gets=0", "--sets=1", "--operations=5000"])
            for _ in range(options.rounds):
                before = cpu_seconds(pid)
                arguments = [*common, "--gets=1", "--sets=0", f"--seconds={options.seconds}"]
                printed = load(loadgen, port, 0, arguments)
                used = cpu_seconds(pid).since(before).total
                rate = printed["operations"] / printed["seconds"]
                row("memlite, gs://", rate, used / printed["operations"])
        with pinned(1):
            for _ in range(options.rounds):
                row("google-cloud-storage", *call_library(url, options.seconds))


def row(name: str, rate: float, seconds: float) -> None:
    """Print a row of the table."""
    print(f"| {name:<27} | {rate:>9,.0f} | {seconds * 1e6:>14.0f} |", flush=True)


@contextlib.contextmanager
def emulator() -> Iterator[str]:
    """Run the emulator on the first core; yield its URL."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "memlite", "gcs-emulator", "--port", str(port)]
    with pinned(0):
        process = subprocess.Popen([*command, "--bucket", "bench"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not listens(port):
            if time.monotonic() > deadline:
                raise BenchError("the emulator did not start")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def call_library(url: str, seconds: float) -> tuple[float, float]:
    """Get objects with 64 threads; return gets per second, and seconds of CPU per get."""
    from concurrent.futures import ThreadPoolExecutor

    import requests
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    credentials = AnonymousCredentials()
    client = storage.Client(
        "project", credentials=credentials, client_options={"api_endpoint": url}
    )
    # The default pool of ten connections would be the limit.
    adapter = requests.adapters.HTTPAdapter(pool_maxsize=64)
    client._http.mount("http://", adapter)
    bucket = client.bucket("bench")
    for number in range(100):
        bucket.blob(f"plain/{number}").upload_from_string(VALUE)
    end = time.monotonic() + seconds

    def work(first: int) -> int:
        count = 0
        while time.monotonic() < end:
            bucket.blob(f"plain/{(first + count) % 100}").download_as_bytes()
            count += 1
        return count

    used = time.process_time()
    with ThreadPoolExecutor(64) as pool:
        total = sum(pool.map(work, range(64)))
    return total / seconds, (time.process_time() - used) / total


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser.add_argument("--items", type=numbers, default=[1_000, 10_000, 100_000])
    parser.add_argument("--clients", type=numbers, default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--without", action="append", default=[], help="omit a backend")
    parser.add_argument("--gcs", action="store_true", help="measure the bucket instead")
    parser.add_argument("--folder", help="where to create the files (default: a temporary one)")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("-p", dest="port", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    options: Any = parse(arguments)
    if options.folder:
        os.environ["BENCH_FOLDER"] = options.folder
    try:
        if options.serve:
            serve(options.serve, options.port, options.items[0])
        elif options.gcs:
            bench_gcs(options)
        else:
            bench_files(options)
    except BenchError as error:
        print(f"bench_backends: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
